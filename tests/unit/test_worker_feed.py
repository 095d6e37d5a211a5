"""A worker that is fed: more messages while others run, acknowledgements as they come, and an orderly end."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from ringfence import App, Context
from ringfence.cli.worker import shares
from ringfence.clock import SystemClock
from ringfence.job import State
from ringfence.process.feed import QueueFeed, Stop
from ringfence.testing.faults import Faulty, unavailable
from ringfence.testing.system import MemorySystem


class Served:
    """A system whose default queue is served by a thread until stopped."""

    def __init__(self, code: Callable[..., Any], *, threads: int = 2, grace_seconds: float = 20.0, wrap: Any = None) -> None:
        app = App()
        app.job("job")(code)
        self.system = MemorySystem(app, clock=SystemClock(), threads=threads, lease_seconds=10.0, wrap=wrap)
        self.stop = Stop(self.system.clock, grace_seconds)
        self.done = 0
        self.all_done = threading.Condition()
        queue = self.system.queues["default"]
        worker = self.system.worker(heartbeats=True)
        self.thread = threading.Thread(target=worker.serve, args=(queue, QueueFeed(queue, self.stop, self.count)), daemon=True)
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


def test_when_it_stops_running_jobs_end_and_what_was_not_started_is_visible_at_once() -> None:
    running, go_on = threading.Semaphore(0), threading.Event()

    def code(ctx: Context) -> bool:
        running.release()
        go_on.wait(20)
        return ctx.stopping

    here = Served(code, threads=1)
    here.submit(5)
    assert running.acquire(timeout=10)
    here.stop.ask()
    deadline = time.monotonic() + 5
    while here.system.memory_queues["default"].depth().leased > 1 and time.monotonic() < deadline:
        time.sleep(0.01)
    assert here.system.memory_queues["default"].depth().ready == 4
    go_on.set()
    here.end()
    states = [job.state for job in here.system.ledger.list_jobs("default", ["default"]).jobs]
    assert sorted(states) == [State.QUEUED] * 4 + [State.SUCCEEDED]
    (ended,) = here.system.ledger.list_jobs("default", ["default"], State.SUCCEEDED).jobs
    assert here.system.job(ended.job_id).result == "true", "it was asked to stop"


def test_a_job_that_does_not_end_in_its_grace_is_handed_over() -> None:
    running, go_on = threading.Event(), threading.Event()

    def code(ctx: Context) -> str:
        if ctx.token == 1:
            running.set()
            go_on.wait(20)
        return f"token {ctx.token}"

    here = Served(code, grace_seconds=5.5)
    (job_id,) = here.submit(1)
    assert running.wait(10)
    here.end()
    row = here.system.job(job_id)
    assert (row.state, row.attempts) == (State.QUEUED, 0)
    go_on.set()
    here.system.run_worker()
    assert here.system.job(job_id).result == '"token 2"'


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
    system = MemorySystem(app, clock=SystemClock(), threads=1)
    queue, stop = Faulty(system.memory_queues["default"], []), Stop(system.clock, 20.0)
    for _ in range(2):
        system.submit("short")
    system.run_relay()
    thread = threading.Thread(
        target=system.worker(heartbeats=True).serve, args=(queue, QueueFeed(queue, stop, lambda _: None)), daemon=True
    )
    thread.start()
    assert running.wait(10)
    leased, extended = queue.calls_of("lease")[0], queue.calls_of("extend")[0]
    assert (leased.args[1], extended.args[1]) == (500.0, 2.0)
    assert len(extended.args[0]) == 2
    go_on.set()
    stop.ask()
    thread.join(20)
