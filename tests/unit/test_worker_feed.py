"""A worker that is fed: more messages while others run, acknowledgements as they come, and an orderly end."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from ringfence import App, Context, coroutines
from ringfence.cli.worker import shares
from ringfence.clock import SystemClock
from ringfence.errors import Unavailable
from ringfence.job import State
from ringfence.ports import Lease
from ringfence.process.feed import QueueFeed, Stop
from ringfence.retry import Backoff
from ringfence.testing.faults import Faulty, unavailable
from ringfence.testing.system import MemorySystem


class Served:
    """A system whose default queue is served by a thread until stopped."""

    def __init__(
        self,
        code: Callable[..., Any],
        *,
        threads: int = 2,
        grace_seconds: float = 20.0,
        wrap: Any = None,
        before: int = 0,
        other_lease: float | None = None,
        **options: Any,
    ) -> None:
        """``before`` jobs are submitted before the worker looks; ``other_lease`` is that of another job, which never comes."""
        app = App()
        app.job("job", **options)(code)
        if other_lease is not None:
            app.job("other", lease=other_lease)(lambda ctx: None)
        self.system = MemorySystem(app, clock=SystemClock(), threads=threads, lease_seconds=10.0, wrap=wrap)
        self.stop = Stop(self.system.clock, grace_seconds)
        self.done = 0
        self.all_done = threading.Condition()
        queue = self.system.queues["default"]
        worker = self.system.worker(heartbeats=True)
        self.submit(before)
        self.feed = QueueFeed(queue, self.stop, self.count, wait_seconds=0.02)
        self.thread = threading.Thread(target=worker.serve, args=(queue, self.feed), daemon=True)
        self.thread.start()

    def count(self, done: int) -> None:
        with self.all_done:
            self.done += done
            self.all_done.notify_all()

    def submit(self, count: int) -> list[str]:
        job_ids = [self.system.submit("job").job_id for _ in range(count)]
        self.system.run_relay()
        return job_ids

    def wait_done(self, count: int) -> None:
        with self.all_done:
            assert self.all_done.wait_for(lambda: self.done >= count, 20)

    def end(self) -> None:
        self.stop.ask()
        self.thread.join(20)
        assert not self.thread.is_alive()


def test_jobs_are_taken_as_they_come_and_acknowledged_while_others_run() -> None:
    slow = threading.Event()

    def code(ctx: Context) -> None:
        if ctx.job_id == first:
            slow.wait(20)

    here = Served(code)
    (first,) = here.submit(1)
    others = here.submit(30)
    here.wait_done(30)
    assert {here.system.job(job_id).state for job_id in others} == {State.SUCCEEDED}
    assert here.system.job(first).state is State.RUNNING
    slow.set()
    here.wait_done(31)
    here.end()
    assert here.system.memory_queues["default"].bodies() == []


class Stuck:
    """Jobs of one thread that are short until the eighth: it is the first of a batch of eight, and stays until let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("ringfence.intake.FETCHED_SECONDS", 20.0)  # short on any machine
        self.stuck, self.go_on = threading.Event(), threading.Event()
        self.started = 0
        self.here = Served(self.code, threads=1, before=15)

    def code(self, ctx: Context) -> bool:
        self.started += 1
        if self.started == 8:
            self.stuck.set()
            while not (ctx.stopping or self.go_on.wait(0.01)):
                pass
        return ctx.stopping


def test_when_it_stops_running_jobs_end_and_what_was_not_started_is_visible_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    jobs = Stuck(monkeypatch)
    assert jobs.stuck.wait(10)
    queue = jobs.here.system.memory_queues["default"]
    assert queue.depth().leased >= 8
    jobs.here.end()
    assert (queue.depth().ready, queue.depth().leased, jobs.started) == (7, 0, 8)
    results = [
        jobs.here.system.job(job.job_id).result for job in jobs.here.system.ledger.list_jobs("default", ["default"]).jobs
    ]
    assert sorted(map(str, results)) == ["None"] * 7 + ["false"] * 7 + ["true"], "the eighth was asked to stop"


def test_what_no_thread_comes_to_goes_back_to_the_queue(monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = Stuck(monkeypatch)
    assert jobs.stuck.wait(10)
    queue = jobs.here.system.memory_queues["default"]
    eventually(lambda: queue.depth().ready == 7)
    assert queue.depth().leased == 1
    jobs.go_on.set()
    jobs.here.wait_done(15)
    jobs.here.end()


def eventually(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_job_that_does_not_end_in_its_grace_is_handed_over() -> None:
    running, go_on = threading.Event(), threading.Event()

    def code(ctx: Context) -> str:
        if ctx.token == 1:
            running.set()
            go_on.wait(20)
        return f"token {ctx.token}"

    here = Served(code, grace_seconds=0.8)
    (job_id,) = here.submit(1)
    assert running.wait(10)
    here.end()
    row = here.system.job(job_id)
    assert (row.state, row.attempts) == (State.QUEUED, 0)
    go_on.set()
    here.system.run_worker()
    assert here.system.job(job_id).result == '"token 2"'


def test_a_grace_that_is_shorter_than_the_time_between_two_looks_is_looked_at_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringfence.crew.LOOK_SECONDS", 60.0)
    running, go_on = threading.Event(), threading.Event()

    class StoppedWhileItLooks(Served):
        def count(self, done: int) -> None:
            super().count(done)
            if threading.current_thread() is self.thread:
                running.wait(10)
                self.stop.ask()

    def code(ctx: Context) -> None:
        running.set()
        go_on.wait(20)

    here = StoppedWhileItLooks(code, before=1, grace_seconds=0.8)
    here.system.telemetry.wait_for("job_handed_over")
    here.thread.join(10)
    assert not here.thread.is_alive()
    go_on.set()


class Ceiling:
    """A queue that keeps a hundred messages in flight, most of them elsewhere. Beyond that it says so, as SQS does to a short
    poll, or looks empty, as it does to a long one."""

    def __init__(self, queue: Any, *, says_so: bool) -> None:
        self._queue, self._says_so = queue, says_so
        self.elsewhere = 100
        self.refused = self.most_fetched = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)

    def lease(self, max_tickets: int, lease_seconds: float, wait_seconds: float = 0.0) -> list[Lease]:
        room = 100 - self.elsewhere - self._queue.depth().leased
        if room <= 0:
            self.refused += 1
            if self._says_so:
                raise Unavailable("OverLimit", retry_after_seconds=1.0)
            return []
        leases: list[Lease] = self._queue.lease(min(room, max_tickets), lease_seconds, wait_seconds)
        self.most_fetched = max(self.most_fetched, len(leases))
        return leases


@pytest.mark.parametrize("says_so", [True, False], ids=["says so", "looks empty"])
def test_c48_at_the_ceiling_of_what_is_in_flight_work_waits_and_goes_on_as_others_acknowledge(says_so: bool) -> None:
    ceilings: list[Ceiling] = []

    def wrap(name: str, port: Any) -> Any:
        if name != "queue:default":
            return port
        ceilings.append(Ceiling(port, says_so=says_so))
        return ceilings[-1]

    here = Served(lambda ctx: None, wrap=wrap, before=50)
    (queue,) = ceilings
    eventually(lambda: queue.refused > 1)
    assert (queue.depth().ready, here.done) == (50, 0), "the backlog is seen"
    queue.elsewhere = 90
    here.wait_done(50)
    here.end()
    assert queue.most_fetched <= 10
    assert bool(here.system.telemetry.named("queue_unreachable")) == says_so


def test_a_queue_out_of_reach_is_tried_again() -> None:
    faulty: list[Faulty] = []

    def wrap(name: str, port: Any) -> Any:
        if name != "queue:default":
            return port
        faulty.append(Faulty(port, [unavailable("lease", call=1), unavailable("acknowledge", call=1)]))
        return faulty[-1]

    here = Served(lambda ctx: None, wrap=wrap)
    jobs = here.submit(3)
    here.wait_done(3)
    here.end()
    assert {here.system.job(job_id).state for job_id in jobs} == {State.SUCCEEDED}
    assert {fault.method for fault in faulty[0].fired} == {"lease", "acknowledge"}


@pytest.mark.parametrize(
    ("weights", "threads", "given"),
    [
        ({"a": 1}, 8, {"a": 8}),
        ({"payments": 4, "default": 1}, 10, {"payments": 8, "default": 2}),
        ({"payments": 4, "default": 1}, 8, {"payments": 6, "default": 2}),
        ({"a": 100, "b": 1}, 4, {"a": 3, "b": 1}),
        ({"a": 1, "b": 1, "c": 1}, 2, {"a": 1, "b": 1, "c": 1}),
    ],
)
def test_threads_are_shared_by_weight_and_none_goes_without(
    weights: dict[str, int], threads: int, given: dict[str, int]
) -> None:
    assert shares(weights, threads) == given


def test_each_message_gets_the_lease_of_its_own_job_at_once() -> None:
    running, go_on = threading.Event(), threading.Event()

    def code(ctx: Context) -> None:
        running.set()
        go_on.wait(20)

    app = App()
    app.job("short", lease="2s")(code)
    app.job("long", lease="500s")(lambda ctx: None)
    system = MemorySystem(app, clock=SystemClock(), threads=2)
    queue, stop = Faulty(system.memory_queues["default"], []), Stop(system.clock, 20.0)
    for _ in range(2):
        system.submit("short")
    system.run_relay()
    feed = QueueFeed(queue, stop, lambda _: None, wait_seconds=0.02)
    thread = threading.Thread(target=system.worker(heartbeats=True).serve, args=(queue, feed), daemon=True)
    thread.start()
    assert running.wait(10)
    leased, extended = queue.calls_of("lease")[0], queue.calls_of("extend")[0]
    assert (leased.args[1], extended.args[1]) == (500.0, 2.0)
    assert len(extended.args[0]) == 2
    go_on.set()
    stop.ask()
    thread.join(20)


def test_a_coroutine_that_times_out_is_cancelled_where_it_waits_and_all_share_one_loop() -> None:
    cancelled, loops = threading.Event(), set()

    async def code(ctx: Context) -> str:
        loops.add(asyncio.get_running_loop())
        if ctx.attempt == 1:
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                cancelled.set()
                raise
        return "in time"

    here = Served(code, before=2, timeout=0.2, backoff=Backoff(base_seconds=0.01))
    assert cancelled.wait(10)
    here.wait_done(2)
    here.end()
    jobs = here.system.ledger.list_jobs("default", ["default"]).jobs
    assert [(job.state, job.attempts, here.system.job(job.job_id).result) for job in jobs] == [
        (State.SUCCEEDED, 2, '"in time"')
    ] * 2
    assert len(loops) == 1


def test_a_coroutine_that_wants_the_process_to_exit_ends_only_its_attempt() -> None:
    async def code(ctx: Context) -> str:
        if ctx.attempt == 1:
            raise SystemExit(3)
        return "went on"

    here = Served(code, before=1, backoff=Backoff(base_seconds=0.01))
    here.wait_done(1)
    here.end()
    (job,) = here.system.ledger.list_jobs("default", ["default"]).jobs
    assert (here.system.job(job.job_id).result, job.attempts) == ('"went on"', 2)


@pytest.mark.parametrize("how", ["blocks", "stops"])
def test_a_coroutine_that_keeps_the_loop_from_coming_round_takes_only_itself_along(how: str) -> None:
    go_on, began = threading.Event(), threading.Event()

    async def code(ctx: Context) -> str:
        if ctx.job_id != first:
            return "done"
        if how == "blocks":
            began.set()
            go_on.wait(20)
        else:
            asyncio.get_running_loop().stop()
            began.set()
        return "went on"

    here = Served(code, threads=4, timeout=4.0, max_attempts=1)
    (first,) = here.submit(1)
    assert began.wait(10)
    others = here.submit(6)
    here.wait_done(6)
    assert how == "stops" or coroutines.given_up() > 0
    go_on.set()
    here.wait_done(7)
    here.end()
    assert {here.system.job(job_id).result for job_id in others} == {'"done"'}
    assert here.system.job(first).result == '"went on"'
    eventually(lambda: coroutines.given_up() == 0)


def test_a_coroutine_that_exits_from_a_task_of_its_own_takes_nobody_along() -> None:
    async def exits() -> None:
        raise SystemExit(3)

    async def code(ctx: Context) -> str:
        if ctx.job_id == first:
            await asyncio.gather(exits())
        await asyncio.sleep(0.05)
        return "done"

    here = Served(code, threads=4, timeout=1.0, max_attempts=1)
    (first,) = here.submit(1)
    others = here.submit(6)
    here.wait_done(7)
    here.end()
    assert {here.system.job(job_id).result for job_id in others} == {'"done"'}
    assert here.system.job(first).state is State.DEAD


def test_one_that_was_cancelled_while_the_loop_was_blocked_never_begins() -> None:
    blocking, go_on, began = threading.Event(), threading.Event(), threading.Event()

    async def blocks() -> None:
        blocking.set()
        go_on.wait(20)

    async def other() -> None:
        began.set()

    blocker, running = coroutines.Running(blocks(), 60.0), None
    assert blocking.wait(10)
    inner = other()
    running = coroutines.Running(inner, 60.0)
    running.cancel()
    go_on.set()
    blocker.result()
    coroutines.Running(blocks(), 60.0).result()  # the loop has come round
    assert not began.is_set()
    inner.close()


def test_a_job_whose_thread_cannot_be_replaced_is_decided_all_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    stuck, go_on = threading.Event(), threading.Event()
    start = threading.Thread.start

    def starts(thread: threading.Thread) -> None:
        if stuck.is_set() and thread.name.startswith("ringfence-crew"):
            raise RuntimeError("can't start new thread")
        start(thread)

    def code(ctx: Context) -> str:
        if not stuck.is_set():
            stuck.set()
            go_on.wait(20)
        return "by the thread that came back"

    monkeypatch.setattr(threading.Thread, "start", starts)
    here = Served(code, threads=1, before=2, timeout=0.2, backoff=Backoff(base_seconds=0.01))
    assert stuck.wait(10)
    eventually(lambda: bool(here.system.telemetry.named("job_retried")))
    go_on.set()
    here.wait_done(2)
    here.end()
    assert here.system.telemetry.named("thread_not_started")
    jobs = here.system.ledger.list_jobs("default", ["default"]).jobs
    assert {here.system.job(job.job_id).result for job in jobs} == {'"by the thread that came back"'}


def test_a_thread_that_is_stuck_beyond_its_timeout_is_replaced() -> None:
    stuck, go_on = threading.Event(), threading.Event()

    def code(ctx: Context) -> str:
        if not stuck.is_set():
            stuck.set()
            go_on.wait(20)
        return "by another thread"

    here = Served(code, threads=1, before=3, timeout=0.2, backoff=Backoff(base_seconds=0.01))
    assert stuck.wait(10)
    here.wait_done(3)
    here.end()
    go_on.set()
    jobs = here.system.ledger.list_jobs("default", ["default"]).jobs
    assert {here.system.job(job.job_id).result for job in jobs} == {'"by another thread"'}


def test_a_crew_that_can_start_no_thread_ends_loudly(monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def starts(thread: threading.Thread) -> None:
        if thread.name.startswith("ringfence-crew"):
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", starts)
    system = MemorySystem(App(), clock=SystemClock(), threads=2)
    queue = system.queues["default"]
    feed = QueueFeed(queue, Stop(system.clock, 5.0), lambda done: None, wait_seconds=0.02)
    with pytest.raises(RuntimeError, match="no thread could be started for the messages of queue default"):
        system.worker().serve(queue, feed)


def test_a_thread_that_comes_back_before_another_could_be_started_keeps_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    stuck, go_on, ended = threading.Event(), threading.Event(), threading.Event()
    start = threading.Thread.start

    def starts(thread: threading.Thread) -> None:
        if stuck.is_set() and thread.name.startswith("ringfence-crew"):
            go_on.set()
            assert ended.wait(10)
            time.sleep(0.05)  # it finds that its job was decided beside it
            raise RuntimeError("can't start new thread")
        start(thread)

    def code(ctx: Context) -> None:
        if not stuck.is_set():
            stuck.set()
            go_on.wait(20)
            ended.set()

    monkeypatch.setattr(threading.Thread, "start", starts)
    here = Served(code, threads=1, before=3, timeout=0.2, backoff=Backoff(base_seconds=0.01))
    here.wait_done(3)
    here.end()


def test_a_thread_is_counted_as_abandoned_until_it_comes_back() -> None:
    stuck, go_on = threading.Event(), threading.Event()

    def code(ctx: Context) -> None:
        if not stuck.is_set():
            stuck.set()
            go_on.wait(20)

    here = Served(code, threads=2, before=1, timeout=0.1, backoff=Backoff(base_seconds=0.01))
    eventually(lambda: here.feed.abandoned == 1)
    go_on.set()
    eventually(lambda: here.feed.abandoned == 0)
    here.wait_done(1)
    here.end()


def test_what_goes_wrong_with_the_last_acknowledgement_ends_the_worker_loudly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringfence.intake.Intake.errand_done", lambda intake: None)  # it is the last, and the only one

    def acknowledge(_leases: Any) -> None:
        raise TypeError("nobody thought of this")

    app = App()
    app.job("job")(lambda ctx: stop.ask())
    system = MemorySystem(app, clock=SystemClock(), threads=1)
    stop = Stop(system.clock, 5.0)
    system.submit("job")
    system.run_relay()
    queue = system.memory_queues["default"]
    queue.acknowledge = acknowledge  # type: ignore[method-assign]
    with pytest.raises(TypeError, match="nobody thought of this"):
        system.worker().serve(queue, QueueFeed(queue, stop, lambda done: None, wait_seconds=0.02))
