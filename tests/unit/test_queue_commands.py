"""Showing the queues and changing their pace: over HTTP, with the Python client, and on the command line."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ringfence import App, Context
from ringfence.cli.main import main
from ringfence.client import Client
from ringfence.depths import Depths
from ringfence.errors import Rejected, Unavailable
from ringfence.gateway import Gateway
from ringfence.memory.clock import ManualClock
from ringfence.memory.queue import MemoryQueue
from ringfence.ports import Depth
from ringfence.queue_settings import QueueSettings, QueueState
from ringfence.testing.memory_api import MemoryApi, served
from ringfence.testing.system import MemorySystem

OPEN = {"rate_per_second": None, "burst": 1, "paused": False, "high_water_mark": None, "parked": False}
EMPTY = {"ready": 0, "leased": 0, "delayed": 0}


def jobs() -> App:
    app = App()

    @app.job("noop")
    def noop(ctx: Context) -> None: ...

    return app


@pytest.fixture
def api() -> MemoryApi:
    return MemoryApi(MemorySystem(jobs()))


@pytest.fixture
def key(api: MemoryApi) -> str:
    return api.key()


# --- over HTTP -------------------------------------------------------------------------------------------------------


def test_the_queues_tell_their_depths_and_their_pace(api: MemoryApi, key: str) -> None:
    api.system.submit("noop")
    api.system.run_relay()
    api.system.queue_settings.change("priority", {"rate_per_second": 0.2, "burst": 3, "high_water_mark": 9})
    answer = api.request("GET", "/v1/queues", key=key)
    assert answer.document["queues"] == [
        {"name": "default", **EMPTY, "ready": 1, **OPEN},
        {"name": "priority", **EMPTY, **OPEN, "rate_per_second": 0.2, "burst": 3, "high_water_mark": 9},
    ]
    assert answer.headers["cache-control"] == "no-store"
    assert api.request("GET", "/v1/queues/default", key=key).document == answer.document["queues"][0]


def test_a_change_changes_what_it_names_and_shows_the_queue_afterwards(api: MemoryApi, key: str) -> None:
    api.system.queue_settings.change("default", {"burst": 7})
    answer = api.request("PATCH", "/v1/queues/default", '{"rate_per_second": 10, "paused": true}', key)
    assert answer.status == 200
    assert answer.document == {"name": "default", **EMPTY, **OPEN, "rate_per_second": 10.0, "burst": 7, "paused": True}
    assert api.system.queue_settings.read("default").settings == QueueSettings(rate_per_second=10.0, burst=7, paused=True)
    answer = api.request("PATCH", "/v1/queues/default", '{"rate_per_second": null, "paused": false}', key)
    assert answer.document["rate_per_second"] is None
    assert api.system.queue_settings.read("default").settings == QueueSettings(burst=7)
    assert api.request("PATCH", "/v1/queues/default", "{}", key).document["burst"] == 7
    told = api.system.telemetry.named("queue_changed")
    assert [(event["queue"], event["rate_per_second"], event["paused"]) for event in told] == [
        ("default", 10.0, True),
        ("default", None, False),
        ("default", None, False),
    ]


def test_parked_jobs_are_shown(api: MemoryApi, key: str) -> None:
    api.request("PATCH", "/v1/queues/default", '{"paused": true}', key)
    job = api.system.submit("noop")
    api.system.run_relay()
    assert api.request("GET", "/v1/queues/default", key=key).document["parked"] is True
    assert api.request("GET", f"/v1/jobs/{job.job_id}", key=key).document["state"] == "scheduled"


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ('{"speed": 10}', "/speed"),
        ('{"name": "other"}', "/name"),
        ('{"rate_per_second": 0}', "/rate_per_second"),
        ('{"rate_per_second": -3}', "/rate_per_second"),
        ('{"rate_per_second": 1e9}', "/rate_per_second"),
        ('{"rate_per_second": "10"}', "/rate_per_second"),
        ('{"rate_per_second": true}', "/rate_per_second"),
        ('{"burst": 0}', "/burst"),
        ('{"burst": 1.5}', "/burst"),
        ('{"burst": null}', "/burst"),
        ('{"paused": "yes"}', "/paused"),
        ('{"paused": null}', "/paused"),
        ('{"high_water_mark": 0}', "/high_water_mark"),
        ('{"high_water_mark": 2.5}', "/high_water_mark"),
        ("[]", ""),
    ],
)
def test_what_cannot_be_is_refused_with_a_pointer_and_changes_nothing(
    api: MemoryApi, key: str, body: str, pointer: str
) -> None:
    before = api.system.queue_settings.change("default", {"burst": 2})
    answer = api.request("PATCH", "/v1/queues/default", body, key)
    assert (answer.status, answer.document.get("pointer", "")) == (422, pointer)
    assert api.system.queue_settings.read("default").settings == before


@pytest.mark.parametrize("limit", ["rate_per_second", "high_water_mark"])
@pytest.mark.parametrize("zero", ["0", "0.0", "-0"])
def test_a_limit_of_zero_is_told_what_stops_a_queue_and_what_takes_a_limit_away(
    api: MemoryApi, key: str, limit: str, zero: str
) -> None:
    answer = api.request("PATCH", "/v1/queues/default", f'{{"{limit}": {zero}}}', key)
    assert (answer.status, answer.document["pointer"]) == (422, f"/{limit}")
    assert '{"paused": true} stops the queue' in answer.document["detail"]
    assert f'{{"{limit}": null}}' in answer.document["detail"]


@pytest.mark.parametrize(
    ("body", "status"),
    [("", 400), ("  ", 400), ("{", 400), ('{"burst": 1, "burst": 2}', 422), ('{"rate_per_second": NaN}', 400)],
)
def test_what_is_no_json_is_refused(api: MemoryApi, key: str, body: str, status: int) -> None:
    assert api.request("PATCH", "/v1/queues/default", body, key).status == status
    assert api.system.queue_settings.all() == {}


@pytest.mark.parametrize("method", ["GET", "PATCH"])
@pytest.mark.parametrize("name", ["unknown", "last-resort", "DEFAULT", "%20"])
def test_a_queue_that_is_not_there_has_no_pace(api: MemoryApi, key: str, method: str, name: str) -> None:
    answer = api.request(method, f"/v1/queues/{name}", '{"burst": 2}' if method == "PATCH" else None, key)
    assert (answer.status, answer.kind) == (404, "unknown-queue")
    assert name not in api.system.queue_settings.all()


def test_the_pace_of_a_queue_is_everybodys_and_no_tenants_to_change(api: MemoryApi) -> None:
    tenant, admin = api.key(scopes=["submit", "read", "operate"]), api.key(scopes=["admin"])
    assert api.request("GET", "/v1/queues/default", key=tenant).status == 200
    assert api.request("PATCH", "/v1/queues/default", '{"burst": 2}', tenant).status == 403
    assert api.request("PATCH", "/v1/queues/default", '{"burst": 2}', admin).status == 200
    assert api.request("PATCH", "/v1/queues/default", '{"burst": 2}').status == 401
    assert api.request("PUT", "/v1/queues/default", '{"burst": 2}', admin).status == 405


# --- with the client and on the command line -------------------------------------------------------------------------


@pytest.fixture
def url(api: MemoryApi) -> Iterator[str]:
    with served(api.answer) as there:
        yield there


def test_the_client_changes_what_it_is_given(api: MemoryApi, key: str, url: str) -> None:
    with Client(url, key) as client:
        changed = client.set_queue("default", rate_per_second=2.5, high_water_mark=100)
        assert (changed.rate_per_second, changed.burst, changed.high_water_mark) == (2.5, 1, 100)
        assert client.set_queue("default", rate_per_second=None, burst=4).high_water_mark == 100
        assert client.queue("default") == client.queues()["default"]
        assert api.system.queue_settings.read("default").settings == QueueSettings(burst=4, high_water_mark=100)
        with pytest.raises(Rejected) as refusal:
            client.set_queue("default", burst=0)
        assert (refusal.value.status, refusal.value.pointer) == (422, "/burst")
        with pytest.raises(Rejected) as refusal:
            client.set_queue("a/b", burst=1)
        assert refusal.value.status == 404


class Shell:
    def __init__(self, api: MemoryApi, url: str, key: str) -> None:
        self.api, self._environment = api, {"RINGFENCE_URL": url, "RINGFENCE_API_KEY": key}

    def __call__(self, *arguments: str) -> Result:
        return CliRunner().invoke(main, ["queues", *arguments], env=self._environment)

    @property
    def settings(self) -> QueueSettings:
        return self.api.system.queue_settings.read("default").settings


@pytest.fixture
def shell(api: MemoryApi, url: str, key: str) -> Shell:
    return Shell(api, url, key)


def test_the_queues_are_listed_a_line_each(shell: Shell) -> None:
    assert shell().stdout.splitlines() == ["default\t0\t0\t0\tnone\t1\tnone\topen", "priority\t0\t0\t0\tnone\t1\tnone\topen"]
    assert shell("priority").stdout == "priority\t0\t0\t0\tnone\t1\tnone\topen\n"


def test_c48_a_queue_that_hands_nothing_out_is_not_shown_as_an_empty_one(shell: Shell) -> None:
    queue = shell.api.system.memory_queues["default"]
    for _ in range(150):
        queue.put("hello")
    assert len(queue.lease(100, 600)) == 100
    assert shell("default").stdout == "default\t50\t100\t0\tnone\t1\tnone\topen\n"


def test_options_set_a_pace_and_none_takes_it_away(shell: Shell) -> None:
    result = shell("default", "--rate", "10/s", "--burst", "20", "--high-water", "5000", "--pause")
    assert result.exit_code == 0
    assert result.stdout == "default\t0\t0\t0\t10/s\t20\t5000\tpaused\n"
    assert shell.settings == QueueSettings(rate_per_second=10.0, burst=20, paused=True, high_water_mark=5_000)
    [document] = [json.loads(line) for line in shell("default", "--resume", "--json").stdout.splitlines()]
    assert (document["paused"], document["rate_per_second"]) == (False, 10.0)
    shell("default", "--rate", "none", "--high-water", "none")
    assert shell.settings == QueueSettings(burst=20)


@pytest.mark.parametrize(("written", "per_second"), [("0.2/s", 0.2), ("30/m", 0.5), ("18/h", 0.005), ("7", 7.0), ("7.5", 7.5)])
def test_a_rate_is_written_as_people_do(shell: Shell, written: str, per_second: float) -> None:
    assert shell("default", "--rate", written).exit_code == 0
    assert shell.settings.rate_per_second == per_second


@pytest.mark.parametrize(
    "arguments",
    [
        ("default", "--rate", "fast"),
        ("default", "--rate", "-1/s"),
        ("default", "--rate", "10/d"),
        ("default", "--burst", "0"),
        ("default", "--high-water", "many"),
        ("default", "--high-water", "0"),
        ("--rate", "10/s"),
        ("--pause",),
        ("default", "--pause", "--resume"),
        ("default", "--resume", "--burst", "3", "--pause"),
        ("default", "--rate", "10/s", "--rate", "none"),
    ],
)
def test_wrong_usage_changes_nothing(shell: Shell, arguments: tuple[str, ...]) -> None:
    assert shell(*arguments).exit_code == 2
    assert shell.settings == QueueSettings()


def test_what_the_api_refuses_is_told(shell: Shell) -> None:
    result: Any = shell("default", "--rate", "1000000000/s")
    assert result.exit_code == 1
    assert "rate_per_second" in result.stderr


def test_whoever_names_a_queue_that_is_not_there_is_told_which_are(shell: Shell) -> None:
    result = shell("unknown", "--pause")
    assert (result.exit_code, result.stderr) == (1, "ringfence: there is no such queue; there are: default, priority\n")


def test_a_rate_of_nothing_is_a_pause(shell: Shell) -> None:
    result = shell("default", "--rate", "0")
    assert result.exit_code == 2
    assert "--pause stops a queue" in result.stderr


# --- an engine out of reach ------------------------------------------------------------------------------------------

UNKNOWN = {"ready": None, "leased": None, "delayed": None}


class Dead:
    """A queue whose engine is out of reach: it says so at once or, with ``gone``, when that is set."""

    def __init__(self, gone: threading.Event | None = None) -> None:
        self.asked, self._gone = 0, gone

    def depth(self) -> Depth:
        self.asked += 1
        if self._gone is not None:
            self._gone.wait(10)
        raise Unavailable("cannot read the depth of queue default: TimeoutError")


def cut_off(api: MemoryApi, *names: str) -> list[Dead]:
    """Put these queues, all others aside, out of reach."""
    dead = [Dead() for _ in names]
    api.system.gateway = Gateway(
        api.system.services, api.system.log, {**api.system.queues, **dict(zip(names, dead, strict=True))}
    )
    return dead


def test_a_change_that_is_in_force_is_not_told_as_a_failure(api: MemoryApi, key: str) -> None:
    cut_off(api, "default")
    answer = api.request("PATCH", "/v1/queues/default", '{"paused": true}', key)
    reason = "cannot read the depth of queue default: TimeoutError"
    shown = {"name": "default", **UNKNOWN, **OPEN, "paused": True, "depth_fault": reason}
    assert (answer.status, answer.document) == (200, shown)
    assert api.request("GET", "/v1/queues/default", key=key).document == shown
    assert api.request("GET", "/v1/queues", key=key).document["queues"] == [shown, {"name": "priority", **EMPTY, **OPEN}]


def test_a_change_that_cannot_be_told_is_not_made(api: MemoryApi, key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable(queue: str) -> QueueState:
        raise Unavailable

    with monkeypatch.context() as ledger:
        ledger.setattr(api.system.queue_settings, "read", unreadable)
        assert api.request("PATCH", "/v1/queues/default", '{"paused": true}', key).status == 503
    assert api.system.queue_settings.all() == {}


def test_queues_on_a_dead_engine_are_waited_for_together_and_not_for_long() -> None:
    gone = threading.Event()
    dead = {f"dead-{n}": Dead(gone) for n in range(40)}
    depths = Depths({**dead, "well": MemoryQueue("well", ManualClock())}, longest_seconds=0.01)
    try:
        for _ in range(500):  # so often until a machine that has much to do has looked at the one that is well
            found = depths.of([*dead, "well"])
            if found.pop("well") == Depth(0, 0, 0):
                break
        else:
            pytest.fail("the queue that can be asked is never told")
        assert {str(fault) for fault in found.values()} == {
            f"queue {name} did not tell its depth within 0.01 s" for name in dead
        }
        assert {queue.asked for queue in dead.values()} == {1}  # however often somebody looks
    finally:
        gone.set()


def test_the_command_line_shows_what_is_known_and_says_what_is_not(shell: Shell) -> None:
    cut_off(shell.api, "default")
    result = shell("default", "--pause")
    assert (result.exit_code, result.stdout) == (0, "default\t?\t?\t?\tnone\t1\tnone\tpaused\n")
    assert result.stderr == "default: its depth is not known: cannot read the depth of queue default: TimeoutError\n"
    [document] = [json.loads(line) for line in shell("default", "--json").stdout.splitlines()]
    assert (document["ready"], document["paused"], "TimeoutError" in document["depth_fault"]) == (None, True, True)
