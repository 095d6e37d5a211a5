"""Carrying out an attempt's one outcome: the last write of its owner, then what happens to the message."""

from __future__ import annotations

from collections.abc import Sequence

from ringfence import transitions
from ringfence.effects import Effect
from ringfence.errors import LeaseLost, Unavailable
from ringfence.job import Job
from ringfence.lease import Ownership
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
    outcome_of,
)
from ringfence.ports import Services
from ringfence.transitions import MAX_QUEUE_DELAY_SECONDS

UNDECIDED_PAUSE_SECONDS = 5.0


def settle(ownership: Ownership, outcome: Outcome, effects: Sequence[Effect], services: Services) -> Disposition:
    """Write the outcome; the caller has taken the attempt's latch. What goes wrong at the commit becomes the outcome."""
    try:
        return _carry_out(ownership, outcome, effects, services)
    except Exception as fault:  # noqa: BLE001 - an effect's fault, a lost lease, a store that may not be written to
        instead = outcome_of(fault)
    try:
        return _carry_out(ownership, instead, (), services)
    except (LeaseLost, Unavailable) as fault:
        return _carry_out(ownership, outcome_of(fault), (), services)


def _carry_out(ownership: Ownership, outcome: Outcome, effects: Sequence[Effect], services: Services) -> Disposition:
    match outcome:
        case Done(result):
            return _succeed(ownership, result, effects, services)
        case Failed(error, after_seconds):
            return _fail(ownership, error, after_seconds, services)
        case Hopeless(error):
            return _give_up(ownership, error, services)
        case Interrupted():
            return _hand_over(ownership, services)
        case Lost():
            _tell("lease_lost", ownership.job, services)
            return Keep()
        case Undecided():
            # Neither succeeded nor failed: the next delivery finds out which.
            _tell("outcome_undecided", ownership.job, services)
            return Release(UNDECIDED_PAUSE_SECONDS)


def _succeed(ownership: Ownership, result: str, effects: Sequence[Effect], services: Services) -> Disposition:
    now, expires_at = _end(services)
    job = ownership.write(
        lambda job, write_id: transitions.succeed(job, result, write_id=write_id, now=now, expires_at=expires_at),
        effects,
        purpose="commit",
    )
    _tell("job_succeeded", job, services, milliseconds=now - (job.started_at or now))
    return Acknowledge()


def _fail(ownership: Ownership, error: str, after_seconds: float, services: Services) -> Disposition:
    job, spec = ownership.job, ownership.spec
    if job.cancel_requested:
        return _cancel(ownership, services)
    allowed = min(job.max_attempts, spec.max_attempts or job.max_attempts)
    if job.attempts >= allowed:
        return _give_up(ownership, f"all {allowed} attempts failed; the last one: {error}", services)
    delay_seconds = spec.backoff.delay(job.attempts, services.random_source, after_seconds)
    now = services.clock.now()
    run_at = now + round(delay_seconds * 1000)
    if delay_seconds <= MAX_QUEUE_DELAY_SECONDS:
        ownership.write(
            lambda job, write_id: transitions.retry_soon(job, error, write_id=write_id, now=now, run_at=run_at), purpose="retry"
        )
        disposition: Disposition = Release(delay_seconds)
    else:
        due_id = services.ids.mark()
        ownership.write(
            lambda job, write_id: transitions.retry_later(job, error, write_id=write_id, now=now, run_at=run_at, due_id=due_id),
            purpose="retry",
        )
        disposition = Acknowledge()
    _tell("job_retried", job, services, reason=error, delay_seconds=round(delay_seconds, 3))
    return disposition


def _give_up(ownership: Ownership, error: str, services: Services) -> Disposition:
    now, expires_at = _end(services)
    job = ownership.write(
        lambda job, write_id: transitions.give_up(job, error, write_id=write_id, now=now, expires_at=expires_at), purpose="dead"
    )
    _tell("job_dead", job, services, reason=error)
    return Acknowledge()


def _hand_over(ownership: Ownership, services: Services) -> Disposition:
    if ownership.job.cancel_requested:
        return _cancel(ownership, services)
    now = services.clock.now()
    ownership.write(lambda job, write_id: transitions.hand_over(job, write_id=write_id, now=now), purpose="hand-over")
    _tell("job_handed_over", ownership.job, services)
    return Release()


def _cancel(ownership: Ownership, services: Services) -> Disposition:
    now, expires_at = _end(services)
    job = ownership.write(
        lambda job, write_id: transitions.cancel_mine(job, write_id=write_id, now=now, expires_at=expires_at), purpose="cancel"
    )
    _tell("job_cancelled", job, services)
    return Acknowledge()


def _end(services: Services) -> tuple[int, int]:
    now = services.clock.now()
    return now, transitions.expiry(now, services.retention_seconds)


def _tell(event: str, job: Job, services: Services, **fields: str | int | float) -> None:
    services.telemetry.event(
        event, job_id=job.job_id, queue=job.queue, job_name=job.name, token=job.token, attempt=job.attempts, **fields
    )
