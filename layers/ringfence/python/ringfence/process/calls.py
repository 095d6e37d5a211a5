"""Calls to a queue that are under way, and since when: one that never comes back cripples a process that looks well."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence

from ringfence.ports import Depth, Lease, Queue
from ringfence.wire import Ticket


class Calls:
    """``with calls:`` around each call of any thread that talks to one queue; a thread makes one at a time."""

    def __init__(self) -> None:
        self._began: dict[int, float] = {}
        """Thread → since when."""

    def __enter__(self) -> None:
        self._began[threading.get_ident()] = time.monotonic()

    def __exit__(self, *_: object) -> None:
        del self._began[threading.get_ident()]

    def longest_seconds(self) -> float:
        """For how long the oldest has been under way; 0 if there is none."""
        now = time.monotonic()
        return now - min(list(self._began.values()), default=now)


class TimedQueue:
    """A queue whose calls are counted among these: those of a heartbeat, and of whoever gives back or puts in again."""

    def __init__(self, queue: Queue, calls: Calls) -> None:
        self._queue, self._calls = queue, calls
        self.name = queue.name
        self.max_delay_seconds, self.max_lease_seconds = queue.max_delay_seconds, queue.max_lease_seconds

    def push(self, tickets: Sequence[Ticket], delay_seconds: float | Sequence[float] = 0.0) -> list[Ticket]:
        """See `ports.Queue.push`; and so on."""
        with self._calls:
            return self._queue.push(tickets, delay_seconds)

    def lease(self, max_tickets: int, lease_seconds: float, wait_seconds: float = 0.0) -> list[Lease]:
        with self._calls:
            return self._queue.lease(max_tickets, lease_seconds, wait_seconds)

    def extend(self, leases: Sequence[Lease], lease_seconds: float) -> list[Lease]:
        with self._calls:
            return self._queue.extend(leases, lease_seconds)

    def acknowledge(self, leases: Sequence[Lease]) -> None:
        with self._calls:
            self._queue.acknowledge(leases)

    def release(self, leases: Sequence[Lease], delay_seconds: float = 0.0) -> None:
        with self._calls:
            self._queue.release(leases, delay_seconds)

    def depth(self) -> Depth:
        with self._calls:
            return self._queue.depth()
