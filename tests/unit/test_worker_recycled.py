"""A worker process that some of its own code has crippled ends in good order, to be replaced, and does not claim to be well."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ringfence import App, Context
from ringfence.clock import SystemClock
from ringfence.job import State
from ringfence.memory.queue import MemoryQueue
from ringfence.ports import Lease
from ringfence.process import child
from ringfence.process.child import Child, Limits
from ringfence.process.feed import QueueFeed, Stop
from ringfence.testing.system import MemorySystem

THREADS = 2
TIMEOUT_SECONDS = 0.15
END_SECONDS = 20.0


class Process:
    """One child, run by this process, over queues in memory; its jobs get stuck until the test is over."""

    def __init__(self, let_go: threading.Event, alive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(child.signal, "signal", lambda *_: None)
        monkeypatch.setattr(child, "CHECK_SECONDS", 0.02)
        monkeypatch.setattr("ringfence.crew.LOOK_SECONDS", 0.02)
        monkeypatch.setattr(child, "QueueFeed", partial(QueueFeed, wait_seconds=0.02))
        self.let_go, self.alive = let_go, alive
        self.app = app = App()

        @app.job("stuck", timeout=TIMEOUT_SECONDS, max_attempts=1)
        def stuck(ctx: Context) -> None:
            let_go.wait()

        @app.job("takes_long", timeout="1h")
        def takes_long(ctx: Context) -> None: ...

        @app.job("blocks", timeout=TIMEOUT_SECONDS, max_attempts=1)
        async def blocks(ctx: Context) -> None:
            let_go.wait()  # as no coroutine should

        @app.job("quick", timeout=TIMEOUT_SECONDS)
        def quick(ctx: Context) -> None: ...

        self.system = MemorySystem(app, clock=SystemClock(), queues=["default"], threads=THREADS, lease_seconds=1.0)

    def submit(self, *names: str) -> list[str]:
        job_ids = [self.system.submit(name).job_id for name in names]
        self.system.run_relay()
        return job_ids

    def run(self, grace_seconds: float = 10.0, **limits: Any) -> int:
        """Its exit code."""
        runtime: Any = SimpleNamespace(
            worker=self.system.worker(heartbeats=True),
            queues=self.system.queues,
            telemetry=self.system.telemetry,
            settings=SimpleNamespace(lease_seconds=1.0),
        )
        process = Child(runtime, {"default": THREADS}, Limits(grace_seconds=grace_seconds, liveness_file=self.alive, **limits))
        codes: list[int] = []
        thread = threading.Thread(target=lambda: codes.append(process.run()), daemon=True)
        thread.start()
        thread.join(END_SECONDS)
        assert codes, "it goes on"
        assert self.system.telemetry.named("worker_failed") == []
        return codes[0]

    def reason(self) -> Any:
        (recycled,) = self.system.telemetry.named("worker_recycled")
        return recycled["reason"]


@pytest.fixture
def process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Process]:
    before = set(threading.enumerate())
    let_go = threading.Event()
    yield Process(let_go, tmp_path / "alive", monkeypatch)
    let_go.set()
    for thread in set(threading.enumerate()) - before:
        if thread.name == "ringfence-crew-default":
            thread.join(END_SECONDS)


def test_it_is_recycled_when_as_many_threads_are_abandoned_as_it_has(process: Process) -> None:
    job_ids = process.submit(*["stuck"] * THREADS)
    assert process.run() == 0
    assert process.reason() == "abandoned threads"
    assert {process.system.job(job_id).state for job_id in job_ids} == {State.DEAD}  # at their timeout


def test_one_stuck_thread_is_replaced_and_the_process_goes_on(process: Process) -> None:
    (stuck,) = process.submit("stuck")
    quick = process.submit(*["quick"] * 20)
    assert process.run(max_jobs=21) == 0
    assert process.reason() == "messages"
    assert process.system.job(stuck).state == State.DEAD
    assert {process.system.job(job_id).state for job_id in quick} == {State.SUCCEEDED}


def test_it_is_recycled_when_a_job_blocks_the_event_loop_for_longer_than_any_may_take(process: Process) -> None:
    process.submit("blocks")
    assert process.run() == 0
    assert process.reason() == "blocked event loop"


def test_it_does_not_show_that_it_lives_while_its_event_loop_is_blocked(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "LIVE_SECONDS", 0.1)
    process.app.job("blocks_for_long", timeout="1m")(process.app.jobs["blocks"].function)
    process.submit("blocks_for_long")
    runner = threading.Thread(target=process.run, kwargs={"max_jobs": 1})
    runner.start()
    wait_until(lambda: process.alive.exists() and time.time() - process.alive.stat().st_mtime > 0.5)
    process.let_go.set()
    runner.join(END_SECONDS)
    assert process.reason() == "messages"


@pytest.mark.parametrize("method", ["lease", "extend", "release"])
def test_it_is_recycled_when_a_call_to_a_queue_does_not_come_back(
    process: Process, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    monkeypatch.setattr(child, "HANGING_SECONDS", 0.3)
    process.app.job("fails", max_attempts=2)(refuse)
    process.app.job("holds", timeout="1h")(lambda ctx: process.let_go.wait())
    hang(process, monkeypatch, method)
    process.submit({"extend": "holds", "release": "fails"}.get(method, "quick"))
    assert process.run(grace_seconds=0.5) == 0
    assert process.reason() == "hanging call to a queue"


def refuse(ctx: Context) -> None:
    raise ConnectionError


def hang(process: Process, monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    def call(*_arguments: Any, **_more: Any) -> list[Any]:
        process.let_go.wait()
        return []

    monkeypatch.setattr(process.system.queues["default"], method, call)


def test_what_is_asked_ahead_is_a_call_from_the_first_step(process: Process) -> None:
    class Fused(MemoryQueue):
        def acknowledge_and_lease(self, *_: Any) -> list[Lease]:
            return []

        def ask(self, *_: Any) -> Callable[[], list[Lease]]:
            began.set()
            process.let_go.wait()
            return list

    began = threading.Event()
    feed = QueueFeed(Fused("default", SystemClock()), Stop(SystemClock(), 1.0), lambda _done: None)
    threading.Thread(target=feed.ask, args=([], 1, 1.0)).start()
    assert began.wait(END_SECONDS)
    time.sleep(0.01)
    assert feed.calls.longest_seconds() > 0.0
    process.let_go.set()
    wait_until(lambda: feed.calls.longest_seconds() == 0.0)


def wait_until(look: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + END_SECONDS
    while not look():
        assert time.monotonic() < give_up_at
        time.sleep(0.01)
