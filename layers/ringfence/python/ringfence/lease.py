"""Holding a job while it runs: one attempt's ownership, its guarded writes, and the heartbeat that keeps its leases.

"Where is a lease renewed?" - `Heartbeat`. "Who may still write?" - `Ownership.write`.
"""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from ringfence import transitions
from ringfence.app import JobSpec
from ringfence.change import Change, Refused, Written
from ringfence.effects import Effect, Item
from ringfence.errors import LeaseLost, Unavailable
from ringfence.ids import request_token
from ringfence.job import Job, Progress, State
from ringfence.patience import patiently
from ringfence.ports import Lease, Queue, Services

HEARTBEATS_PER_LEASE = 3
ROW_WRITES_PER_LEASE = 2
"""The row is renewed at most so often per lease: each is a write unit."""


class Ownership:
    """One attempt's hold on one job, shared by the job's thread, the heartbeat and the watch on its timeout."""

    def __init__(
        self,
        job: Job,
        lease: Lease,
        spec: JobSpec,
        lease_seconds: float,
        services: Services,
        *,
        counted: bool = True,
    ) -> None:
        self.job, self.lease, self.spec, self.lease_seconds, self.counted = job, lease, spec, lease_seconds, counted
        self.started = self.row_renewed = services.clock.monotonic()
        self.stopping = threading.Event()
        self.lost: LeaseLost | None = None
        self._services = services
        self._ledger, self._clock, self._ids = services.ledger, services.clock, services.ids
        self._writing = threading.Lock()
        self._latch = threading.Lock()
        self._sequence = itertools.count(1)
        self._progress: Progress | None = None

    @property
    def timed_out(self) -> bool:
        return self._clock.monotonic() - self.started >= self.spec.timeout_seconds

    @property
    def settled(self) -> bool:
        """Whether somebody has taken the attempt's one outcome."""
        return self._latch.locked()

    def take_outcome(self) -> bool:
        """An attempt has one outcome: true for exactly one caller, before its first outcome write."""
        return self._latch.acquire(blocking=False)

    def report_progress(self, progress: Progress) -> None:
        """Remembered, and carried by the next write of any kind."""
        self._progress = progress

    def ensure_held(self) -> None:
        """Raise `LeaseLost` if it is known that this attempt may no longer write."""
        if self.lost is not None:
            raise self.lost

    def write(self, make: Callable[[Job, str], Change], effects: Sequence[Effect] = (), *, purpose: str) -> Job:
        """Carry out an owner's change, alone among this attempt's writes, repeated until it is decided.

        ``make`` gets the row as last known and a fresh write id. Raises `LeaseLost` when the ledger refuses, `Unavailable`
        when the patience is spent, `EffectRefused` and `Rejected` when an effect is at fault.
        """
        with self._writing:
            change = make(self.job, self._ids.mark())
        if self._progress is not None:
            change = dataclasses.replace(change, set={**change.set, "progress": self._progress})
        token = request_token(str(self.job.attempt_id), purpose, next(self._sequence)) if effects else None

        def once() -> Written | Refused:
            with self._writing:
                outcome = self._ledger.write(change, effects, request_token=token)
                if isinstance(outcome, Written):
                    self._know(outcome.job)
                return outcome

        outcome = patiently(once, self._services)
        if isinstance(outcome, Refused):
            raise self._refused(outcome.seen, purpose)
        return outcome.job

    def read(self, table: str, key: Item) -> Mapping[str, Any] | None:
        """One item of the user's, strongly consistent."""
        return patiently(lambda: self._ledger.read_item(table, key), self._services)

    def write_effects(self, effects: Sequence[Effect]) -> None:
        """Write effects now, in a transaction that checks that this attempt still holds the row."""
        held = Change(job_id=self.job.job_id, write_id="", condition=transitions.still_mine(self.job), set={}, seen=self.job)
        token = request_token(str(self.job.attempt_id), "write", next(self._sequence))

        def once() -> Written | Refused:
            with self._writing:
                return self._ledger.write_effects(held, effects, request_token=token) or Written(self.job)

        outcome = patiently(once, self._services)
        if isinstance(outcome, Refused):
            raise self._refused(outcome.seen, "write")

    def renew_row(self) -> None:
        """One heartbeat of the row, unless a write of this attempt is under way; notices a lost lease and a cancel."""
        if not self._writing.acquire(blocking=False):
            return
        try:
            if self.settled:
                return
            until = transitions.lease_end(self._clock.now(), self.lease_seconds)
            change = transitions.heartbeat(self.job, write_id=self._ids.mark(), lease_until=until, progress=self._progress)
            outcome = self._ledger.write(change)
            if isinstance(outcome, Written):
                self._know(outcome.job)
        except Exception as fault:  # noqa: BLE001 - this beat is told, the next one tries again
            reason = f"{type(fault).__name__}: {fault}"
            self._services.telemetry.event("heartbeat_failed", job_id=self.job.job_id, token=self.job.token, reason=reason)
            return
        finally:
            self._writing.release()
        self.row_renewed = self._clock.monotonic()
        if isinstance(outcome, Refused):
            self._refused(outcome.seen, "heartbeat")
        elif outcome.job.cancel_requested:
            self.stopping.set()

    def _know(self, job: Job) -> None:
        """Take over what the ledger holds now. A transaction's row is computed: others may know better."""
        if job.version >= self.job.version:
            self.job = job

    def _refused(self, seen: Job | None, purpose: str) -> LeaseLost:
        """Another owner, or an end that is not ours: this attempt is over. Told once per refused write."""
        current = None if seen is None else seen.token
        self.lost = LeaseLost(self.job.job_id, self.job.token, current)
        self.stopping.set()
        self._services.telemetry.event(
            "late_write_refused",
            job_id=self.job.job_id,
            queue=self.job.queue,
            purpose=purpose,
            held_token=self.job.token,
            current_token=current,
            state=None if seen is None else str(State(seen.state)),
        )
        return self.lost


class Heartbeat:
    """A thread that keeps the leases of one batch: those of running jobs, and those of messages still to be started.

    It must be stopped and joined before a Lambda handler returns, or it thaws in the next invocation with dead receipts.
    """

    def __init__(self, queue: Queue, services: Services, *, on_timeout: Callable[[Ownership], None]) -> None:
        self._queue, self._on_timeout = queue, on_timeout
        self._clock, self._telemetry = services.clock, services.telemetry
        self._renewed = self._clock.monotonic()
        self._lock = threading.Lock()
        self._waiting: dict[str, tuple[Lease, float]] = {}
        self._running: dict[str, Ownership] = {}
        self._unadjusted: list[tuple[Lease, float]] = []
        self._extending = threading.Lock()
        self._wake = threading.Condition(self._lock)
        self._stopped = False
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
            self._thread.join()

    def awaits(self, lease: Lease, seconds: float, leased_seconds: float) -> None:
        """One more message that is not started yet, leased just now for ``leased_seconds``, whatever its own lease is."""
        with self._wake:
            self._waiting[lease.receipt] = lease, seconds
            if seconds != leased_seconds:
                self._unadjusted.append((lease, seconds))
            self._wake.notify_all()

    def adjust(self) -> None:
        """Give each new message the lease of its own job, so that a worker that dies is missed as soon as that says."""
        with self._extending:
            with self._lock:
                unadjusted, self._unadjusted = self._unadjusted, []
            self._drop(self._extend(unadjusted))

    def _drop(self, lost: Iterable[str]) -> None:
        with self._lock:
            for receipt in lost:
                self._waiting.pop(receipt, None)

    def waits(self, lease: Lease) -> bool:
        """Whether this message, not yet started, is still ours as far as the queue has told."""
        with self._lock:
            return lease.receipt in self._waiting

    def owns(self, ownership: Ownership) -> None:
        """A message was claimed: from now on its row is renewed as well."""
        with self._wake:
            self._waiting.pop(ownership.lease.receipt, None)
            self._running[ownership.lease.receipt] = ownership
            self._wake.notify_all()

    def forget(self, lease: Lease) -> None:
        """A message is decided: its lease is not renewed any more once this returns, or a release would be undone."""
        with self._extending, self._lock:
            self._waiting.pop(lease.receipt, None)
            self._running.pop(lease.receipt, None)

    def _run(self) -> None:
        while not self._told_to_stop():
            try:
                for ownership in self._timed_out():
                    self._on_timeout(ownership)
                self._renew_if_due()
            except Exception as fault:  # noqa: BLE001 - a heartbeat that dies silently loses every lease of the batch
                self._telemetry.event("heartbeat_failed", queue=self._queue.name, reason=f"{type(fault).__name__}: {fault}")

    def _told_to_stop(self) -> bool:
        """Sleep until the next renewal or timeout, or until woken."""
        with self._wake:
            if not self._stopped:
                self._clock.wait_until(self._wake, self._next_turn())
            return self._stopped

    def _next_turn(self) -> float:
        """When the next renewal or timeout is due, on the monotonic clock."""
        timeouts = [o.started + o.spec.timeout_seconds for o in self._running.values() if not o.settled]
        return min([self._renewed + self._interval_seconds(), *timeouts])

    def _interval_seconds(self) -> float:
        seconds = [seconds for _, seconds in self._waiting.values()] + [o.lease_seconds for o in self._running.values()]
        return min(seconds, default=30.0) / HEARTBEATS_PER_LEASE

    def _timed_out(self) -> list[Ownership]:
        with self._lock:
            return [o for o in self._running.values() if o.timed_out and not o.settled]

    def _renew_if_due(self) -> None:
        with self._lock:
            due = self._clock.monotonic() >= self._renewed + self._interval_seconds() - 0.001
        if due:
            self._renew()

    def _renew(self) -> None:
        with self._extending:
            with self._lock:
                self._renewed = self._clock.monotonic()
                kept = list(self._waiting.values())
                running = [o for o in self._running.values() if not o.timed_out]
            lost = self._extend([*kept, *((o.lease, o.lease_seconds) for o in running)])
            self._drop(lost)
        now = self._clock.monotonic()
        # A receipt the queue no longer knows proves nothing: the ledger decides, so it is asked at once.
        due = [o for o in running if o.lease.receipt in lost or now - o.row_renewed >= o.lease_seconds / ROW_WRITES_PER_LEASE]
        # Side by side, for one slow write must not cost the others their lease.
        renewals = [threading.Thread(target=ownership.renew_row, daemon=True) for ownership in due]
        for renewal in renewals:
            renewal.start()
        for renewal in renewals:
            renewal.join()

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


class NoHeartbeat(Heartbeat):
    """Keeps nothing: for jobs whose leases are to run out, in tests of what happens then."""

    def start(self, waiting: Iterable[tuple[Lease, float]]) -> None:
        self._waiting = {lease.receipt: (lease, seconds) for lease, seconds in waiting}
