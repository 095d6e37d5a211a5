"""Claiming a job for a leased ticket: one conditional update, and what to do when something stands in its way.

The rules are `transitions.judge`; here they are carried out.
"""

from __future__ import annotations

from dataclasses import dataclass

from ringfence import transitions
from ringfence.change import Change, Written
from ringfence.errors import Poisoned, Unavailable
from ringfence.job import Job, Millis, State
from ringfence.lease import persist
from ringfence.outcome import Acknowledge, Disposition, Release
from ringfence.poison import set_aside_message
from ringfence.ports import Lease, Services
from ringfence.transitions import CancelNow, Early, Finished, Free, Held, Missing, UsedUp
from ringfence.wire import Ticket

LOOKS = 10
"""How often a claim looks again at a row that changed under it, before it puts the ticket back."""

PAUSE_SECONDS = 5.0
"""How long a ticket rests when the ledger could not be asked."""


@dataclass(frozen=True, slots=True)
class Claimant:
    """Who asks, with what, and for how long."""

    worker: str
    ticket: Ticket
    lease: Lease
    lease_seconds: float


def claim(claimant: Claimant, services: Services) -> Job | Disposition:
    """Mint the token and own the job; or say what happens to the message instead."""
    ticket, lease = claimant.ticket, claimant.lease
    now = services.clock.now()
    owner = transitions.Owner(
        ticket=ticket,
        deliveries=lease.deliveries,
        attempt_id=services.ids.mark(),
        worker=claimant.worker,
        now=now,
        lease_until=transitions.lease_end(now, claimant.lease_seconds),
    )
    change = transitions.claim_waiting(owner, write_id=services.ids.mark())
    try:
        for _ in range(LOOKS):
            outcome = persist(lambda: services.ledger.write(change), services)  # noqa: B023 - called before the next turn
            if isinstance(outcome, Written):
                return _written(outcome.job, claimant, services)
            verdict = transitions.judge(outcome.seen, ticket, lease.deliveries, services.clock.now())
            answer = _answer(verdict, outcome.seen, owner, claimant, services)
            if not isinstance(answer, Change):
                return answer
            change = answer
    except Unavailable as fault:
        services.telemetry.event("claim_failed", job_id=ticket.job_id, queue=lease.queue, reason=str(fault))
    return Release(PAUSE_SECONDS)


def bury_poison(lease: Lease, fault: Poisoned, services: Services) -> Disposition:
    """A message nobody can read: into the quarantine, and the job it names, if any, is dead with the reason."""
    now = services.clock.now()
    try:
        set_aside_message(lease, fault, services)
        job = None if fault.job_id is None else services.ledger.get(fault.job_id)
        if job is not None and not job.state.terminal:
            expires_at = transitions.expiry(now, services.retention_seconds)
            services.ledger.write(
                transitions.bury_unreadable(job, fault.reason, write_id=services.ids.mark(), now=now, expires_at=expires_at)
            )
    except Unavailable:
        return Release(PAUSE_SECONDS)
    return Acknowledge()


def _written(job: Job, claimant: Claimant, services: Services) -> Job | Disposition:
    told: dict[str, str | int] = {
        "job_id": job.job_id,
        "queue": job.queue,
        "job_name": job.name,
        "token": job.token,
        "attempt": job.attempts,
    }
    if job.state is State.RUNNING:
        services.telemetry.event("job_claimed", **told, deliveries=claimant.lease.deliveries)
        return job
    services.telemetry.event("job_cancelled" if job.state is State.CANCELLED else "job_dead", **told, reason=job.error)
    return Acknowledge()


def _answer(
    verdict: transitions.Verdict, seen: Job | None, owner: transitions.Owner, claimant: Claimant, services: Services
) -> Change | Disposition:
    """The write that a verdict asks for, conditional on the version just seen; or what happens to the message."""
    lease, now = claimant.lease, services.clock.now()
    if seen is None or isinstance(verdict, Missing):
        return bury_poison(lease, Poisoned("no such job was accepted", job_id=claimant.ticket.job_id), services)
    told: dict[str, str | int] = {
        "job_id": seen.job_id,
        "queue": lease.queue,
        "state": str(seen.state),
        "deliveries": lease.deliveries,
    }
    write_id, expires_at = services.ids.mark(), transitions.expiry(now, services.retention_seconds)
    match verdict:
        case Finished():
            services.telemetry.event("claim_finished", **told)
            return Acknowledge()
        case Held(until):
            services.telemetry.event("job_held", **told)
            return Release(min(_seconds_until(until, now), claimant.lease_seconds))
        case Early(until):
            services.telemetry.event("job_early", **told)
            return Release(_seconds_until(until, now))
        case CancelNow():
            return transitions.cancel_seen(seen, write_id=write_id, now=now, expires_at=expires_at)
        case UsedUp():
            return transitions.bury_used_up(seen, write_id=write_id, now=now, expires_at=expires_at)
        case Free(counted):
            return transitions.claim_seen(seen, owner, counted=counted, write_id=write_id)


def _seconds_until(until: Millis, now: Millis) -> float:
    return max(0.0, (until - now) / 1000)
