"""Keeping a lease while a job runs, and losing it: the heartbeat, the timeout, the late commit (must hold 3 and 4)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from ringfence import App, Context
from ringfence.app import JobSpec
from ringfence.errors import LeaseLost, Unavailable
from ringfence.job import State
from ringfence.lease import Heartbeat
from ringfence.memory.clock import ManualClock
from ringfence.ownership import Hold
from ringfence.ports import Lease
from ringfence.testing.faults import Call, Fault, Faulty, reply_lost, unavailable
from ringfence.testing.system import MemorySystem

UNIT_SECONDS = 10.0
"""The visibility; the job takes five."""


class LongJob:
    """A job that runs until the test lets it end, and a system whose time only the test moves."""

    def __init__(self, *, timeout: str = "10m", wrap: Any = None, at_end: Callable[[Context], None] = lambda ctx: None) -> None:
        self.entered, self.may_end = threading.Semaphore(0), threading.Event()
        self.raised: list[BaseException] = []
        app = App()

        @app.job("long", timeout=timeout)
        def long(ctx: Context) -> str:
            self.entered.release()
            self.may_end.wait(20)
            at_end(ctx)
            try:
                ctx.progress(1, 1)
            except LeaseLost as lost:
                self.raised.append(lost)
                raise
            return f"by token {ctx.token}"

        self.clock = ManualClock()
        self.system = MemorySystem(app, clock=self.clock, lease_seconds=UNIT_SECONDS, wrap=wrap)
        self.job_id = self.system.submit("long").job_id
        self.system.run_relay()
        self.done: list[Lease] = []

    def start(self, name: str, *, heartbeats: bool) -> threading.Thread:
        """A worker that leases one message and works on it in a thread of its own."""
        worker = self.system.worker(name, heartbeats=heartbeats)
        self.leased = leases = self.system.queues["default"].lease(1, UNIT_SECONDS)
        assert leases

        def work() -> None:
            self.done += worker.handle(self.system.queues["default"], leases)

        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        assert self.entered.acquire(timeout=10)
        return thread

    def pass_time(self, seconds: float) -> None:
        """Time goes by in small steps, each given to the heartbeat, as it would be in life."""
        for _ in range(int(seconds)):
            self.clock.wait_for_waiters()
            self.clock.advance(1.0)


def test_a_job_of_five_units_is_kept_under_a_visibility_of_one() -> None:
    here = LongJob()
    thread = here.start("a", heartbeats=True)
    for _ in range(5):
        here.pass_time(UNIT_SECONDS)
        assert here.system.queues["default"].lease(1, UNIT_SECONDS) == []
    row = here.system.job(here.job_id)
    assert row.lease_until is not None
    assert row.lease_until > here.clock.now()
    here.may_end.set()
    thread.join(10)
    row = here.system.job(here.job_id)
    assert (row.state, row.token, row.result, len(here.done)) == (State.SUCCEEDED, 1, '"by token 1"', 1)
    assert row.version <= 2 + 2 * 5 + 1, "more than two row writes per lease"


def test_c28_without_heartbeats_a_second_worker_takes_over_and_the_first_ones_late_commit_is_refused() -> None:
    here = LongJob()
    first = here.start("a", heartbeats=False)
    here.clock.advance(UNIT_SECONDS + 1)
    second = here.start("b", heartbeats=False)
    assert (here.system.job(here.job_id).token, here.system.job(here.job_id).worker) == (2, "b")
    here.may_end.set()
    first.join(10)
    second.join(10)
    row = here.system.job(here.job_id)
    assert (row.state, row.result, row.token) == (State.SUCCEEDED, '"by token 2"', 2)
    assert [past.outcome for past in row.history] == ["lost", "succeeded"]
    (refused,) = here.system.telemetry.named("late_write_refused")
    assert (refused["held_token"], refused["current_token"]) == (1, 2)
    assert [lease.deliveries for lease in here.done] == [2], "only the second worker may acknowledge"


def test_a_heartbeat_notices_that_another_owns_the_job_and_the_jobs_next_call_raises() -> None:
    here = LongJob()
    first = here.start("a", heartbeats=True)
    here.clock.wait_for_waiters()
    here.system.memory_queues["default"].release(here.leased, 0.0)  # the queue has given the ticket away
    second = here.start("b", heartbeats=False)
    here.pass_time(UNIT_SECONDS)
    here.system.telemetry.wait_for("late_write_refused")
    here.pass_time(3 * UNIT_SECONDS)
    here.may_end.set()
    first.join(10)
    second.join(10)
    (refused,) = here.system.telemetry.named("late_write_refused")
    assert refused["purpose"] == "heartbeat"
    assert len(here.raised) == 1
    assert here.system.job(here.job_id).result == '"by token 2"'
    assert [lease.deliveries for lease in here.done] == [2]


def test_c32_a_cancel_asks_the_running_job_to_stop_with_a_heartbeat_and_what_commits_first_stays() -> None:
    stopped: list[bool] = []
    here = LongJob(at_end=lambda ctx: stopped.append(ctx.stopping and ctx.cancel_requested))
    thread = here.start("a", heartbeats=True)
    here.system.gateway.cancel("default", here.job_id)
    here.pass_time(UNIT_SECONDS)
    here.may_end.set()
    thread.join(10)
    assert stopped == [True]
    assert here.system.job(here.job_id).state is State.SUCCEEDED


def test_a_stuck_job_cannot_hold_its_lease_beyond_its_timeout() -> None:
    here = LongJob(timeout="25s")
    thread = here.start("a", heartbeats=True)
    here.pass_time(25)
    thread.join(10)
    row = here.system.job(here.job_id)
    assert row.state is State.QUEUED
    assert row.error == "timed out after 25 s"
    assert here.done == []
    here.clock.advance(5)
    second = here.start("b", heartbeats=False)
    here.may_end.set()
    second.join(10)
    row = here.system.job(here.job_id)
    assert (row.state, row.result) == (State.SUCCEEDED, '"by token 2"')


def test_c13_a_job_longer_than_the_ceiling_of_a_lease_ends_with_its_reason_before_it_and_not_for_ever() -> None:
    """No timeout may be above what one receive of a message lasts, so a lease never ends under an owner that is well."""
    here = LongJob(timeout="11s")
    here.system.memory_queues["default"].max_lease_seconds = 12.0
    for attempt in range(1, 6):
        thread = here.start("a", heartbeats=True)
        here.pass_time(11)
        thread.join(10)
        row = here.system.job(here.job_id)
        assert row.token == attempt
        assert "timed out after 11 s" in (row.error or "")
        here.clock.advance(1_000)
    assert row.state is State.DEAD
    assert len(here.done) == 1, "the ticket is acknowledged with the last attempt"
    assert here.system.telemetry.named("late_write_refused") == []
    here.may_end.set()


def test_c15_whoever_commits_too_late_acknowledges_nothing_and_harms_nobody_with_an_old_receipt() -> None:
    here = LongJob()
    queue = here.system.queues["default"]
    first, late = here.start("a", heartbeats=False), here.leased
    here.clock.advance(UNIT_SECONDS + 1)
    second = here.start("b", heartbeats=False)
    queue.acknowledge(late)
    assert queue.extend(late, UNIT_SECONDS) == late
    assert len(here.system.memory_queues["default"].bodies()) == 1
    here.may_end.set()
    first.join(10)
    second.join(10)
    assert here.system.job(here.job_id).result == '"by token 2"'
    assert here.done == here.leased
    queue.acknowledge(here.done)
    queue.acknowledge(late)
    queue.release(late)
    assert here.system.memory_queues["default"].bodies() == []


def in_front_of(port_name: str, *script: Fault) -> Any:
    return lambda name, port: Faulty(port, script) if name == port_name else port


def commits(change: Any, *_: Any, **__: Any) -> bool:
    return bool(change.leads_to is State.SUCCEEDED)


def test_a_commit_whose_reply_is_lost_is_recognised_as_our_own() -> None:
    here = LongJob(wrap=in_front_of("ledger", reply_lost("write", where=commits)))
    thread = here.start("a", heartbeats=False)
    here.may_end.set()
    thread.join(10)
    row = here.system.job(here.job_id)
    assert (row.state, row.token, len(here.done)) == (State.SUCCEEDED, 1, 1)
    assert here.system.telemetry.named("late_write_refused") == []


def test_c35_conflicts_and_throttles_are_waited_out_under_a_live_lease() -> None:
    here = LongJob(wrap=in_front_of("ledger", *(unavailable("write", call=n, where=commits) for n in range(1, 6))))
    thread = here.start("a", heartbeats=True)
    here.may_end.set()
    thread.join(10)
    assert here.system.job(here.job_id).state is State.SUCCEEDED
    assert here.system.job(here.job_id).attempts == 1


def test_c35_when_the_patience_is_spent_the_job_is_released_not_failed() -> None:
    here = LongJob(wrap=in_front_of("ledger", unavailable("write", call=None, where=commits)))
    thread = here.start("a", heartbeats=False)
    here.may_end.set()
    thread.join(10)
    row = here.system.job(here.job_id)
    assert (row.state, row.attempts) == (State.QUEUED, 0)
    assert "too busy" in (row.error or "")
    assert here.done == []
    assert here.system.telemetry.named("outcome_undecided")


def test_c29_an_owner_whose_commit_meets_a_conflict_while_another_takes_over_is_refused() -> None:
    rescued: list[threading.Thread] = []

    def take_over(_call: Call) -> None:
        here.clock.advance(UNIT_SECONDS + 1)
        rescued.append(here.start("b", heartbeats=False))
        raise Unavailable("conflict", retry_after_seconds=0.01)

    here = LongJob(wrap=in_front_of("ledger", Fault(method="write", act=take_over, when="before", where=commits)))
    owner = here.start("a", heartbeats=False)
    here.may_end.set()
    owner.join(10)
    rescued[0].join(10)
    row = here.system.job(here.job_id)
    assert (row.state, row.token, row.result) == (State.SUCCEEDED, 2, '"by token 2"')
    assert [past.outcome for past in row.history] == ["lost", "succeeded"]
    assert [lease.deliveries for lease in here.done] == [2]
    assert here.system.telemetry.named("job_dead") == []


def test_a_fault_of_the_machinery_is_told_and_costs_only_its_own_message() -> None:
    here = LongJob()
    here.system.quarantine.put = _break  # type: ignore[method-assign]
    here.system.memory_queues["default"].put("hello")
    here.may_end.set()
    assert here.system.run_worker() == 2
    assert here.system.telemetry.named("message_failed")
    assert len(here.system.memory_queues["default"].bodies()) == 1


def _break(*_: Any, **__: Any) -> Any:
    raise OSError("the disk is full")


@pytest.mark.parametrize("threads", [1, 4])
def test_a_batch_runs_as_many_jobs_at_once_as_it_has_threads(threads: int) -> None:
    at_once, most, lock = 0, 0, threading.Lock()
    everyone = threading.Barrier(threads)
    app = App()

    @app.job("meet")
    def meet(ctx: Context) -> None:
        nonlocal at_once, most
        with lock:
            at_once += 1
            most = max(most, at_once)
        everyone.wait(10)
        with lock:
            at_once -= 1

    system = MemorySystem(app, threads=threads)
    for _ in range(8):
        system.submit("meet")
    system.run_relay()
    system.run_worker()
    assert most == threads


def test_a_timeout_whose_outcome_cannot_be_written_still_ends_the_batch() -> None:
    here = LongJob(timeout="25s")
    thread = here.start("a", heartbeats=True)
    here.system.memory_ledger.write = _break  # type: ignore[method-assign]
    here.pass_time(25)
    thread.join(10)
    assert not thread.is_alive()
    assert here.done == []
    assert here.system.telemetry.named("message_failed")


@pytest.mark.parametrize("what", ["row", "queue"])
def test_a_heartbeat_that_fails_tells_where_and_not_what_it_met(what: str) -> None:
    """The message may quote what was to be written."""
    here = LongJob()
    thread = here.start("a", heartbeats=True)
    with pytest.MonkeyPatch.context() as patch:
        store: Any = here.system.memory_ledger if what == "row" else here.system.memory_queues["default"]
        patch.setattr(store, "write" if what == "row" else "extend", _break)
        here.pass_time(int(UNIT_SECONDS) - 1)
        told = here.system.telemetry.wait_for("heartbeat_failed")
    here.may_end.set()
    thread.join(10)
    assert {"job_id" in each for each in told} == {what == "row"}
    assert {each["reason"] for each in told} == {f"OSError at test_lease.py:{_break.__code__.co_firstlineno + 1} in _break"}


def test_a_heartbeat_that_fails_goes_on_beating() -> None:
    here = LongJob()
    extend = here.system.memory_queues["default"].extend
    thread = here.start("a", heartbeats=True)
    here.system.memory_queues["default"].extend = _break  # type: ignore[method-assign]
    here.pass_time(4)
    here.system.telemetry.wait_for("heartbeat_failed")
    here.system.memory_queues["default"].extend = extend  # type: ignore[method-assign]
    here.pass_time(UNIT_SECONDS)
    assert here.system.memory_queues["default"].lease(1, 1) == []
    here.may_end.set()
    thread.join(10)
    assert here.system.job(here.job_id).token == 1


class SlowRow(Hold):
    """A hold whose row takes for ever to be renewed."""

    def __init__(self, lease: Lease, let_go: threading.Event) -> None:
        super().__init__(lease, _spec(), UNIT_SECONDS, 0.0)
        self._let_go, self.renewing = let_go, threading.Event()

    def wants_renewal(self, now: float, *, lost: bool) -> bool:
        return True

    def renew(self) -> None:
        self.renewing.set()
        self._let_go.wait(20)


def _spec() -> JobSpec:
    app = App()
    app.job("long", timeout="10m")(lambda ctx: None)
    return app.jobs["long"]


def test_a_row_that_takes_long_to_be_renewed_costs_no_neighbour_its_lease() -> None:
    here, let_go = LongJob(), threading.Event()
    queue = Faulty(here.system.memory_queues["default"], [])
    slow, other = (Lease("", receipt, 1, receipt, "default") for receipt in ("slow", "other"))
    hold = SlowRow(slow, let_go)
    heartbeat = Heartbeat(
        queue,
        here.system.services,
        shortest_lease_seconds=UNIT_SECONDS,
        held=lambda: ([(other, UNIT_SECONDS)], [hold]),
        on_lost=lambda _: None,
        on_timeout=lambda _: None,
    )
    heartbeat.start()
    here.clock.wait_for_waiters()
    for _ in range(3):
        here.clock.advance(UNIT_SECONDS / 2)
        here.clock.wait_for_waiters()
    assert hold.renewing.is_set()
    assert len(queue.calls_of("extend")) >= 4
    heartbeat.stop()
    let_go.set()
