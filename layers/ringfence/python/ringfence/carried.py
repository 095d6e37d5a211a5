"""A job that rides in its ticket (`Guarantee.AT_LEAST_ONCE`): run without a row, a token or a write to the ledger.

Its queue's lease is all that keeps others away while it runs, so it may run twice. It gets a row, and is from then on a job
like any other, when it must wait longer than its queue can hold it, when it may be killing its workers, and when it is dead:
put if absent, then acknowledged.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ringfence import jsontext, transitions
from ringfence.app import JobSpec
from ringfence.effects import Item
from ringfence.errors import Unavailable
from ringfence.job import Job
from ringfence.outcome import (
    Acknowledge,
    Disposition,
    Done,
    Failed,
    Hopeless,
    Interrupted,
    Keep,
    Lost,
    Outcome,
    Release,
    Undecided,
)
from ringfence.ownership import Hold
from ringfence.patience import REST_SECONDS, patiently
from ringfence.ports import MAX_DELAY_SECONDS, Lease, Queue, Services
from ringfence.transitions import MAX_AHEAD_SECONDS
from ringfence.wire import JobRecord, Ticket, with_attempts

MOST_DELIVERIES = 3
"""A ticket that comes more often was not decided by any of its workers (a retry is a new ticket): it was given back unstarted,
or its job kills them. From then on a row counts its attempts."""


class Carried(Hold):
    """One attempt's hold on a job that rides in its ticket. ``ticket.payload`` is set."""

    def __init__(
        self, ticket: Ticket, lease: Lease, spec: JobSpec, lease_seconds: float, queue: Queue, services: Services
    ) -> None:
        super().__init__(lease, spec, lease_seconds, services.clock.monotonic())
        self.ticket, self.queue, self._services = ticket, queue, services
        self.succeeded = False

    @property
    def attempt(self) -> int:
        """Counted from 1; an attempt whose worker was lost is not counted."""
        return self.ticket.attempts + 1

    @property
    def max_attempts(self) -> int:
        """The submission's attempts, or fewer if the job's code says so."""
        allowed = self.ticket.max_attempts or 1
        return allowed if self.spec.max_attempts is None else min(allowed, self.spec.max_attempts)

    @property
    def may_kill_its_worker(self) -> bool:
        return self.lease.deliveries > MOST_DELIVERIES

    def read(self, table: str, key: Item) -> Mapping[str, Any] | None:
        """One item of the user's, strongly consistent."""
        return patiently(lambda: self._services.ledger.read_item(table, key), self._services)


def settle_carried(carried: Carried, outcome: Outcome, services: Services) -> Disposition:
    """Carry out an attempt's one outcome. Nothing is acknowledged before what takes the ticket's place is written."""
    match outcome:
        case Done():
            carried.succeeded = True
            return Acknowledge()
        case Failed():
            return _fail(carried, outcome, services)
        case Hopeless(error, cause, frames):
            return _bury(carried, error, cause, frames, services)
        case Interrupted():
            return Release()
        case Lost():
            return Keep()
        case Undecided():
            return Release(REST_SECONDS)


def give_row(carried: Carried, services: Services) -> Disposition:
    """Let a job that comes too often be one like any other, due at once: claimed before it runs, so that its attempts end."""
    return _put_off(carried, "no worker that had it came to an end", 0.0, services, attempts=carried.ticket.attempts)


def _fail(carried: Carried, failed: Failed, services: Services) -> Disposition:
    ticket, attempt = carried.ticket, carried.attempt
    if attempt >= carried.max_attempts:
        error = f"all {carried.max_attempts} attempts failed; the last one: {failed.error}"
        return _bury(carried, error, failed.cause, failed.frames, services)
    at_least_seconds = min(failed.after_seconds, MAX_AHEAD_SECONDS)
    delay_seconds = carried.spec.backoff.delay(attempt, services.random_source, at_least_seconds)
    told: dict[str, str | float | None] = {"reason": failed.cause, "traceback": failed.frames or None}
    _tell("job_retried", carried, services, **told, delay_seconds=round(delay_seconds, 3))
    if delay_seconds > MAX_DELAY_SECONDS or services.holds_retries(carried.lease.queue):
        return _put_off(carried, failed.error, delay_seconds, services, attempts=attempt)
    again = with_attempts(ticket, attempt, ticket_id=services.ids.mark())
    if carried.queue.push([again], delay_seconds):
        return Release(delay_seconds)  # a queue that takes nothing more still delays what it has
    return Acknowledge()


def _put_off(carried: Carried, error: str, delay_seconds: float, services: Services, *, attempts: int) -> Disposition:
    row = transitions.put_off(
        _record(carried),
        attempts,
        error,
        write_id=services.ids.mark(),
        run_at=services.clock.now() + round(delay_seconds * 1000),
        due_id=services.ids.mark(),
    )
    return _registered(row, services)


def _bury(carried: Carried, error: str, cause: str, frames: str, services: Services) -> Disposition:
    now, record = services.clock.now(), _record(carried)
    row = transitions.die_without_row(
        record,
        carried.attempt,
        error,
        write_id=services.ids.mark(),
        now=now,
        retention_seconds=services.retention_seconds,
    )
    disposition = _registered(row, services)
    if isinstance(disposition, Acknowledge):
        _tell("job_dead", carried, services, reason=cause, traceback=frames or None)
    return disposition


def _registered(row: Job, services: Services) -> Disposition:
    """The row takes the ticket's place. One that is there already was put there for an earlier delivery of the same job."""
    try:
        patiently(lambda: services.ledger.register(row), services)
    except Unavailable as fault:
        services.telemetry.event("claim_failed", job_id=row.job_id, queue=row.queue, reason=str(fault))
        return Release(REST_SECONDS)
    return Acknowledge()


def _record(carried: Carried) -> JobRecord:
    ticket = carried.ticket
    payload = ticket.payload or "null"
    return JobRecord(
        job_id=ticket.job_id,
        tenant=ticket.tenant,
        queue=carried.lease.queue,
        name=ticket.name or "",
        payload=payload,
        payload_sha256=jsontext.sha256(payload),
        created_at=ticket.created_at or 0,
        max_attempts=ticket.max_attempts or 1,
        traceparent=ticket.traceparent,
    )


def _tell(event: str, carried: Carried, services: Services, **fields: str | int | float | None) -> None:
    ticket = carried.ticket
    services.telemetry.event(
        event, job_id=ticket.job_id, queue=carried.lease.queue, job_name=ticket.name, attempt=carried.attempt, **fields
    )
