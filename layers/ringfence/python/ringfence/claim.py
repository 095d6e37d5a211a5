"""Claiming a job for a leased ticket: one conditional update, and what to do when something stands in its way.

The rules are `verdict.judge`; here they are carried out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass

from ringfence import transitions
from ringfence.change import Change, Refused, Written
from ringfence.company import LATER_SECONDS
from ringfence.errors import Poisoned, Unavailable
from ringfence.job import Job, Millis, State
from ringfence.outcome import Acknowledge, Disposition, Keep, Release
from ringfence.patience import REST_SECONDS, patiently
from ringfence.poison import bury, set_aside_message
from ringfence.ports import Lease, Services
from ringfence.verdict import CancelNow, Early, Finished, Free, Held, Missing, UsedUp, Verdict, judge, was_lost_twice
from ringfence.wire import Ticket

MOST_DELIVERIES_ALONE = 20
"""A message that comes more often runs among others, whatever it did to its workers: for some twenty minutes it was never the
right time to be alone, and it shall not wait for ever."""

LOOKS = 10
"""How often a claim looks again at a row that changed under it, before it puts the ticket back."""


@dataclass(frozen=True, slots=True)
class Claimant:
    """Who asks, with what, and for how long."""

    worker: str
    ticket: Ticket
    lease: Lease
    lease_seconds: float
    max_attempts: int | None


@dataclass(frozen=True, slots=True)
class Claimed:
    """The row, now ours. ``counted``: the claim counted an attempt, which a hand-over may give back."""

    job: Job
    counted: bool


def claim(
    claimant: Claimant,
    services: Services,
    be_alone: Callable[[], bool] = lambda: True,
    is_over: Callable[[], bool] = lambda: False,
) -> Claimed | Disposition:
    """Mint the token and own the job; or say what happens to the message instead.

    ``be_alone`` is asked before a job is claimed whose last two workers were lost; it says no if that cannot be had now.
    ``is_over`` says whether nobody waits for the answer any more: a thread that was frozen with its function claims nothing in
    the next invocation, where it would only keep the job from whoever has it there.
    """
    ticket, lease = claimant.ticket, claimant.lease
    now = services.clock.now()
    owner = transitions.Owner(
        ticket=ticket,
        deliveries=lease.deliveries,
        attempt_id=services.ids.mark(),
        worker=claimant.worker,
        now=now,
        lease_until=transitions.lease_end(now, claimant.lease_seconds),
        max_attempts=claimant.max_attempts,
    )
    change = transitions.claim_waiting(owner, write_id=services.ids.mark())

    def write() -> Written | Refused | None:
        return None if is_over() else services.ledger.write(change)

    try:
        for _ in range(LOOKS):
            outcome = patiently(write, services)
            if outcome is None:
                return Keep()  # by now it may be another's
            if isinstance(outcome, Written):
                return _written(Claimed(outcome.job, "attempts" in change.add), lease, services)
            verdict = judge(outcome.seen, ticket, lease.deliveries, services.clock.now(), claimant.max_attempts)
            if isinstance(verdict, Free) and _may_kill(outcome.seen, lease) and not be_alone():
                services.telemetry.event("job_not_alone", job_id=ticket.job_id, queue=lease.queue, deliveries=lease.deliveries)
                return Release(LATER_SECONDS)
            answer = _answer(verdict, outcome.seen, owner, claimant, services)
            if not isinstance(answer, Change):
                return answer
            change = answer
    except Unavailable as fault:
        services.telemetry.event("claim_failed", job_id=ticket.job_id, queue=lease.queue, reason=str(fault))
    return Release(REST_SECONDS)


def _may_kill(seen: Job | None, lease: Lease) -> bool:
    """Whether a job shall run alone."""
    return seen is not None and was_lost_twice(seen) and lease.deliveries <= MOST_DELIVERIES_ALONE


def bury_poison(lease: Lease, fault: Poisoned, services: Services) -> Disposition:
    """A message nobody can read: into the quarantine, and the job it names, if any, is dead with the reason."""
    try:
        set_aside_message(lease, fault, services)
        if fault.job_id is not None:
            bury(fault.job_id, fault.reason, services)
    except Unavailable:
        return Release(REST_SECONDS)
    return Acknowledge()


def _written(claimed: Claimed, lease: Lease, services: Services) -> Claimed | Disposition:
    job = claimed.job
    told: dict[str, str | int] = {"job_id": job.job_id, "queue": job.queue, "job_name": job.name, "token": job.token}
    if job.state is State.RUNNING:
        # The answer may have corrected the clock that said it was time (`ringfence.aws.clock`).
        now = services.clock.now()
        if (seconds := _seconds_early(job, now)) > 0:
            return _give_back_early(claimed, now, seconds, services)
        services.telemetry.event(
            "job_claimed", **told, attempt=job.attempts, deliveries=lease.deliveries, traceparent=job.traceparent
        )
        return claimed
    if job.state is State.CANCELLED:
        services.telemetry.event("job_cancelled", **told)
    else:
        services.telemetry.event("job_dead", **told, attempt=job.attempts, reason="attempts used up")
    return Acknowledge()


def _seconds_early(job: Job, now: Millis) -> float:
    return 0.0 if job.run_at is None else _seconds_until(job.run_at, now)


def _give_back_early(claimed: Claimed, now: Millis, seconds_early: float, services: Services) -> Disposition:
    """A fast clock has claimed the job before its time: none of its code has run, and no attempt is counted."""
    job = claimed.job
    services.telemetry.event("job_claimed_early", job_id=job.job_id, queue=job.queue, token=job.token)
    error = job.error or "claimed before its time, by a fast clock"
    give_back = transitions.let_go(job, counted=claimed.counted, write_id=services.ids.mark(), now=now, error=error)
    patiently(lambda: services.ledger.write(give_back), services)
    return Release(seconds_early)


def _answer(
    verdict: Verdict, seen: Job | None, owner: transitions.Owner, claimant: Claimant, services: Services
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
    write_id, expires_at = services.ids.mark(), transitions.expiry(seen, now, services.retention_seconds)
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
            lately = dataclasses.replace(owner, now=now, lease_until=transitions.lease_end(now, claimant.lease_seconds))
            return transitions.claim_seen(seen, lately, counted=counted, write_id=write_id)


def _seconds_until(until: Millis, now: Millis) -> float:
    return max(0.0, (until - now) / 1000)
