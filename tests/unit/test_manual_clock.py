"""The clock that moves when a test says so, and the one that moves by itself."""

import threading
import time

import pytest

from ringfence.clock import SystemClock
from ringfence.memory.clock import ManualClock


def test_time_stands_still_until_advanced() -> None:
    clock = ManualClock(now=1_000)
    assert (clock.now(), clock.monotonic()) == (1_000, 0.0)
    clock.advance(1.5)
    assert (clock.now(), clock.monotonic()) == (2_500, 1.5)


def test_sleeping_advances() -> None:
    clock = ManualClock(now=0)
    clock.sleep(0.25)
    clock.sleep(-1)
    assert clock.monotonic() == 0.25


def test_many_small_steps_add_up() -> None:
    clock = ManualClock(now=0)
    for _ in range(10_000):
        clock.advance(0.0001)
    assert (clock.now(), clock.monotonic()) == (1_000, 1.0)


def test_a_jump_moves_the_wall_clock_alone() -> None:
    clock = ManualClock(now=10_000)
    clock.jump(-3)
    assert (clock.now(), clock.monotonic()) == (7_000, 0.0)


def test_time_does_not_run_backwards() -> None:
    with pytest.raises(ValueError, match="backwards"):
        ManualClock().advance(-1)


def test_a_waiting_sleeper_wakes_when_its_time_has_come_and_not_before() -> None:
    clock = ManualClock(sleepers_wait=True)
    woken: list[str] = []

    def sleeper(name: str, seconds: float) -> threading.Thread:
        thread = threading.Thread(target=lambda: (clock.sleep(seconds), woken.append(name)))
        thread.start()
        return thread

    early, late = sleeper("early", 5), sleeper("late", 60)
    clock.wait_for_sleepers(2)
    clock.advance(4.9)
    assert woken == []
    clock.advance(0.1)
    early.join(10)
    assert woken == ["early"]
    clock.advance(60)
    late.join(10)
    assert woken == ["early", "late"]


def test_waiting_for_sleepers_that_do_not_come_is_told() -> None:
    with pytest.raises(TimeoutError, match="0 of 1"):
        ManualClock(sleepers_wait=True).wait_for_sleepers(timeout_seconds=0)


def test_threads_lose_no_time_between_them() -> None:
    clock = ManualClock(now=0)

    def many() -> None:
        for _ in range(500):
            clock.advance(0.001)

    threads = [threading.Thread(target=many) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert clock.now() == 4_000


def test_the_system_clock_tells_milliseconds_and_seconds() -> None:
    clock = SystemClock()
    assert abs(clock.now() / 1000 - time.time()) < 5
    before = clock.monotonic()
    clock.sleep(-1)
    assert 0 <= clock.monotonic() - before < 5
