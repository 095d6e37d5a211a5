"""A queue in memory that hides and shows its messages as SQS does."""

from __future__ import annotations

import heapq
import itertools
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from ringfence.clock import SystemClock
from ringfence.ports import MAX_DELAY_SECONDS, MAX_LEASE_SECONDS, Clock, Depth, Lease
from ringfence.wire import Ticket, encode_ticket

POLL_SECONDS = 0.02
"""How often a waiting `MemoryQueue.lease` looks again."""


@dataclass(slots=True)
class _Message:
    message_id: str
    body: str
    visible_at: float
    """Seconds of the clock's ``monotonic``."""
    receipt: str | None = None
    leased_at: float = 0.0
    deliveries: int = 0


class MemoryQueue:
    """One set of messages, each with the time at which it is visible; an ended lease is visible by itself.

    Every lease hands out a new receipt, and only the latest receipt of a message counts. Times are the clock's ``monotonic``.
    """

    def __init__(
        self,
        name: str,
        clock: Clock | None = None,
        *,
        max_delay_seconds: float = MAX_DELAY_SECONDS,
        max_lease_seconds: float = MAX_LEASE_SECONDS,
    ) -> None:
        self.name = name
        self.max_delay_seconds = max_delay_seconds
        self.max_lease_seconds = max_lease_seconds
        self._clock = clock or SystemClock()
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._messages: dict[str, _Message] = {}
        self._by_receipt: dict[str, _Message] = {}
        self._by_visibility: list[tuple[float, int, str]] = []
        """A heap; an entry whose time is not its message's any more is skipped when it comes up."""
        self._lives = 1
        self._restarts = 0

    def push(self, tickets: Sequence[Ticket], delay_seconds: float | Sequence[float] = 0.0) -> list[Ticket]:
        delays = [delay_seconds] * len(tickets) if isinstance(delay_seconds, int | float) else delay_seconds
        for ticket, delay in zip(tickets, delays, strict=True):
            self.put(encode_ticket(ticket), delay)
        return []

    def put(self, body: str, delay_seconds: float = 0.0) -> str:
        """Add any text, as a stranger with access to the queue could. Returns the message id."""
        with self._lock:
            message_id = f"{self.name}-{next(self._numbers)}"
            delay = _clip(delay_seconds, self.max_delay_seconds)
            message = _Message(message_id, body, self._clock.monotonic() + delay)
            self._messages[message_id] = message
            self._show_at(message, message.visible_at)
            return message_id

    def bodies(self) -> list[str]:
        """What is in the queue, visible or not, oldest first."""
        with self._lock:
            return [message.body for message in self._messages.values()]

    def memory_mark(self) -> str:
        """See `ports.MarkedQueue.memory_mark`."""
        with self._lock:
            return f"{self._lives}/{self._restarts}"

    def lose(self, messages: int | None = None) -> None:
        """Forget everything, as a Redis does that is killed and keeps no file; or restart without the last few messages."""
        with self._lock:
            kept = [] if messages is None else list(self._messages)[: max(0, len(self._messages) - messages)]
            self._lives += messages is None
            self._restarts += 1
            self._messages = {message_id: self._messages[message_id] for message_id in kept}
            self._by_receipt = {
                receipt: message for receipt, message in self._by_receipt.items() if message.message_id in self._messages
            }

    def lease(self, max_tickets: int, lease_seconds: float, wait_seconds: float = 0.0) -> list[Lease]:
        give_up_at = self._clock.monotonic() + wait_seconds
        while True:
            leases = self._take(max_tickets, lease_seconds)
            left_seconds = give_up_at - self._clock.monotonic()
            if leases or left_seconds <= 0:
                return leases
            self._clock.sleep(min(POLL_SECONDS, left_seconds))

    def extend(self, leases: Sequence[Lease], lease_seconds: float) -> list[Lease]:
        return [lease for lease in leases if not self._hide(lease, lease_seconds)]

    def acknowledge(self, leases: Sequence[Lease]) -> None:
        with self._lock:
            for lease in leases:
                message = self._by_receipt.pop(lease.receipt, None)
                if message is not None:
                    del self._messages[message.message_id]

    def release(self, leases: Sequence[Lease], delay_seconds: float = 0.0) -> None:
        for lease in leases:
            self._hide(lease, delay_seconds)

    def depth(self) -> Depth:
        with self._lock:
            now = self._clock.monotonic()
            hidden = [message for message in self._messages.values() if message.visible_at > now]
            leased = sum(message.deliveries > 0 for message in hidden)
            oldest = min((message.visible_at for message in self._messages.values()), default=now)
            return Depth(
                ready=len(self._messages) - len(hidden),
                leased=leased,
                delayed=len(hidden) - leased,
                oldest_ready_seconds=max(0.0, now - oldest),
            )

    def _take(self, max_tickets: int, lease_seconds: float) -> list[Lease]:
        leases: list[Lease] = []
        with self._lock:
            now = self._clock.monotonic()
            while len(leases) < max_tickets and self._by_visibility and self._by_visibility[0][0] <= now:
                visible_at, _, message_id = heapq.heappop(self._by_visibility)
                message = self._messages.get(message_id)
                if message is not None and message.visible_at == visible_at:
                    leases.append(self._hand_out(message, now, lease_seconds))
        return leases

    def _hand_out(self, message: _Message, now: float, lease_seconds: float) -> Lease:
        if message.receipt is not None:
            del self._by_receipt[message.receipt]
        message.deliveries += 1
        message.leased_at = now
        message.receipt = f"{message.message_id}:{message.deliveries}"
        self._by_receipt[message.receipt] = message
        self._show_at(message, now + _clip(lease_seconds, self.max_lease_seconds))
        return Lease(message.body, message.receipt, message.deliveries, message.message_id, self.name)

    def _hide(self, lease: Lease, seconds: float) -> bool:
        """False when this lease is over: a later one exists, its time has run out, or the message is gone."""
        with self._lock:
            now = self._clock.monotonic()
            message = self._by_receipt.get(lease.receipt)
            if message is None or message.visible_at <= now:
                return False
            allowance_seconds = message.leased_at + self.max_lease_seconds - now
            self._show_at(message, now + _clip(seconds, allowance_seconds))
            return True

    def _show_at(self, message: _Message, visible_at: float) -> None:
        message.visible_at = visible_at
        heapq.heappush(self._by_visibility, (visible_at, next(self._numbers), message.message_id))


def _clip(seconds: float, most: float) -> float:
    return min(max(0.0, seconds), most)
