"""Jobs in every state a test of a ledger starts from, brought there by the rules themselves."""

from __future__ import annotations

import itertools
from typing import Any

from ringfence import jsontext, transitions
from ringfence.change import Change, Refused, Written, apply
from ringfence.clock import SystemClock
from ringfence.http.auth import DEFAULT_TENANT
from ringfence.ids import RandomIds
from ringfence.job import LINE_MARK, Job, State
from ringfence.memory.clock import ManualClock
from ringfence.ports import Ledger
from ringfence.transitions import Owner
from ringfence.wire import JobRecord, Ticket

LEASE_MS = 30_000
RETENTION_SECONDS = 7 * 24 * 3600


def accepted_record(name: str, payload: str = "{}", **fields: Any) -> JobRecord:
    """What the log says of a job that was accepted just now: the gateway's, for a test that stands in its place."""
    defaults: dict[str, Any] = {
        "job_id": RandomIds().job(),
        "tenant": DEFAULT_TENANT,
        "queue": "default",
        "created_at": SystemClock().now(),
        "max_attempts": 5,
    }
    return JobRecord(**{**defaults, "name": name, "payload": payload, "payload_sha256": jsontext.sha256(payload), **fields})


class Given:
    """Makes jobs in a ledger, and the changes a test carries out on them; ids are random, so that runs share a store."""

    def __init__(self, ledger: Ledger, clock: ManualClock) -> None:
        self.ledger, self.clock = ledger, clock
        self._ids = RandomIds()
        self._numbers = itertools.count(1)

    def mark(self) -> str:
        """A fresh id for a write, attempt, ticket or due mark."""
        return self._ids.mark()

    # --- rows --------------------------------------------------------------------------------------------------------

    def row(self, payload: str = '{"n":1}', **fields: Any) -> Job:
        """A new row, in no ledger yet."""
        defaults: dict[str, Any] = {
            "job_id": self._ids.job(),
            "tenant": "acme",
            "queue": "default",
            "name": "index",
            "state": State.QUEUED,
            "write_id": self.mark(),
            "version": 1,
            "created_at": self.clock.now(),
        }
        return Job(**{**defaults, "payload": payload, "payload_sha256": jsontext.sha256(payload), **fields})

    def queued(self, payload: str = '{"n":1}', **fields: Any) -> Job:
        """A job that was accepted."""
        job = self.row(payload, **fields)
        if self.ledger.register(job) is not None:
            raise AssertionError(f"job {job.job_id} was there before")
        return job

    def scheduled(self, in_seconds: float = 60.0, **fields: Any) -> Job:
        """A job with a due mark."""
        run_at = self.clock.now() + int(in_seconds * 1000)
        return self.queued(state=State.SCHEDULED, run_at=run_at, due_id=self.mark(), **fields)

    def parked_row(self, payload: str = '{"n":1}', **fields: Any) -> Job:
        """The row of a job that stands in line, in no ledger yet. It is its turn unless ``run_at`` says otherwise."""
        place = {"run_at": self.clock.now(), "due_id": LINE_MARK + self.mark()}
        return self.row(payload, **{"state": State.SCHEDULED, **place, **fields})

    def running(self, payload: str = '{"n":1}', **fields: Any) -> Job:
        """A job just claimed by its first owner."""
        return self.claimed(self.queued(payload, **fields))

    def dead(self, error: str = "it broke", **fields: Any) -> Job:
        job = self.running(**fields)
        return self.done(transitions.give_up(job, error, write_id=self.mark(), now=self.clock.now(), expires_at=self.expiry()))

    def succeeded(self, result: str = "{}", **fields: Any) -> Job:
        return self.done(self.success(self.running(**fields), result))

    def cancelled(self, **fields: Any) -> Job:
        seen = self.queued(**fields)
        change = transitions.cancel_seen(seen, write_id=self.mark(), now=self.clock.now(), expires_at=self.expiry())
        return self.done(change)

    def claimed(self, job: Job) -> Job:
        return self.done(self.claim(job))

    # --- changes -----------------------------------------------------------------------------------------------------

    def expiry(self) -> int:
        return transitions.expiry(self.row(), self.clock.now(), RETENTION_SECONDS)

    def owner(self, job: Job, *, ticket_id: str | None = None, deliveries: int = 1) -> Owner:
        number, now = next(self._numbers), self.clock.now()
        return Owner(
            ticket=Ticket(ticket_id=ticket_id or self.mark(), job_id=job.job_id, tenant=job.tenant, name=job.name),
            deliveries=deliveries,
            attempt_id=self.mark(),
            worker=f"worker-{number}",
            now=now,
            lease_until=now + LEASE_MS,
        )

    def claim(self, job: Job) -> Change:
        return transitions.claim_waiting(self.owner(job), write_id=self.mark())

    def success(self, job: Job, result: str = "{}") -> Change:
        """The commit of the owner who holds this row."""
        return transitions.succeed(job, result, write_id=self.mark(), now=self.clock.now() + 1_000, expires_at=self.expiry())

    def taken_over(self, job: Job) -> Job:
        """The same job with its next owner: this row's owner is late from now on."""
        owner = self.owner(job, ticket_id=job.ticket_id, deliveries=job.ticket_deliveries + 1)
        return self.done(transitions.claim_seen(job, owner, counted=True, write_id=self.mark()))

    # --- carrying out ------------------------------------------------------------------------------------------------

    def done(self, change: Change) -> Job:
        """Carry out a change that must be taken. Returns the row after it."""
        outcome = self.ledger.write(change)
        if isinstance(outcome, Refused):
            raise AssertionError(f"refused by {outcome.seen}")
        return outcome.job

    def exactly_done(self, change: Change, before: Job) -> Job:
        """The same, and the row is what the rules say, both as returned and as read again."""
        outcome = self.ledger.write(change)
        assert outcome == Written(apply(change, before))
        assert self.ledger.get(before.job_id) == outcome.job
        return outcome.job

    def refused(self, change: Change) -> Job:
        """Carry out a change that must be refused, by the row as it is, which it then leaves alone. Returns that row."""
        there = self.ledger.get(change.job_id)
        assert there is not None
        assert self.ledger.write(change) == Refused(there)
        assert self.ledger.get(change.job_id) == there
        return there
