"""Jobs that ride in their tickets: no row while they run, a row when they have to wait or are dead, never lost."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from ringfence import App, Context, Dead, Put, Retry, Stopping
from ringfence.carried import MOST_DELIVERIES
from ringfence.job import Guarantee, State
from ringfence.jsontext import sha256
from ringfence.retry import Backoff
from ringfence.testing.given import accepted_record
from ringfence.testing.port_faults import Crash, Fault, Faulty, unavailable
from ringfence.testing.system import MemorySystem
from ringfence.wire import decode_ticket, new_ticket

numbers = itertools.count()


def system(code: Callable[..., Any], *script: Fault, **options: Any) -> MemorySystem:
    """Every call of the ledger is recorded; ``script`` strikes there."""
    app = App()
    app.job("job", **options)(code)
    return MemorySystem(
        app, tables={"Counts": ["id"]}, wrap=lambda name, port: Faulty(port, script) if name == "ledger" else port
    )


def carry(here: MemorySystem, payload: str = "{}", *, max_attempts: int = 3, name: str = "job") -> str:
    told = {"job_id": f"carried{next(numbers)}", "created_at": here.clock.now(), "max_attempts": max_attempts}
    record = accepted_record(name, payload, guarantee=Guarantee.AT_LEAST_ONCE, **told)
    assert here.queues["default"].push([new_ticket(here.ids.mark(), record)]) == []
    return record.job_id


def left(here: MemorySystem) -> int:
    return len(here.memory_queues["default"].bodies())


def run_all(here: MemorySystem, rounds: int = 50) -> None:
    for _ in range(rounds):
        here.run_worker()
        here.clock.sleep(100)
        here.timers.run()


def test_it_runs_with_its_payload_and_the_ledger_is_not_asked() -> None:
    seen: list[Any] = []

    def code(ctx: Context, x: int) -> int:
        seen.append((ctx.job_id, ctx.attempt, ctx.queue, ctx.idempotency_key, ctx.payload, ctx.payload_sha256, x))
        ctx.progress(1, 2)
        return x

    here = system(code)
    job_id = carry(here, '{"x": 7}')
    here.run_worker()
    assert seen == [(job_id, 1, "default", f"rf-{job_id}", '{"x": 7}', sha256('{"x": 7}'), 7)]
    assert (here.ledger.calls, left(here)) == ([], 0)
    assert here.telemetry.named("carried_jobs_succeeded") == [{"queue": "default", "count": 1}]


def test_only_a_success_is_counted_as_one() -> None:
    """It is acknowledged as well when another ticket, or a row, takes its place."""

    def code(ctx: Context) -> None:
        if ctx.attempt < 3:
            raise ValueError("not yet")

    here = system(code)
    carry(here)
    run_all(here)
    assert here.telemetry.named("carried_jobs_succeeded") == [{"queue": "default", "count": 1}]


def test_its_attempts_are_counted_in_its_ticket_and_the_last_one_leaves_a_dead_row() -> None:
    attempts: list[int] = []

    def code(ctx: Context) -> None:
        attempts.append(ctx.attempt)
        raise ConnectionError("the service is down")

    here = system(code)
    job_id = carry(here, "{}", max_attempts=4)
    run_all(here)
    assert attempts == [1, 2, 3, 4]
    row = here.job(job_id)
    assert (row.state, row.attempts, row.payload, row.max_attempts, left(here)) == (State.DEAD, 4, "{}", 4, 0)
    assert "the service is down" in (row.error or "")
    assert row.finished_at is not None
    assert row.expires_at is not None
    assert [told["reason"] for told in here.telemetry.named("job_dead")]


def test_a_redrive_makes_it_a_job_like_any_other() -> None:
    def code(ctx: Context) -> int:
        if not ready:
            raise Dead("not yet")
        return ctx.token

    ready: list[int] = []
    here = system(code)
    job_id = carry(here)
    here.run_worker()
    assert (here.job(job_id).state, here.job(job_id).error) == (State.DEAD, "not yet")
    ready.append(1)
    here.gateway.redrive("default", job_id)
    here.timers.run()
    here.run_worker()
    assert (here.job(job_id).state, here.job(job_id).result) == (State.SUCCEEDED, "1")


def test_a_message_given_back_unstarted_costs_no_attempt() -> None:
    def code(ctx: Context) -> None:
        raise ConnectionError(f"attempt {ctx.attempt}")

    here = system(code)
    job_id = carry(here, max_attempts=2)
    for _ in range(5):
        here.queues["default"].release(here.queues["default"].lease(1, 30))
    run_all(here)
    assert "attempt 2" in (here.job(job_id).error or "")


def test_a_job_that_kills_its_worker_gets_a_row_that_counts_and_ends_dead() -> None:
    deaths: list[int] = []

    def code(ctx: Context) -> None:
        deaths.append(ctx.attempt)
        raise Crash

    here = system(code)
    job_id = carry(here, max_attempts=3)
    for _ in range(100):
        with suppress(Crash):
            here.run_worker()
        here.clock.sleep(40)
        here.timers.run()
    assert len(deaths) == MOST_DELIVERIES + 3
    assert (here.job(job_id).state, left(here)) == (State.DEAD, 0)
    assert "all 3 attempts are used up" in (here.job(job_id).error or "")


@pytest.mark.parametrize("asked", ["long", "rate"])
def test_what_no_queue_can_delay_waits_on_a_row(asked: str) -> None:
    def code(ctx: Context) -> str:
        if ctx.attempt == 1:
            raise Retry("later", after_seconds=7_200 if asked == "long" else 1)
        return f"attempt {ctx.attempt}, token {ctx.token}"

    here = system(code)
    if asked == "rate":
        here.queue_settings.change("default", {"rate_per_second": 10.0})
    job_id = carry(here)
    here.run_worker()
    row = here.job(job_id)
    assert (row.state, row.attempts, left(here)) == (State.SCHEDULED, 1, 0)
    assert row.due_id is not None
    here.clock.sleep(7_300)
    here.timers.run()
    run_all(here, 5)
    assert here.job(job_id).result == '"attempt 2, token 1"'


def test_a_handed_over_job_is_visible_at_once() -> None:
    starts: list[int] = []

    def code(ctx: Context) -> None:
        starts.append(ctx.attempt)
        if len(starts) == 1:
            raise Stopping

    here = system(code)
    carry(here)
    here.run_worker()
    assert left(here) == 1
    here.run_worker()
    assert (starts, left(here)) == ([1, 1], 0)


@pytest.mark.parametrize(
    "use",
    [
        lambda ctx: ctx.token,
        lambda ctx: ctx.effects.put("Counts", {"id": "1"}),
        lambda ctx: ctx.write(Put(table="Counts", item={"id": "1"}, unless_exists=True)),
        lambda ctx: ctx.checkpoint(1),
    ],
)
def test_what_needs_a_fence_is_refused_and_says_what_to_do(use: Callable[[Context], Any]) -> None:
    here = system(use)
    job_id = carry(here)
    here.run_worker()
    row = here.job(job_id)
    assert row.state is State.DEAD
    assert "submit it with guarantee once" in (row.error or "")
    assert here.ledger.read_item("Counts", {"id": "1"}) is None


def test_what_needs_none_works() -> None:
    def code(ctx: Context) -> Any:
        assert not ctx.stopping
        assert not ctx.cancel_requested
        assert ctx.last_checkpoint is None
        ctx.stop_if_asked()
        return ctx.read("Counts", {"id": "1"})

    here = system(code)
    carry(here)
    here.run_worker()
    assert left(here) == 0


@pytest.mark.parametrize("fails", [lambda ctx: 1 / 0, lambda ctx: object()], ids=["the code", "the result"])
def test_while_its_dead_row_cannot_be_written_it_is_not_acknowledged(fails: Callable[[Context], Any]) -> None:
    here = system(fails, unavailable("register", call=None, where=lambda *_: broken[0]))
    broken = [True]
    job_id = carry(here, max_attempts=1)
    run_all(here, 3)
    assert left(here) == 1
    broken[0] = False
    run_all(here, 3)
    assert (here.job(job_id).state, left(here)) == (State.DEAD, 0)


def test_a_queue_that_takes_nothing_more_still_delays_it() -> None:
    def code(ctx: Context) -> None:
        attempts.append(ctx.attempt)
        if len(attempts) == 1:
            raise ConnectionError

    attempts: list[int] = []
    here = system(code, backoff=Backoff(base_seconds=50.0))
    carry(here)
    here.memory_queues["default"].push = lambda tickets, *_: list(tickets)  # type: ignore[method-assign]
    here.run_worker()
    assert left(here) == 1
    run_all(here, 3)
    assert (attempts, left(here)) == ([1, 1], 0), "uncounted, but not lost"


def test_a_retry_is_a_new_ticket_first_and_then_an_acknowledgement() -> None:
    def code(ctx: Context) -> None:
        raise ConnectionError

    here = system(code, backoff=Backoff(base_seconds=1.0))
    job_id = carry(here)
    (lease,) = here.queues["default"].lease(1, 30)
    before = decode_ticket(lease.body)
    done = here.worker().handle(here.queues["default"], [lease])
    assert done == [lease]
    old, new = (decode_ticket(body) for body in here.memory_queues["default"].bodies())
    assert (old.ticket_id, new.job_id, new.attempts, new.payload) == (before.ticket_id, job_id, 1, "{}")
    assert new.ticket_id != old.ticket_id


def test_an_unknown_name_is_retried_before_it_is_dead() -> None:
    here = system(lambda ctx: None)
    job_id = carry(here, name="os.system", max_attempts=2)
    here.run_worker()
    assert left(here) == 1
    run_all(here, 3)
    assert "no job named 'os.system'" in (here.job(job_id).error or "")


def test_a_second_death_of_the_same_job_changes_nothing() -> None:
    here = system(lambda ctx: 1 / 0)
    job_id = carry(here, max_attempts=1)
    (lease,) = here.queues["default"].lease(1, 30)
    here.worker().handle(here.queues["default"], [lease])
    first = here.job(job_id)
    here.clock.sleep(60)
    run_all(here, 1)
    assert (here.job(job_id), left(here)) == (first, 0)
