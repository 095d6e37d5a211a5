"""The heartbeat itself: it looks at what is held when it is time to, and is told only of what cannot wait."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ringfence import App
from ringfence.clock import SystemClock
from ringfence.lease import Heartbeat
from ringfence.ownership import Hold
from ringfence.ports import Lease
from ringfence.testing.system import MemorySystem

LONG_SECONDS = 30.0
"""Nothing is renewed within a test, unless it is shorter."""


def lease(receipt: str) -> Lease:
    return Lease("{}", receipt, 1, receipt, "default")


class Held:
    """A heartbeat in real time, what it finds, and what it does."""

    def __init__(self) -> None:
        self.waiting: list[tuple[Lease, float]] = []
        self.running: list[Hold] = []
        self.looks = 0
        self.extended: list[str] = []
        self.changed = threading.Condition()
        self.timed_out = threading.Event()
        self.lost: set[str] = set()
        self.may_extend = threading.Event()
        self.may_extend.set()
        self.app = App()
        system = MemorySystem(self.app, clock=SystemClock())
        self.clock = system.clock
        queue: Any = system.memory_queues["default"]
        queue.extend = self.extend
        self.heartbeat = Heartbeat(
            queue,
            system.services,
            shortest_lease_seconds=0.3,
            held=self.look,
            on_lost=self.lost.update,
            on_timeout=lambda _: self.timed_out.set(),
        )

    def look(self) -> tuple[Sequence[tuple[Lease, float]], Sequence[Hold]]:
        self.looks += 1
        return list(self.waiting), list(self.running)

    def extend(self, leases: Sequence[Lease], seconds: float) -> list[Lease]:
        with self.changed:
            self.extended += [each.receipt for each in leases]
            self.changed.notify_all()
        self.may_extend.wait(10)
        return [each for each in leases if each.receipt == "gone"]

    def wait_extended(self, receipt: str, times: int = 1) -> bool:
        with self.changed:
            return self.changed.wait_for(lambda: self.extended.count(receipt) >= times, 5)

    def hold(self, receipt: str, timeout_seconds: float, lease_seconds: float = LONG_SECONDS) -> Hold:
        name = f"job-{receipt}"
        self.app.job(name, timeout=timeout_seconds)(lambda ctx: None)
        return Hold(lease(receipt), self.app.jobs[name], lease_seconds, self.clock.monotonic())


@contextmanager
def beating(held: Held) -> Iterator[Heartbeat]:
    held.heartbeat.start()
    try:
        yield held.heartbeat
    finally:
        held.may_extend.set()
        held.heartbeat.stop()


def test_one_with_nothing_to_keep_is_told_when_it_has_and_keeps_it_from_then_on() -> None:
    held = Held()
    with beating(held) as heartbeat:
        held.waiting.append((lease("a"), 0.3))
        heartbeat.expect(held.clock.monotonic())
        assert held.wait_extended("a", times=3)


def test_one_that_sleeps_until_a_long_lease_is_due_is_told_of_a_short_one() -> None:
    held = Held()
    held.waiting.append((lease("long"), LONG_SECONDS))
    with beating(held) as heartbeat:
        held.waiting.append((lease("short"), 0.3))
        heartbeat.expect(held.clock.monotonic())
        assert held.wait_extended("short")


def test_a_timeout_that_comes_before_the_next_renewal_is_not_slept_through() -> None:
    held = Held()
    with beating(held) as heartbeat:
        held.running.append(held.hold("a", timeout_seconds=0.2))
        heartbeat.expect_end(held.running[0])
        assert held.timed_out.wait(5)


def test_what_comes_while_it_finds_out_how_long_it_may_sleep_is_not_slept_through() -> None:
    held = Held()
    hold = held.hold("a", timeout_seconds=0.2)

    def look() -> Any:
        held.looks += 1
        if held.looks == 2:  # the first was for the renewal at the start
            held.running.append(hold)
            held.heartbeat.expect_end(hold)
            return [], []
        return [], list(held.running)

    held.look = look  # type: ignore[method-assign]
    held.heartbeat._held = look
    with beating(held):
        assert held.timed_out.wait(5)


def test_what_is_being_settled_is_kept_beyond_its_timeout() -> None:
    held = Held()
    late = held.hold("late", timeout_seconds=0.001, lease_seconds=0.3)
    held.running.append(late)
    assert late.take_outcome()
    with beating(held):
        assert held.wait_extended("late", times=3)
    assert not held.timed_out.is_set()


def test_whoever_gives_a_message_back_waits_for_the_renewal_that_may_include_it() -> None:
    held = Held()
    held.waiting.append((lease("a"), 0.3))
    with beating(held) as heartbeat:
        held.may_extend.clear()
        assert held.wait_extended("a", times=2), "it is under way"
        passed = threading.Thread(target=heartbeat.let_pass, daemon=True)
        passed.start()
        passed.join(0.1)
        assert passed.is_alive()
        held.may_extend.set()
        passed.join(5)
        assert not passed.is_alive()


def test_it_tells_what_the_queue_says_is_over() -> None:
    held = Held()
    held.waiting += [(lease("gone"), LONG_SECONDS), (lease("here"), LONG_SECONDS)]
    with beating(held) as heartbeat:
        assert held.lost == {"gone"}
        assert heartbeat.adjust([(lease("gone"), 5.0)]) == {"gone"}
