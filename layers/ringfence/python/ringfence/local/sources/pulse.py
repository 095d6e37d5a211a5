"""Wakes idle pollers when something has happened that may have given them work."""

from __future__ import annotations

import threading


class Pulse:
    """A poller that found nothing waits, longer each time; the end of any invocation wakes all of them.

    So a job passes from one hop to the next at once, and a system with nothing to do hardly asks.
    """

    SHORTEST_SECONDS = 0.02
    LONGEST_SECONDS = 0.5

    def __init__(self) -> None:
        self._beats = 0
        self._changed = threading.Condition()
        self._stopped = False

    def beat(self) -> None:
        """Something has happened."""
        with self._changed:
            self._beats += 1
            self._changed.notify_all()

    def stop(self) -> None:
        """Wake all of them for good."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()

    def stopped(self) -> bool:
        """Whether the end has come."""
        return self._stopped

    @property
    def beats(self) -> int:
        """Read before looking for work, and given to `wait` after: what happens in between is not missed."""
        return self._beats

    def wait(self, since: int, idle_rounds: int) -> None:
        """Wait after ``idle_rounds`` looks that found nothing, at most until something has happened after ``since``."""
        seconds = min(self.SHORTEST_SECONDS * 2 ** min(idle_rounds, 10), self.LONGEST_SECONDS)
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._beats != since, seconds)

    def pause(self, seconds: float) -> None:
        """Wait this long, whatever happens, except for the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._stopped, seconds)
