"""The limiter in memory: `ringfence.rate` under a lock."""

from __future__ import annotations

import threading

from ringfence import rate as gcra
from ringfence.job import Millis
from ringfence.ports import Clock
from ringfence.rate import Rate, Reserved


class MemoryLimiter:
    """The schedules of one process; safe to share between threads."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._reserved: dict[str, Reserved | None] = {}
        self._lock = threading.Lock()

    def reserve(self, queue: str, count: int, rate: Rate, within: Millis | None = None) -> list[Millis]:
        """See `ports.Limiter.reserve`."""
        with self._lock:
            before = self._reserved.get(queue)
            within_micros = None if within is None else within * 1_000
            self._reserved[queue], waits = gcra.reserve(before, rate, count, self._clock.now() * 1_000, within_micros)
        return waits
