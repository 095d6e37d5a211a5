"""Holding a job while it runs: one attempt's hold on its message, and the guarded writes of one that owns its row.

"Who may still write?" - `Ownership.write`.
"""

from __future__ import annotations

import dataclasses
import itertools
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ringfence import transitions
from ringfence.app import JobSpec
from ringfence.change import Change, Refused, Written
from ringfence.effects import Effect, Item
from ringfence.errors import LeaseLost
from ringfence.ids import request_token
from ringfence.job import Job, Progress, State
from ringfence.patience import patiently
from ringfence.places import cause
from ringfence.ports import Lease, Services

ROW_WRITES_PER_LEASE = 2
"""The row is renewed at most so often per lease: each is a write unit."""


class Hold:
    """One attempt's hold on one leased message: what the heartbeat and the watch on its time need to know of it."""

    def __init__(self, lease: Lease, spec: JobSpec, lease_seconds: float, started: float) -> None:
        """``started`` is when, on the monotonic clock."""
        self.lease, self.spec, self.lease_seconds, self.started = lease, spec, lease_seconds, started
        self.stopping = False
        """Whether the job should end at its next checkpoint."""
        self.abandon: Callable[[], object] | None = None
        """How to end its code once its outcome was taken beside it, if there is a way."""
        self.leave: Callable[[], object] = _nothing
        """How to make room for others then."""
        self._latch = threading.Lock()

    @property
    def ends_at(self) -> float:
        """When its timeout is over, on the monotonic clock."""
        return self.started + self.spec.timeout_seconds

    @property
    def settled(self) -> bool:
        """Whether somebody has taken the attempt's one outcome."""
        return self._latch.locked()

    def take_outcome(self) -> bool:
        """An attempt has one outcome: true for exactly one caller, before its first outcome write."""
        return self._latch.acquire(blocking=False)

    def wants_renewal(self, now: float, *, lost: bool) -> bool:
        """Whether more than the queue's lease is to be renewed. ``lost``: the queue has just said that its lease is over."""
        return lost

    def renew(self) -> None:
        """Renew what is not the queue's, or take notice of the loss. Never raises."""
        self.stopping = True


def _nothing() -> None: ...


class Ownership(Hold):
    """One attempt's hold on a job that has a row: its token.

    Shared by the job's thread, the heartbeat and the watch on its timeout.
    """

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
        super().__init__(lease, spec, lease_seconds, services.clock.monotonic())
        self.job, self.counted = job, counted
        self.lost: LeaseLost | None = None
        self._services = services
        self._ledger, self._clock, self._ids = services.ledger, services.clock, services.ids
        self._row_renewed = self.started
        self._writing = threading.Lock()
        self._sequence = itertools.count(1)
        self._progress: Progress | None = None

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

    def wants_renewal(self, now: float, *, lost: bool) -> bool:
        """A receipt the queue no longer knows proves nothing: the ledger decides, so it is asked at once. What it has decided
        against this attempt it is not asked again: each time would be another late write."""
        due = lost or now - self._row_renewed >= self.lease_seconds / ROW_WRITES_PER_LEASE
        return due and self.lost is None

    def renew(self) -> None:
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
            reason = cause(fault)
            self._services.telemetry.event("heartbeat_failed", job_id=self.job.job_id, token=self.job.token, reason=reason)
            return
        finally:
            self._writing.release()
        self._row_renewed = self._clock.monotonic()
        if isinstance(outcome, Refused):
            self._refused(outcome.seen, "heartbeat")
        elif outcome.job.cancel_requested:
            self.stopping = True

    def _know(self, job: Job) -> None:
        """Take over what the ledger holds now. A transaction's row is computed: others may know better."""
        if job.version >= self.job.version:
            self.job = job

    def _refused(self, seen: Job | None, purpose: str) -> LeaseLost:
        """Another owner, or an end that this attempt wrote without hearing of it: it is over. Told once per refused write."""
        current = None if seen is None else seen.token
        self.lost = LeaseLost(self.job.job_id, self.job.token, current)
        self.stopping = True
        self._services.telemetry.event(
            "outcome_was_written" if current == self.job.token else "late_write_refused",
            job_id=self.job.job_id,
            queue=self.job.queue,
            purpose=purpose,
            held_token=self.job.token,
            current_token=current,
            state=None if seen is None else str(State(seen.state)),
        )
        return self.lost
