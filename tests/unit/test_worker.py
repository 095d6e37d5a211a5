"""One message after another: claimed or put back, run, settled, acknowledged only when decided."""

from __future__ import annotations

import asyncio
import dataclasses
import itertools
import re
import threading
import time
from collections.abc import Callable
from decimal import Decimal
from typing import Any, Literal

import pytest

from ringfence import App, Check, Context, Dead, Put, Retry, Stopping
from ringfence.change import Change, OneOf
from ringfence.claim import Claimant, Claimed, claim
from ringfence.clock import SystemClock
from ringfence.crew import NOT_STARTED_PAUSE_SECONDS
from ringfence.job import Guarantee, Job, State
from ringfence.outcome import Keep
from ringfence.ownership import Ownership
from ringfence.ports import Lease, Services
from ringfence.retry import Backoff
from ringfence.testing.port_faults import Crash, Fault, Faulty, reply_lost, unavailable
from ringfence.testing.system import MemorySystem
from ringfence.timeleft import HAND_OVER_SECONDS, STOP_SECONDS
from ringfence.transitions import MAX_AHEAD_SECONDS
from ringfence.verdict import RETURNS_PER_ATTEMPT
from ringfence.wire import Ticket, decode_ticket, encode_ticket


def system(code: Callable[..., Any], **options: Any) -> MemorySystem:
    app = App()
    app.job("job", **options)(code)
    return MemorySystem(app, tables={"Users": ["email"], "Profiles": ["email"], "Counts": ["id"]})


def run(here: MemorySystem, payload: str = "{}", **more: Any) -> Job:
    job = here.submit("job", payload, **more)
    here.run_relay()
    here.run_worker()
    return here.job(job.job_id)


def left(here: MemorySystem) -> int:
    return len(here.memory_queues["default"].bodies())


def test_a_job_that_returns_has_succeeded_and_its_message_is_gone() -> None:
    def code(ctx: Context, x: int) -> dict[str, int]:
        assert (ctx.token, ctx.attempt) == (1, 1)
        return {"double": 2 * x}

    here = system(code)
    job = run(here, '{"x":21}')
    assert (job.state, job.result, job.token, left(here)) == (State.SUCCEEDED, '{"double":42}', 1, 0)
    assert [past.outcome for past in job.history] == ["succeeded"]


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -float("inf")])
def test_a_number_that_json_has_not_is_refused_and_not_made_null(number: float) -> None:
    returned = run(system(lambda ctx: {"rate": [1.5, number], "none": None}))
    assert (returned.state, returned.result) == (State.DEAD, None)
    assert "the result is not JSON" in (returned.error or "")
    saved = run(system(lambda ctx: ctx.checkpoint({"rate": number})))
    assert (saved.state, saved.checkpoint) == (State.DEAD, None)
    assert run(system(lambda ctx: {"none": None})).result == '{"none":null}'


def test_an_async_job_is_a_job_like_any_other() -> None:
    async def code(ctx: Context) -> str:
        return "done"

    assert run(system(code)).result == '"done"'


def test_a_failed_attempt_is_retried_after_its_backoff_and_not_before() -> None:
    seen: list[int] = []

    def code(ctx: Context) -> None:
        seen.append(ctx.attempt)
        if ctx.attempt < 3:
            raise ConnectionError("the service is down")

    here = system(code, backoff=Backoff(base_seconds=100.0))
    job = run(here)
    assert (job.state, left(here)) == (State.QUEUED, 1)
    assert "the service is down" in (job.error or "")
    assert here.run_worker() == 0
    while here.job(job.job_id).state is not State.SUCCEEDED:
        here.clock.sleep(10)
        here.run_worker()
    assert seen == [1, 2, 3]
    assert here.job(job.job_id).token == 3


def test_a_job_that_fails_every_time_is_dead_after_its_attempts_and_kept() -> None:
    def code(ctx: Context) -> None:
        raise ValueError("no")

    here = system(code)
    job = run(here, max_attempts=3)
    for _ in range(10):
        here.clock.sleep(1_000)
        here.run_worker()
    job = here.job(job.job_id)
    assert (job.state, job.attempts, job.token, job.payload, left(here)) == (State.DEAD, 3, 3, "{}", 0)
    assert "ValueError: no" in (job.error or "")


def test_a_job_may_say_that_no_attempt_will_help() -> None:
    def code(ctx: Context) -> None:
        raise Dead("the account is closed")

    job = run(system(code))
    assert (job.state, job.attempts, job.error) == (State.DEAD, 1, "the account is closed")


def test_a_job_may_ask_for_a_later_attempt_and_a_far_one_is_scheduled() -> None:
    def code(ctx: Context) -> None:
        raise Retry("come back later", after_seconds=7_200)

    here = system(code)
    job = run(here)
    assert (job.state, left(here)) == (State.SCHEDULED, 0)
    assert job.due_id is not None
    assert (job.run_at or 0) >= here.clock.now() + 7_200_000


@pytest.mark.parametrize("payload", ['{"x":"one"}', "[]", "{}", '{"x":1,"y":2}'])
def test_a_wrong_payload_is_dead_at_once(payload: str) -> None:
    def code(ctx: Context, x: int) -> None:
        raise AssertionError("must not run")

    job = run(system(code), payload)
    assert (job.state, job.attempts) == (State.DEAD, 1)
    assert "payload does not fit" in (job.error or "")


@pytest.mark.parametrize(
    ("payload", "told"),
    [
        ('{"x":"canary"}', "at $.x: Expected `int`, got `str`"),
        ('{"x":1,"of":{"canary":["canary"]}}', "at $.of[...][0]: Expected `int`, got `str`"),
        ('{"x":1,"kind":"canary"}', "at $.kind"),
        ('{"x":1,"canary":2}', "at $"),
        ("{}", "at $: Object missing required field `x`"),
        ("[]", "at $: Expected `object`, got `array`"),
    ],
)
def test_of_a_wrong_payload_the_path_of_the_fault_is_told_no_line_of_ours_and_no_value(payload: str, told: str) -> None:
    def code(ctx: Context, x: int, of: dict[str, list[int]] | None = None, kind: Literal["a", "b"] = "a") -> None: ...

    here = system(code)
    run(here, payload)
    (event,) = here.telemetry.named("job_dead")
    assert (event["reason"], event["traceback"]) == (f"the payload does not fit {told}", None)


def test_c40_a_name_that_is_not_registered_is_never_looked_up_and_ends_dead() -> None:
    def code(ctx: Context) -> None: ...

    here = system(code)
    job = here.submit("os.system", max_attempts=2)
    here.run_relay()
    for _ in range(5):
        here.run_worker()
        here.clock.sleep(1_000)
    assert here.job(job.job_id).state is State.DEAD
    error = here.job(job.job_id).error or ""
    assert "no job named 'os.system', only job;" in error
    assert "imported" in error


UNKEPT: dict[str, object] = {
    "bytes": b"\xff" * 40_000,
    "object": object(),
    "399 KB": "x" * 399_000,
    "401 KB": "x" * 401_000,
    "5 MB": "x" * 5_000_000,
    "characters of four bytes": "\U0001f600" * 9_000,
}


@pytest.mark.parametrize("result", UNKEPT.values(), ids=UNKEPT)
def test_c34_a_result_that_cannot_be_kept_ends_the_job_once_without_its_effects(result: object) -> None:
    def code(ctx: Context) -> object:
        ctx.effects.put("Counts", {"id": "1"})
        return result

    here = system(code)
    job = run(here)
    assert (job.state, job.attempts) == (State.DEAD, 1)
    assert (job.error or "").startswith("result-")
    assert here.ledger.read_item("Counts", {"id": "1"}) is None


@pytest.mark.parametrize(("characters", "state"), [(16_383, State.SUCCEEDED), (16_384, State.DEAD)])
def test_c34_a_result_is_measured_in_bytes(characters: int, state: State) -> None:
    assert run(system(lambda ctx: "é" * characters)).state is state


def test_c34_a_job_that_fails_two_hundred_times_at_length_keeps_a_small_row() -> None:
    def code(ctx: Context) -> None:
        raise ValueError("x" * 10_000)

    here = system(code, backoff=Backoff(base_seconds=0.0))
    job = run(here, max_attempts=100)
    for _ in range(2):
        while here.run_worker():
            here.clock.sleep(1)
        job = here.job(job.job_id)
        assert (job.state, job.attempts) == (State.DEAD, 100)
        assert len(repr(job)) < 4_000
        here.gateway.redrive("default", job.job_id)
        here.timers.run()
    assert job.token == 200


def test_c34_a_set_is_a_list_in_json() -> None:
    assert run(system(lambda ctx: {2, 1})).result in ("[1,2]", "[2,1]")


def test_two_tables_land_together_or_not_at_all() -> None:
    def signup(ctx: Context, email: str) -> None:
        ctx.effects.put("Users", {"email": email}, unless_exists=True)
        ctx.effects.put("Profiles", {"email": email}, unless_exists=True)

    here = system(signup)
    here.memory_ledger.write_effects(always(here), [Put(table="Profiles", item={"email": "a@b.c"})], request_token="t")
    job = run(here, '{"email":"a@b.c"}')
    assert job.state is State.DEAD
    assert "put Profiles" in (job.error or "")
    assert here.ledger.read_item("Users", {"email": "a@b.c"}) is None
    assert run(here, '{"email":"d@e.f"}').state is State.SUCCEEDED
    assert here.ledger.read_item("Users", {"email": "d@e.f"}) == here.ledger.read_item("Profiles", {"email": "d@e.f"})


def always(here: MemorySystem) -> Change:
    """A condition that holds, on some row: for writes to the user's tables that come from elsewhere."""
    row = here.submit("job")
    return Change(job_id=row.job_id, write_id="", condition=OneOf("state", tuple(State)), set={})


def test_a_version_conflict_is_worth_another_attempt() -> None:
    def code(ctx: Context) -> None:
        item = ctx.read("Counts", {"id": "1"}) or {"version": 0, "n": 0}
        if ctx.attempt == 1:
            ctx.write(Put(table="Counts", item={"id": "1", "n": 100}, version=0))  # somebody else, in between
        ctx.effects.put("Counts", {"id": "1", "n": item["n"] + 1}, version=item["version"])

    here = system(code)
    job = run(here)
    assert job.state is State.QUEUED
    here.clock.sleep(100)
    here.run_worker()
    assert here.job(job.job_id).state is State.SUCCEEDED
    assert here.ledger.read_item("Counts", {"id": "1"}) == {"id": "1", "n": 101, "version": 2}


def test_a_write_in_between_must_be_repeatable_and_tells_when_it_was_done_before() -> None:
    seen: list[bool] = []

    def code(ctx: Context) -> None:
        seen.append(ctx.write(Put(table="Counts", item={"id": ctx.job_id}, unless_exists=True)))
        if ctx.attempt == 1:
            raise ConnectionError
        with pytest.raises(Exception, match="would be repeated"):
            ctx.write(Put(table="Counts", item={"id": ctx.job_id}))

    here = system(code)
    job = run(here)
    here.clock.sleep(100)
    here.run_worker()
    assert here.job(job.job_id).state is State.SUCCEEDED
    assert seen == [True, False]


def test_a_later_attempt_finds_the_checkpoint_and_a_hand_over_burns_no_attempt() -> None:
    starts: list[Any] = []

    def code(ctx: Context) -> None:
        starts.append(ctx.last_checkpoint)
        if len(starts) == 1:
            ctx.checkpoint({"next": 5})
            raise Stopping
        ctx.progress(10, 10)

    here = system(code)
    job = run(here)
    assert (job.state, job.attempts, job.checkpoint) == (State.QUEUED, 0, '{"next":5}')
    here.run_worker()
    job = here.job(job.job_id)
    assert starts == [None, {"next": 5}]
    assert (job.state, job.attempts, job.token) == (State.SUCCEEDED, 1, 2)
    assert job.progress is not None
    assert (job.progress.done, job.progress.total) == (10, 10)


def test_a_redelivery_of_a_finished_job_is_acknowledged_and_runs_nothing() -> None:
    runs: list[int] = []

    def code(ctx: Context) -> None:
        runs.append(ctx.token)

    here = system(code)
    job = here.submit("job")
    here.run_relay()
    (lease,) = here.queues["default"].lease(1, 30)
    here.worker().handle(here.queues["default"], [lease])  # and dies before acknowledging
    here.clock.sleep(31)
    assert here.run_worker() == 1
    assert (runs, left(here), here.job(job.job_id).token) == ([1], 0, 1)
    assert here.telemetry.named("claim_finished")


def test_an_early_ticket_is_put_back_until_its_time_never_acknowledged() -> None:
    def code(ctx: Context) -> None: ...

    here = system(code)
    job = here.submit("job", delay_seconds=600)
    here.queues["default"].push([Ticket(ticket_id="early", job_id=job.job_id, tenant="default")])
    here.run_worker()
    assert (here.job(job.job_id).state, left(here)) == (State.QUEUED, 1)
    assert here.run_worker() == 0
    here.clock.sleep(601)
    here.run_worker()
    assert here.job(job.job_id).state is State.SUCCEEDED


def test_a_duplicate_ticket_waits_while_the_job_is_held() -> None:
    def code(ctx: Context) -> None:
        here.queues["default"].push([Ticket(ticket_id="twin", job_id=ctx.job_id, tenant="default")])
        here.run_worker(here.worker("worker-b"))
        assert here.telemetry.named("job_held")

    here = system(code)
    job = run(here)
    assert (job.state, job.token, left(here)) == (State.SUCCEEDED, 1, 1)
    here.clock.sleep(60)
    here.run_worker()
    assert (here.job(job.job_id).token, left(here)) == (1, 0)


def test_c32_a_cancel_while_running_ends_the_job_at_its_next_retry() -> None:
    def code(ctx: Context) -> None:
        here.gateway.cancel("default", ctx.job_id)
        raise ConnectionError

    here = system(code)
    job = run(here)
    assert job.cancel_requested
    here.clock.sleep(1_000)
    here.run_worker()
    assert (here.job(job.job_id).state, left(here)) == (State.CANCELLED, 0)


FOREIGN = [
    "hello",
    "",
    "[]",
    "{}",
    '{"v":1,"ticket_id":7}',
    '{"v":999,"ticket_id":"t","job_id":"j","tenant":"t"}',
    "1" * 1_000_000,
    '{"Records":[{"eventSource":"aws:s3","eventName":"ObjectCreated:Put","s3":{"object":{"key":"k"}}}]}',
]


def test_c24_foreign_messages_are_quarantined_and_good_jobs_go_on() -> None:
    def code(ctx: Context) -> None: ...

    here = system(code)
    for body in FOREIGN:
        here.memory_queues["default"].put(body)
    jobs = [here.submit("job") for _ in range(10)]
    here.run_relay()
    worker = here.worker()
    while here.run_worker(worker):
        pass
    assert {here.job(job.job_id).state for job in jobs} == {State.SUCCEEDED}
    assert len(here.quarantine.items()) == len(FOREIGN)
    assert all(kept.reason and kept.source == "queue:default" for kept in here.quarantine.items())
    assert left(here) == 0


def test_c24_a_job_whose_ticket_cannot_be_read_is_dead_with_the_reason() -> None:
    def code(ctx: Context) -> None: ...

    here = system(code)
    job = here.submit("job")
    body = encode_ticket(Ticket(ticket_id="t", job_id=job.job_id, tenant="default")).replace('"v":1', '"v":999')
    here.memory_queues["default"].put(body)
    here.run_worker()
    ended = here.job(job.job_id)
    assert ended.state is State.DEAD
    assert "version 999" in (ended.error or "")


def test_a_ticket_for_a_job_nobody_accepted_is_quarantined() -> None:
    def code(ctx: Context) -> None: ...

    here = system(code)
    here.queues["default"].push([Ticket(ticket_id="t", job_id="nobody", tenant="default")])
    here.run_worker()
    assert [kept.job_id for kept in here.quarantine.items()] == ["nobody"]
    assert left(here) == 0


def test_a_job_whose_timeout_does_not_fit_the_time_left_is_not_started() -> None:
    def code(ctx: Context) -> None:
        raise AssertionError("must not run")

    here = system(code, timeout="60s")
    job = here.submit("job")
    here.run_relay()
    leases = here.queues["default"].lease(10, 30)
    left_seconds = iter([100.0])
    assert here.worker().handle(here.queues["default"], leases, lambda: next(left_seconds, 50.0)) == []
    assert here.job(job.job_id).token == 0
    here.clock.sleep(1)
    assert len(here.queues["default"].lease(10, 30)) == 1


def ending_in(seconds: float) -> Callable[[], float]:
    """An invocation with so much time left from now on."""
    end = time.monotonic() + seconds
    return lambda: end - time.monotonic()


def test_near_its_end_an_invocation_asks_the_job_to_stop_and_it_is_handed_over_with_its_checkpoint() -> None:
    def code(ctx: Context) -> str:
        if ctx.last_checkpoint is None:
            ctx.checkpoint({"next": 7})
            while not ctx.stopping:
                ctx.progress(1, 2)
                time.sleep(0.001)
            ctx.stop_if_asked()
        return "finished"

    here = system(code)
    job = here.submit("job")
    here.run_relay()
    queue = here.queues["default"]
    assert here.worker().handle(queue, queue.lease(1, 30), ending_in(STOP_SECONDS + 0.2)) == []
    row = here.job(job.job_id)
    assert (row.state, row.checkpoint, row.attempts) == (State.QUEUED, '{"next":7}', 0)
    here.run_worker()
    assert here.job(job.job_id).result == '"finished"'


def test_a_job_that_does_not_stop_is_handed_over_and_its_late_return_is_worth_nothing() -> None:
    go_on, returned = threading.Event(), threading.Event()

    def code(ctx: Context) -> str:
        if ctx.token == 1:
            go_on.wait(10)
            returned.set()
        return f"by token {ctx.token}"

    here = system(code)
    job = here.submit("job")
    here.run_relay()
    queue = here.queues["default"]
    assert here.worker().handle(queue, queue.lease(1, 30), ending_in(HAND_OVER_SECONDS + 0.2)) == []
    assert (here.job(job.job_id).state, here.job(job.job_id).attempts) == (State.QUEUED, 0)
    here.run_worker()
    go_on.set()
    assert returned.wait(10)
    assert (here.job(job.job_id).result, here.job(job.job_id).token) == ('"by token 2"', 2)


def test_c42_no_word_of_the_users_data_is_in_any_event() -> None:
    secret = "canary-4711"

    def code(ctx: Context, word: str) -> None:
        if ctx.attempt == 1:
            raise ConnectionError(word)
        raise Dead(f"no account {word}")

    here = system(code)
    run(here, f'{{"word":"{secret}"}}')
    here.clock.sleep(100)
    here.run_worker()
    assert {name for name, _ in here.telemetry.events} >= {"job_retried", "job_dead"}
    assert secret not in repr(here.telemetry.events)
    for told in (*here.telemetry.named("job_retried"), *here.telemetry.named("job_dead")):
        assert re.fullmatch(r"test_worker\.py:\d+ in code", str(told["traceback"]))
    (row,) = here.ledger.list_jobs("default", ["default"]).jobs
    assert secret in (row.error or "")


def test_a_throttled_read_of_the_jobs_own_is_waited_out_and_one_that_stays_is_a_failure_with_backoff() -> None:
    def code(ctx: Context) -> None:
        ctx.read("Counts", {"id": "1"})

    def with_reads(*script: Fault) -> MemorySystem:
        app = App()
        app.job("job")(code)
        return MemorySystem(
            app, tables={"Counts": ["id"]}, wrap=lambda name, port: Faulty(port, script) if name == "ledger" else port
        )

    passing = with_reads(*(unavailable("read_item", call=number) for number in range(1, 4)))
    assert run(passing).state is State.SUCCEEDED
    job = run(with_reads(unavailable("read_item", call=None)))
    assert job.state is State.QUEUED
    assert "Unavailable" in (job.error or "")


def test_effects_are_staged_as_they_are_not_as_they_will_be() -> None:
    def code(ctx: Context) -> None:
        item = {"id": "1", "n": 1}
        ctx.effects.put("Counts", item)
        item.update(id="2", n=2)
        ctx.effects.put("Counts", item)

    here = system(code)
    assert run(here).state is State.SUCCEEDED
    assert here.ledger.read_item("Counts", {"id": "1"}) == {"id": "1", "n": 1}


def test_c25_a_job_that_kills_its_process_runs_out_of_attempts() -> None:
    def code(ctx: Context) -> None:
        raise Crash

    here = system(code)
    job = here.submit("job", max_attempts=3)
    here.run_relay()
    deaths = 0
    for _ in range(10):
        try:
            here.run_worker()
        except Crash:
            deaths += 1
        here.clock.sleep(40)
    ended = here.job(job.job_id)
    assert (deaths, ended.state, ended.attempts, left(here)) == (3, State.DEAD, 3, 0)
    assert "all 3 attempts are used up" in (ended.error or "")
    assert [past.outcome for past in ended.history] == ["lost", "lost", "lost"]


def test_c25_a_pill_with_a_second_ticket_runs_out_of_attempts_too() -> None:
    def code(ctx: Context) -> None:
        raise Crash

    here = system(code)
    job = here.submit("job", max_attempts=3)
    here.run_relay()
    here.queues["default"].push([Ticket(ticket_id="twin", job_id=job.job_id, tenant="default", name="job")], 5.0)
    deaths = 0
    for _ in range(2_000):
        try:
            here.run_worker(most=1)
        except Crash:
            deaths += 1
        here.clock.sleep(1)
        if here.job(job.job_id).state.terminal:
            break
    assert here.job(job.job_id).state is State.DEAD
    assert 3 <= deaths <= 3 * RETURNS_PER_ATTEMPT


def test_a_retry_beyond_every_calendar_is_put_off_for_a_year() -> None:
    def code(ctx: Context) -> None:
        raise Retry(after_seconds=1e12)

    here = system(code)
    job = run(here)
    assert (job.run_at or 0) <= here.clock.now() + (MAX_AHEAD_SECONDS + 60) * 1000
    for wrong in (-1.0, float("inf"), float("nan")):
        with pytest.raises(ValueError, match="delay"):
            Retry(after_seconds=wrong)


@pytest.mark.parametrize("done", [0.5, "1", Decimal(1), None, object()])
def test_progress_is_told_in_whole_numbers_or_not_at_all(done: Any) -> None:
    def code(ctx: Context) -> None:
        with pytest.raises(TypeError):
            ctx.progress(done, 10)

    assert run(system(code)).state is State.SUCCEEDED


def test_a_check_that_failed_is_no_sign_of_an_earlier_attempt() -> None:
    def code(ctx: Context) -> bool:
        return ctx.write(
            Put(table="Counts", item={"id": "1"}, unless_exists=True), Check(table="Users", key={"email": "nobody"})
        )

    here = system(code)
    job = run(here)
    assert job.state is State.DEAD
    assert "check Users" in (job.error or "")
    assert here.ledger.read_item("Counts", {"id": "1"}) is None


def test_conflicts_for_minutes_cost_a_job_no_attempt() -> None:
    def code(ctx: Context) -> None:
        ctx.effects.put("Counts", {"id": "1"})

    def commits(change: Any, *_: Any, **__: Any) -> bool:
        return bool(change.leads_to is State.SUCCEEDED)

    app = App()
    app.job("job")(code)
    busy = [True]
    script = [unavailable("write", call=None, where=lambda change, *rest, **more: busy[0] and commits(change))]
    here = MemorySystem(
        app, tables={"Counts": ["id"]}, wrap=lambda name, port: Faulty(port, script) if name == "ledger" else port
    )
    job = here.submit("job", max_attempts=1)
    here.run_relay()
    for _ in range(20):
        here.run_worker()
        here.clock.sleep(11)
    assert here.job(job.job_id).state is State.QUEUED
    busy[0] = False
    here.run_worker()
    assert (here.job(job.job_id).state, here.job(job.job_id).attempts) == (State.SUCCEEDED, 1)


def test_a_release_that_fails_unforeseen_still_ends_the_batch() -> None:
    def code(ctx: Context) -> None:
        raise ConnectionError

    here = system(code)
    here.memory_queues["default"].release = _broken  # type: ignore[method-assign]
    run(here)
    assert here.telemetry.named("release_failed")


def _broken(*_: Any) -> None:
    raise ValueError("unforeseen")


class Odd(BaseException):
    """Not an `Exception`, as some libraries have them."""


@pytest.mark.parametrize(
    "raised",
    [
        asyncio.CancelledError(),
        GeneratorExit(),
        KeyboardInterrupt(),
        SystemExit(3),
        Odd("told to nobody"),
        BaseExceptionGroup("told to nobody", [Odd(), ValueError()]),
    ],
    ids=lambda raised: type(raised).__name__,
)
def test_whatever_the_code_raises_ends_its_attempt_and_no_neighbours(raised: BaseException) -> None:
    def code(ctx: Context) -> None:
        raise raised

    here = system(code)
    jobs = [here.submit("job") for _ in range(2)]
    here.run_relay()
    assert here.run_worker() == 2
    for job in jobs:
        row = here.job(job.job_id)
        assert (row.state, row.attempts) == (State.QUEUED, 1)
        assert type(raised).__name__ in str(row.error)
        assert "test_worker.py:" in str(row.error)
    assert "told to nobody" not in str(here.telemetry.named("job_retried"))


def test_a_job_whose_claim_ends_too_late_is_handed_over_unrun() -> None:
    def code(ctx: Context) -> None:
        raise AssertionError("must not run")

    claimed: list[bool] = []

    def claims(change: Any, *_: Any, **__: Any) -> bool:
        claimed.append(change.leads_to is State.RUNNING)
        return claimed[-1]

    app = App()
    app.job("job")(code)
    slow = Fault(method="write", act=lambda _call: None, when="before", where=claims)
    here = MemorySystem(app, wrap=lambda name, port: Faulty(port, [slow]) if name == "ledger" else port)
    job = here.submit("job")
    here.run_relay()
    leases = here.queues["default"].lease(1, 30)
    assert here.worker().handle(here.queues["default"], leases, lambda: 3.0 if any(claimed) else 900.0) == []
    row = here.job(job.job_id)
    assert (row.state, row.attempts, row.token) == (State.QUEUED, 0, 1)


def test_who_claims_for_a_batch_that_has_returned_does_not_try_again() -> None:
    """A thread that is frozen between two invocations would take the job from whoever has it in the next one."""
    here = system(lambda ctx: None)
    job = here.submit("job")
    here.run_relay()
    (lease,) = here.queues["default"].lease(1, 30)
    lost = Claimant("lost", decode_ticket(lease.body), lease, 1.0, None)
    assert isinstance(claim(lost, here.services), Claimed)
    here.clock.sleep(60.0)  # now it may be taken over, but not by the common claim: that one looks again
    late = dataclasses.replace(lost, worker="late")
    looks = iter([False, True])
    assert claim(late, here.services, is_over=lambda: next(looks)) == Keep()
    assert here.job(job.job_id).worker == "lost"
    assert isinstance(claim(late, here.services), Claimed)


def test_what_claims_is_told_when_its_batch_has_returned(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Callable[[], bool]] = []
    while_it_ran: list[bool] = []

    def watched(claimant: Claimant, services: Services, be_alone: Any, is_over: Callable[[], bool]) -> Any:
        asked.append(is_over)
        while_it_ran.append(is_over())
        return claim(claimant, services, be_alone, is_over)

    monkeypatch.setattr("ringfence.attempt.claim", watched)
    assert run(system(lambda ctx: None)).state is State.SUCCEEDED
    assert (while_it_ran, [is_over() for is_over in asked]) == ([False], [True])


def test_an_outcome_that_was_written_without_hearing_of_it_is_no_late_write() -> None:
    app = App()
    app.job("job")(lambda ctx: "done")
    deaf = reply_lost("write", call=None, where=lambda change, *_, **__: change.leads_to is State.SUCCEEDED)
    here = MemorySystem(app, wrap=lambda name, port: Faulty(port, [deaf]) if name == "ledger" else port)
    job = run(here)
    assert (job.state, job.result) == (State.SUCCEEDED, '"done"')
    assert here.telemetry.named("outcome_undecided")
    assert here.telemetry.named("outcome_was_written")
    assert here.telemetry.named("late_write_refused") == []


def test_a_long_job_costs_at_most_one_write_in_half_a_lease_however_often_its_heart_beats() -> None:
    lease_seconds, leases = 30.0, 10

    def code(ctx: Context) -> int:
        hold = ctx._hold
        assert isinstance(hold, Ownership)
        before = hold.job.version
        for _ in range(6 * leases):
            here.clock.sleep(lease_seconds / 6)
            if hold.wants_renewal(here.clock.monotonic(), lost=False):
                hold.renew()
        return hold.job.version - before

    here = system(code, timeout="10m", lease=lease_seconds)
    assert leases <= int(run(here).result or 0) <= 2 * leases


def test_a_queue_that_does_not_answer_does_not_keep_an_invocation_beyond_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of its batch, one message fits no more, and giving it back hangs; the other's job is stuck, and times out."""
    monkeypatch.setattr("ringfence.timeleft.STOP_SECONDS", 0.5)
    running, go_on = threading.Event(), threading.Event()

    def code(ctx: Context) -> None:
        running.set()
        go_on.wait(20)

    app = App()
    app.job("job", timeout=0.5)(code)
    app.job("long", timeout="10m")(lambda ctx: None)
    here = MemorySystem(app, clock=SystemClock(), threads=2)
    job, _ = here.submit("job"), here.submit("long")
    here.run_relay()
    queue = here.memory_queues["default"]
    release = queue.release

    def hangs(leases: Any, delay_seconds: float = 0.0) -> None:
        if delay_seconds == NOT_STARTED_PAUSE_SECONDS:
            go_on.wait(20)
        release(leases, delay_seconds)

    queue.release = hangs  # type: ignore[method-assign]
    leases = here.queues["default"].lease(2, 30)
    began = time.monotonic()
    calls = itertools.count()

    def remaining_seconds() -> float:
        return 2.6 - (time.monotonic() - began) if next(calls) else 3.0

    try:
        assert here.worker(heartbeats=True).handle(queue, leases, remaining_seconds) == []
        assert running.is_set()
        assert time.monotonic() - began < 2.6
        row = here.job(job.job_id)
        assert (row.state, row.history[-1].outcome) == (State.QUEUED, "retry")
    finally:
        go_on.set()


@pytest.mark.parametrize("guarantee", [Guarantee.ONCE, Guarantee.AT_LEAST_ONCE])
def test_what_is_done_stays_hidden_until_the_batch_returns(guarantee: Guarantee) -> None:
    """SQS deletes it only then: with its lease over, another worker would run a job without a row once more."""
    done, other = threading.Event(), threading.Event()
    app = App()
    app.job("short")(lambda ctx: done.set())

    @app.job("long", timeout="10m")
    def long(ctx: Context) -> None:
        assert other.wait(20)

    here = MemorySystem(app, threads=2, clock=SystemClock(), lease_seconds=0.6)
    for name in ("long", "short"):
        here.submit(name, guarantee=guarantee)
    here.run_relay()
    queue = here.queues["default"]
    leases = queue.lease(2, 0.6)
    taken: list[Lease] = []
    batch = threading.Thread(target=lambda: taken.extend(here.worker(heartbeats=True).handle(queue, leases)), daemon=True)
    batch.start()
    assert done.wait(10)
    time.sleep(1.0)
    assert queue.lease(2, 0.6) == []
    other.set()
    batch.join(10)
    assert len(taken) == 2
