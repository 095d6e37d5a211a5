"""A clock that moves when a test says so."""

from __future__ import annotations

import threading

from ringfence.job import Millis

_NANOSECONDS = 1_000_000_000


class _Waiter:
    """One call of `ManualClock.wait_until`; compared by identity."""

    def __init__(self, condition: threading.Condition) -> None:
        self.condition = condition


class ManualClock:
    """Time that stands still until it is advanced; safe to share between threads.

    ``sleep`` advances it by itself, so single-threaded code runs through its waits at once. With ``sleepers_wait`` a sleeper
    blocks until somebody else has advanced the clock far enough: a test of threads then decides when a heartbeat beats.
    """

    def __init__(self, now: Millis = 1_700_000_000_000, *, sleepers_wait: bool = False) -> None:
        self._wall_offset_ms = now
        self._elapsed_ns = 0
        self._sleepers_wait = sleepers_wait
        self._sleepers = 0
        self._changed = threading.Condition()
        self._waiters: list[_Waiter] = []

    def now(self) -> Millis:
        with self._changed:
            return self._wall_offset_ms + self._elapsed_ns // 1_000_000

    def monotonic(self) -> float:
        with self._changed:
            return self._elapsed_ns / _NANOSECONDS

    def sleep(self, seconds: float) -> None:
        """Advance by ``seconds``, or with ``sleepers_wait`` block until that much has passed."""
        if not self._sleepers_wait:
            self.advance(max(0.0, seconds))
            return
        with self._changed:
            wake_at_ns = self._elapsed_ns + _to_ns(seconds)
            self._sleepers += 1
            self._changed.notify_all()
            self._changed.wait_for(lambda: self._elapsed_ns >= wake_at_ns)
            self._sleepers -= 1
            self._changed.notify_all()

    def advance(self, seconds: float) -> None:
        """Let this much time pass, waking the sleepers whose time has come. Negative time is a `ValueError`."""
        if seconds < 0:
            raise ValueError(f"time does not run backwards: {seconds} s")
        with self._changed:
            self._elapsed_ns += _to_ns(seconds)
            self._changed.notify_all()
            woken, self._waiters = self._waiters, []
        for waiter in woken:
            with waiter.condition:
                waiter.condition.notify_all()

    def wait_until(self, condition: threading.Condition, monotonic: float) -> None:
        """Wait until the condition is notified or somebody advances the clock; at once if the time has come."""
        with self._changed:
            if self._elapsed_ns >= _to_ns(monotonic):
                return
            waiter = _Waiter(condition)
            self._waiters.append(waiter)
            self._changed.notify_all()
        # The caller holds the condition, so an advance cannot notify it before this wait has begun.
        condition.wait()
        with self._changed:
            if waiter in self._waiters:  # woken by its condition, not by time
                self._waiters.remove(waiter)

    def wait_for_waiters(self, count: int = 1, timeout_seconds: float = 10.0) -> None:
        """Block until ``count`` threads wait, none of them woken by time and still busy.

        `TimeoutError` after ``timeout_seconds`` of real time.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._waiters) >= count, timeout_seconds):
                raise TimeoutError(f"{len(self._waiters)} of {count} threads waited within {timeout_seconds} s")

    def jump(self, seconds: float) -> None:
        """Set the wall clock forwards or back, as a wrong clock or a correction does; ``monotonic`` does not notice."""
        with self._changed:
            self._wall_offset_ms += round(seconds * 1000)

    def wait_for_sleepers(self, count: int = 1, timeout_seconds: float = 10.0) -> None:
        """Block until ``count`` threads are asleep. `TimeoutError` after ``timeout_seconds`` of real time."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._sleepers >= count, timeout_seconds):
                raise TimeoutError(f"{self._sleepers} of {count} threads went to sleep within {timeout_seconds} s")


def _to_ns(seconds: float) -> int:
    return round(seconds * _NANOSECONDS)
