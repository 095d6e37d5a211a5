"""Keeping the leases of running jobs and of messages still to be started. "Where is a lease renewed?" - `Heartbeat`."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence

from ringfence.errors import Unavailable
from ringfence.ownership import Hold
from ringfence.places import cause
from ringfence.ports import Lease, Queue, Services

HEARTBEATS_PER_LEASE = 3

MOST_JOINED_SECONDS = 1.0
"""So long the heartbeat waits for the rows' renewals, and whoever stops it for the heartbeat."""

IDLE_SECONDS = 3600.0
"""With nothing to keep it sleeps until it has."""


class Heartbeat:
    """A thread that keeps the leases of one batch: those of running jobs, and those of messages still to be started.

    It must be stopped before a Lambda handler returns, or it thaws in the next invocation with dead receipts. It is waited for
    as long as an invocation can spare; a call that then still hangs may do its harm later: hide a message once more.
    """

    def __init__(self, queue: Queue, services: Services, *, on_timeout: Callable[[Hold], None]) -> None:
        self._queue, self._on_timeout = queue, on_timeout
        self._clock, self._telemetry = services.clock, services.telemetry
        self._renewed = self._clock.monotonic()
        self._lock = threading.Lock()
        # Every message goes through these two, in single steps that need no lock. Whoever reads more copies them first.
        self._waiting: dict[str, tuple[Lease, float]] = {}
        self._running: dict[str, Hold] = {}
        self._extending = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._stopped = False
        self._sleeps_until = float("-inf")
        """On the monotonic clock, while the thread sleeps; the end of time while it finds out how long it may."""
        self._thread = threading.Thread(target=self._run, name="ringfence-heartbeat", daemon=True)

    def start(self, waiting: Iterable[tuple[Lease, float]]) -> None:
        """Take over these leases with their lengths in seconds. Their first renewal, which on Lambda *shortens* the queue's
        default to the lease, is done before this returns."""
        self._waiting = {lease.receipt: (lease, seconds) for lease, seconds in waiting}
        self._renew()
        self._thread.start()

    def stop(self) -> None:
        with self._wake:
            self._stopped = True
            self._wake.notify_all()
        if self._thread.is_alive():
            self._thread.join(MOST_JOINED_SECONDS)

    def awaits(self, messages: Sequence[tuple[Lease, float]], leased_seconds: float) -> None:
        """More messages that are not started yet, with the lengths of their own leases; leased just now for
        ``leased_seconds``. Those with another length get it at once: a worker that dies is missed as soon as that says."""
        with self._lock:
            if not self._waiting and not self._running:
                self._renewed = self._clock.monotonic()
            for lease, seconds in messages:
                self._waiting[lease.receipt] = lease, seconds
        self._wake_before(self._renewed + min(seconds for _, seconds in messages) / HEARTBEATS_PER_LEASE)
        unadjusted = [(lease, seconds) for lease, seconds in messages if seconds != leased_seconds]
        if unadjusted:
            with self._extending:
                self._drop(self._extend(unadjusted))

    def waits(self, lease: Lease) -> bool:
        """Whether this message, not yet started, is still ours as far as the queue has told."""
        return lease.receipt in self._waiting

    def owns(self, hold: Hold) -> None:
        """A message was claimed: from now on what else it holds is renewed as well."""
        receipt = hold.lease.receipt
        self._running[receipt] = hold
        self._waiting.pop(receipt, None)
        self._wake_before(min(hold.ends_at, self._renewed + hold.lease_seconds / HEARTBEATS_PER_LEASE))

    def forget(self, lease: Lease) -> None:
        """A message is decided: no renewal that begins from now on includes it."""
        self._waiting.pop(lease.receipt, None)
        self._running.pop(lease.receipt, None)

    def forget_before_release(self, leases: Iterable[Lease]) -> None:
        """The same, and none that has begun is under way when this returns: it would undo the release."""
        with self._extending:
            for lease in leases:
                self.forget(lease)

    def _drop(self, lost: Iterable[str]) -> None:
        for receipt in lost:
            self._waiting.pop(receipt, None)

    def _wake_before(self, turn: float) -> None:
        """See to it that the thread, if it sleeps, is awake by then. Most messages come and go while it sleeps on."""
        if turn < self._sleeps_until:
            with self._wake:
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
            if not self._stopped:
                # Whoever comes while this looks around sees that it must wake us, and has to wait until we sleep.
                self._sleeps_until = float("inf")
                self._sleeps_until = self._next_turn()
                self._clock.wait_until(self._wake, self._sleeps_until)
                self._sleeps_until = float("-inf")
            return self._stopped

    def _next_turn(self) -> float:
        """When the next renewal or timeout is due, on the monotonic clock."""
        timeouts = [hold.ends_at for hold in list(self._running.values()) if not hold.settled]
        return min([self._renewed + self._interval_seconds(), *timeouts])

    def _interval_seconds(self) -> float:
        waiting = [seconds for _, seconds in list(self._waiting.values())]
        running = [hold.lease_seconds for hold in list(self._running.values())]
        return min([*waiting, *running], default=IDLE_SECONDS) / HEARTBEATS_PER_LEASE

    def _timed_out(self) -> list[Hold]:
        now = self._clock.monotonic()
        return [hold for hold in list(self._running.values()) if hold.ends_at <= now and not hold.settled]

    def _renew_if_due(self) -> None:
        with self._lock:
            due = self._clock.monotonic() >= self._renewed + self._interval_seconds() - 0.001
        if due:
            self._renew()

    def _renew(self) -> None:
        with self._extending:
            with self._lock:
                now = self._renewed = self._clock.monotonic()
                kept = list(self._waiting.values())  # before the running: what is started meanwhile is in one of them
                # One that is being settled is kept beyond its timeout: its last write may take some patience.
                running = [hold for hold in list(self._running.values()) if hold.ends_at > now or hold.settled]
            lost = self._extend([*kept, *((hold.lease, hold.lease_seconds) for hold in running)])
            self._drop(lost)
        now = self._clock.monotonic()
        due = [hold for hold in running if hold.wants_renewal(now, lost=hold.lease.receipt in lost)]
        # Side by side, for one slow write must not cost the others their lease.
        renewals = [threading.Thread(target=hold.renew, daemon=True) for hold in due]
        for renewal in renewals:
            renewal.start()
        wait_seconds = min(MOST_JOINED_SECONDS, self._interval_seconds() / 2)
        for renewal in renewals:
            renewal.join(wait_seconds)
            if renewal.is_alive():
                wait_seconds = 0.0  # it goes on by itself; until it ends, that job's renewals are passed over

    def _extend(self, leases: Sequence[tuple[Lease, float]]) -> set[str]:
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
