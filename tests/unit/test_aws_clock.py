"""The time as AWS tells it: a wrong clock is corrected by the ``Date`` of any answer, and a right one is left alone."""

from __future__ import annotations

import json
import random
from email.utils import formatdate
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from ringfence.aws import clock as clock_module
from ringfence.aws.clock import AWS_CLOCK, DRIFT, TELL_MS, TRUSTED_MS, AwsClock
from ringfence.clock import SystemClock
from ringfence.runtime import Runtime
from ringfence.settings import Settings
from ringfence.testing.sdk_faults import inject, read_timeout, refused, replaced

MINUTE = 60_000
ROUND_TRIP = 8


class World:
    """True time, the time that elapses here, and a wall clock that is ``wrong_by``."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.true, self.elapsed, self.wrong_by = 1_700_000_000_250, 5_000_000, 0
        self.told: list[int] = []
        monkeypatch.setattr(SystemClock, "now", lambda _self: self.true + self.wrong_by)
        monkeypatch.setattr(clock_module, "elapsed_ms", lambda: self.elapsed)
        self.clock = AwsClock(self.told.append)

    def let_pass(self, milliseconds: int, *, drift: float = 0.0) -> None:
        self.true += milliseconds
        self.elapsed += round(milliseconds * (1 + drift))

    def call(self, *, there: int = ROUND_TRIP // 2, back: int = ROUND_TRIP // 2, served_by_ms: int = 0) -> None:
        """A call and its answer, dated by a server whose clock is ``served_by_ms`` ahead."""
        sent = self.elapsed
        self.let_pass(there)
        date = formatdate((self.true + served_by_ms) // 1000, usegmt=True)
        self.let_pass(back)
        self.clock.hear(date, sent, self.elapsed)

    @property
    def ahead(self) -> int:
        """How far the corrected clock is ahead of the truth."""
        return self.clock.now() - self.true


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_before_the_first_answer_there_is_only_the_machines_own_clock(world: World) -> None:
    world.wrong_by = 10 * MINUTE
    assert world.ahead == 10 * MINUTE


@pytest.mark.parametrize("wrong_by", [10 * MINUTE, -10 * MINUTE, 3_000, -3_000])
def test_one_answer_corrects_a_wrong_clock_and_never_ahead_of_aws(world: World, wrong_by: int) -> None:
    world.wrong_by = wrong_by
    world.call()
    for _ in range(100):
        assert -1_000 - ROUND_TRIP <= world.ahead <= 0
        world.let_pass(977)


def test_many_answers_correct_it_to_a_few_hundredths_of_a_second(world: World) -> None:
    world.wrong_by = 10 * MINUTE
    for _ in range(300):
        world.call()
        world.let_pass(137)
    assert -40 <= world.ahead <= 0


@pytest.mark.parametrize("wrong_by", [0, TRUSTED_MS, -TRUSTED_MS])
def test_a_clock_as_right_as_the_header_can_tell_is_left_alone(world: World, wrong_by: int) -> None:
    world.wrong_by = wrong_by
    for _ in range(200):
        world.call()
        assert world.ahead == wrong_by
        world.let_pass(337)
    assert world.told == []


def test_a_clock_that_jumps_while_it_runs_does_so_unnoticed_by_the_jobs(world: World) -> None:
    chance = random.Random(1)
    world.call()
    for _ in range(500):
        world.let_pass(chance.randrange(2_000))
        world.wrong_by = chance.choice([0, 10 * MINUTE, -10 * MINUTE, 60 * MINUTE])
        if chance.random() < 0.1:
            world.call()
        assert -1_000 - ROUND_TRIP <= world.ahead <= 0


@pytest.mark.parametrize("drift", [DRIFT, -DRIFT])
def test_a_right_clock_stays_right_through_a_day_without_an_answer(world: World, drift: float) -> None:
    world.call()
    for _ in range(24):
        world.let_pass(60 * MINUTE, drift=drift)
        assert world.ahead == 0
    world.call()
    assert world.ahead == 0
    assert world.told == []


@pytest.mark.parametrize(("there", "back"), [(20_000, 0), (0, 20_000)])
def test_a_long_poll_and_a_process_that_was_frozen_do_not_make_a_right_clock_wrong(world: World, there: int, back: int) -> None:
    world.call(there=there, back=back)
    assert world.ahead == 0
    world.call()
    world.call(there=there, back=back)
    assert world.ahead == 0


def test_a_machine_that_was_stood_still_with_its_elapsed_time_goes_by_the_next_answer(world: World) -> None:
    world.call()
    world.true += 3_600_000
    assert world.ahead < -3_599_000  # it cannot know
    world.call()
    assert world.ahead == 0


def test_servers_that_do_not_quite_agree_do_not_make_a_right_clock_wrong(world: World) -> None:
    chance = random.Random(2)
    for _ in range(300):
        world.call(served_by_ms=chance.choice([-400, 0, 400]))
        world.let_pass(chance.randrange(500))
        assert world.ahead == 0


def test_a_wrong_clock_is_told_of_once_in_a_while(world: World) -> None:
    world.wrong_by = 10 * MINUTE
    for _ in range(10):
        world.call()
    (ahead,) = world.told
    assert 10 * MINUTE <= ahead <= 10 * MINUTE + 1_000 + ROUND_TRIP
    world.let_pass(TELL_MS)
    world.call()
    assert len(world.told) == 2


@pytest.mark.parametrize("date", ["", "yesterday", "Mon, 99 Foo"])
def test_a_date_that_is_none_is_passed_over(world: World, date: str) -> None:
    world.wrong_by = 10 * MINUTE
    world.clock.hear(date, world.elapsed, world.elapsed)
    assert world.ahead == 10 * MINUTE


# --- what a boto3 client tells it --------------------------------------------------------------------------------------


@pytest.fixture
def client(world: World) -> Any:
    made = boto3.client(
        "dynamodb", region_name="eu-west-1", aws_access_key_id="testing", aws_secret_access_key="testing", verify=False
    )
    world.clock.listen(made)
    world.wrong_by = 10 * MINUTE
    return made


def answer(world: World, headers: dict[str, str], request_id: str | None = "1") -> dict[str, Any]:
    metadata = {"HTTPHeaders": headers} | ({} if request_id is None else {"RequestId": request_id})
    return {"ResponseMetadata": metadata, "TableNames": []}


def dated(world: World) -> dict[str, str]:
    return {"date": formatdate(world.true // 1000, usegmt=True)}


def test_any_answer_of_a_client_corrects_the_clock(world: World, client: Any) -> None:
    def reply(_send: Any, url: str) -> Any:
        success, _ = replaced({})(_send, url)
        assert success is not None
        return (success[0], answer(world, dated(world))), None

    with inject(client, "ListTables", [reply]):
        client.list_tables()
    assert -1_000 <= world.ahead <= 0


def test_a_refusal_is_an_answer_as_well(world: World, client: Any) -> None:
    def reply(_send: Any, url: str) -> Any:
        success, _ = refused("RequestExpired", status=400)(_send, url)
        assert success is not None
        success[1]["ResponseMetadata"]["HTTPHeaders"] = dated(world)
        return success, None

    with inject(client, "ListTables", [reply]), pytest.raises(ClientError):
        client.list_tables()
    assert -1_000 <= world.ahead <= 0


@pytest.mark.parametrize("what", ["no date", "a proxy's", "none"])
def test_without_a_date_of_aws_the_machines_clock_is_kept(world: World, client: Any, what: str) -> None:
    def reply(_send: Any, url: str) -> Any:
        if what == "none":
            return read_timeout()(lambda: (None, None), url)
        success, _ = replaced({})(_send, url)
        assert success is not None
        told = answer(world, {}) if what == "no date" else answer(world, dated(world), request_id=None)
        return (success[0], told), None

    with inject(client, "ListTables", [reply] * 9):
        if what == "none":
            with pytest.raises(Exception, match="timeout"):
                client.list_tables()
        else:
            client.list_tables()
    assert world.ahead == 10 * MINUTE


# --- who goes by it ----------------------------------------------------------------------------------------------------

SETTINGS = Settings.from_environment({"RINGFENCE_LEDGER_TABLE": "ledger", "RINGFENCE_STREAM": "log"})


def test_a_process_outside_lambda_goes_by_it_and_tells_of_a_wrong_clock(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("AWS_LAMBDA_LOG_STREAM_NAME", raising=False)
    runtime = Runtime(SETTINGS)
    assert runtime.clock is AWS_CLOCK
    assert AWS_CLOCK.on_wrong is not None
    AWS_CLOCK.on_wrong(600_000)
    told = json.loads(capsys.readouterr().out)
    assert (told["event"], told["level"], told["ahead_seconds"]) == ("clock_wrong", "WARNING", 600)


def test_a_function_goes_by_the_machines_clock_which_is_awss_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """What elapses may stand still between two invocations, and would then have to be believed over it."""
    monkeypatch.setenv("AWS_LAMBDA_LOG_STREAM_NAME", "2026/11/30/[$LATEST]abc")
    assert type(Runtime(SETTINGS).clock) is SystemClock
