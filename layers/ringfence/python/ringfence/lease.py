"""Keeping the leases of running jobs and of messages still to be started. "Where is a lease renewed?" - `Heartbeat`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Sequence

from ringfence.errors import Unavailable
from ringfence.ownership import Hold
from ringfence.places import cause
from ringfence.ports import Lease, Queue, Services

HEARTBEATS_PER_LEASE = 3

MOST_JOINED_SECONDS = 1.0
"""So long the heartbeat waits for the rows' renewals, and whoever stops it for the heartbeat."""

IDLE_SECONDS = 3600.0
"""With nothing to keep it sleeps so long, or until it has."""

Kept = Sequence[tuple[Lease, float]]
"""Leases with their lengths in seconds."""


class Heartbeat:
    """A thread that keeps the leases of one crew: those of running jobs, and those of messages still to be started.

    Most messages come and go while it sleeps, and it is not told of each: when it is time to, it looks at what is there.

    It must be stopped before a Lambda handler returns, or it thaws in the next invocation with dead receipts. It is waited for
    as long as an invocation can spare; a call that then still hangs may do its harm later: hide a message once more.
    """

    def __init__(
        self,
        queue: Queue,
        services: Services,
        *,
        shortest_lease_seconds: float,
        held: Callable[[], tuple[Kept, Sequence[Hold]]],
        on_lost: Callable[[Collection[str]], None],
        on_timeout: Callable[[Hold], None],
    ) -> None:
        """``held`` tells what is there now: messages to be started, and running jobs. ``on_lost`` is told the receipts of
        those that the queue says are over."""
        self._queue, self._shortest_lease_seconds = queue, shortest_lease_seconds
        self._held, self._on_lost, self._on_timeout = held, on_lost, on_timeout
        self._clock, self._telemetry = services.clock, services.telemetry
        self._renewed = self._clock.monotonic()
        self._keeps = False
        """Whether there was something to keep at the latest renewal, or has been since."""
        self._extending = threading.Lock()
        self._wake = threading.Condition(threading.Lock())
        self._stopped = self._woken = False
        self._sleeps_until = float("-inf")
        """On the monotonic clock, while the thread sleeps; the end of time while it finds out how long it may."""
        self._thread = threading.Thread(target=self._run, name="ringfence-heartbeat", daemon=True)

    def start(self) -> None:
        """The first renewal, which on Lambda *shortens* the queue's default to the lease, is done before this returns."""
        self._renew()
        self._thread.start()

    def stop(self) -> None:
        with self._wake:
            self._stopped = True
            self._wake.notify_all()
        if self._thread.is_alive():
            self._thread.join(MOST_JOINED_SECONDS)

    def adjust(self, leases: Kept) -> set[str]:
        """Give messages that were leased just now the lengths of their own leases at once: a worker that dies is missed as soon
        as that says. Returns the receipts that the queue says are over."""
        with self._extending:
            return self._extend(leases)

    def expect(self, leased_at: float) -> None:
        """There are more messages, leased at this moment on the monotonic clock."""
        if not self._keeps:
            self._keeps, self._renewed = True, leased_at
        self._wake_before(self._renewed + self._shortest_lease_seconds / HEARTBEATS_PER_LEASE)

    def expect_end(self, hold: Hold) -> None:
        """A job was started, and has a timeout."""
        self._wake_before(hold.ends_at)

    def let_pass(self) -> None:
        """Wait for the renewal that is under way, if one is: what is not held any more, no other includes."""
        with self._extending:
            pass

    def _wake_before(self, turn: float) -> None:
        """See to it that the thread, if it sleeps, is awake by then."""
        if turn < self._sleeps_until:
            with self._wake:
                self._woken = True
                self._wake.notify_all()

    def _run(self) -> None:
        while not self._told_to_stop():
            try:
                for hold in self._timed_out():
                    self._on_timeout(hold)
                self._renew_if_due()
            except Exception as fault:  # noqa: BLE001 - a heartbeat that dies silently loses every lease of the batch
                self._telemetry.event("heartbeat_failed", queue=self._queue.name, reason=cause(fault))

    def _told_to_stop(self) -> bool:
        """Sleep until the next renewal or timeout, or until woken."""
        with self._wake:
            self._woken, self._sleeps_until = False, float("inf")  # whoever comes while this looks around must wake us
        turn = self._next_turn()
        with self._wake:
            if not (self._stopped or self._woken):
                self._sleeps_until = turn
                self._clock.wait_until(self._wake, turn)
            self._sleeps_until = float("-inf")
            return self._stopped

    def _next_turn(self) -> float:
        """When the next renewal or timeout is due, on the monotonic clock."""
        kept, running = self._held()
        timeouts = [hold.ends_at for hold in running if not hold.settled]
        if not self._keeps:
            return min([self._clock.monotonic() + IDLE_SECONDS, *timeouts])
        return min([self._renewed + self._interval_seconds(kept, running), *timeouts])

    def _interval_seconds(self, kept: Kept, running: Sequence[Hold]) -> float:
        lengths = [*(seconds for _, seconds in kept), *(hold.lease_seconds for hold in running)]
        return min(lengths, default=self._shortest_lease_seconds) / HEARTBEATS_PER_LEASE

    def _timed_out(self) -> list[Hold]:
        now = self._clock.monotonic()
        return [hold for hold in self._held()[1] if hold.ends_at <= now and not hold.settled]

    def _renew_if_due(self) -> None:
        if self._keeps and self._clock.monotonic() >= self._renewed + self._interval_seconds(*self._held()) - 0.001:
            self._renew()

    def _renew(self) -> None:
        with self._extending:
            now = self._renewed = self._clock.monotonic()
            self._keeps = False  # before looking: whoever comes later says so
            kept, held = self._held()
            # One that is being settled is kept beyond its timeout: its last write may take some patience.
            running = [hold for hold in held if hold.ends_at > now or hold.settled]
            if kept or held:
                self._keeps = True
            lost = self._extend([*kept, *((hold.lease, hold.lease_seconds) for hold in running)])
            self._on_lost(lost)
        now = self._clock.monotonic()
        due = [hold for hold in running if hold.wants_renewal(now, lost=hold.lease.receipt in lost)]
        # Side by side, for one slow write must not cost the others their lease.
        renewals = [threading.Thread(target=hold.renew, daemon=True) for hold in due]
        for renewal in renewals:
            renewal.start()
        wait_seconds = min(MOST_JOINED_SECONDS, self._interval_seconds(kept, running) / 2)
        for renewal in renewals:
            renewal.join(wait_seconds)
            if renewal.is_alive():
                wait_seconds = 0.0  # it goes on by itself; until it ends, that job's renewals are passed over

    def _extend(self, leases: Kept) -> set[str]:
        """Extend each by its own length. Returns the receipts that the queue says are over."""
        by_length: dict[float, list[Lease]] = {}
        for lease, seconds in leases:
            by_length.setdefault(seconds, []).append(lease)
        lost: set[str] = set()
        for seconds, alike in by_length.items():
            try:
                lost.update(lease.receipt for lease in self._queue.extend(alike, seconds))
            except Unavailable as fault:
                self._telemetry.event("heartbeat_failed", queue=self._queue.name, count=len(alike), reason=str(fault))
        return lost
