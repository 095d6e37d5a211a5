"""The messages of one queue, for as long as the process goes on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ringfence.ports import Clock, FusedQueue, Lease, Queue
from ringfence.process.calls import Calls

WAIT_SECONDS = 1.0
"""How long a lease waits for a first message: as long as a stop, or an acknowledgement, may be late."""


class Stop:
    """Whether, and since when, the process is to stop; shared by its feeds."""

    def __init__(self, clock: Clock, grace_seconds: float) -> None:
        self._clock, self._grace_seconds = clock, grace_seconds
        self._ends_at = float("inf")
        self.asked = False

    def ask(self) -> None:
        """Stop: take no more messages, and end within the grace."""
        if not self.asked:
            self._ends_at = self._clock.monotonic() + self._grace_seconds
            self.asked = True

    def remaining_seconds(self) -> float:
        return self._ends_at - self._clock.monotonic() if self.asked else float("inf")


class QueueFeed:
    """A `intake.Feed` over one queue. ``on_look`` is called with the number of messages just acknowledged, at least once a
    second while the crew lives."""

    def __init__(self, queue: Queue, stop: Stop, on_look: Callable[[int], None], wait_seconds: float = WAIT_SECONDS) -> None:
        self._queue, self._stop, self._on_look, self._wait_seconds = queue, stop, on_look, wait_seconds
        self.remaining_seconds = stop.remaining_seconds
        self._fused = queue if isinstance(queue, FusedQueue) else None
        self.abandoned = 0
        """As the crew told it last."""
        self.calls = Calls()
        """To the queue."""

    @property
    def stopping(self) -> bool:
        return self._stop.asked

    def exchange(self, done: Sequence[Lease], room: int, lease_seconds: float) -> list[Lease]:
        """See `intake.Feed.exchange`: in one round trip where the queue can."""
        with self.calls:
            if room and self._fused is not None:
                leases = self._fused.acknowledge_and_lease(done, room, lease_seconds, self._wait_seconds)
            else:
                if done:
                    self._queue.acknowledge(done)
                leases = self._queue.lease(room, lease_seconds, self._wait_seconds) if room else []
        self._on_look(len(done))
        return leases

    @property
    def can_ask(self) -> bool:
        """See `intake.Feed.can_ask`."""
        return self._fused is not None

    def ask(self, done: Sequence[Lease], room: int, lease_seconds: float) -> Callable[[], list[Lease]]:
        """See `intake.Feed.ask`."""
        if self._fused is None:
            raise NotImplementedError(f"queue {self._queue.name} cannot be asked ahead")
        with self.calls:
            reply = self._fused.ask(done, room, lease_seconds)

        def receive() -> list[Lease]:
            with self.calls:
                leases = reply()
            self._on_look(len(done))
            return leases

        return receive

    def look(self, abandoned: int) -> None:
        """See `intake.Feed.look`."""
        self.abandoned = abandoned
        self._on_look(0)
