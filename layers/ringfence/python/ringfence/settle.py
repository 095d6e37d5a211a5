"""Carrying out an attempt's one outcome: the last write of its owner, then what happens to the message."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from ringfence import transitions
from ringfence.carried import Carried, settle_carried
from ringfence.effects import Effect
from ringfence.errors import LeaseLost, Unavailable
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
    outcome_of_commit,
)
from ringfence.ownership import Ownership
from ringfence.patience import REST_SECONDS
from ringfence.ports import MAX_DELAY_SECONDS, Services
from ringfence.transitions import MAX_AHEAD_SECONDS
from ringfence.verdict import attempts_allowed


def settle(ownership: Ownership | Carried, outcome: Outcome, effects: Sequence[Effect], services: Services) -> Disposition:
    """Write the outcome; the caller has taken the attempt's latch. What goes wrong at the commit becomes the outcome."""
    if isinstance(ownership, Carried):
        return settle_carried(ownership, outcome, services)
    try:
        return _carry_out(ownership, outcome, effects, services)
    except Exception as fault:  # noqa: BLE001 - an effect's fault, a lost lease, a store that may not be written to
        instead = outcome_of_commit(fault)
    try:
        return _carry_out(ownership, instead, (), services)
    except (LeaseLost, Unavailable) as fault:
        return _carry_out(ownership, outcome_of_commit(fault), (), services)


def _carry_out(ownership: Ownership, outcome: Outcome, effects: Sequence[Effect], services: Services) -> Disposition:
    match outcome:
        case Done(result):
            return _succeed(ownership, result, effects, services)
        case Failed():
            return _fail(ownership, outcome, services)
        case Hopeless():
            return _give_up(ownership, outcome, services)
        case Interrupted():
            return _hand_over(ownership, services)
        case Lost():
            _tell("lease_lost", ownership.job, services)
            return Keep()
        case Undecided():
            return _let_go(ownership, services)


def _let_go(ownership: Ownership, services: Services) -> Disposition:
    """Neither succeeded nor failed, as far as we know: the job goes back, and it costs it nothing.

    Safe either way: if the commit was applied, the row refuses; if it was not, it never will be once this is written.
    """
    _tell("outcome_undecided", ownership.job, services)
    now, error = services.clock.now(), "the ledger was too busy to end the attempt"
    with suppress(Unavailable):  # the next delivery finds out
        ownership.write(
            lambda job, write_id: transitions.let_go(job, counted=ownership.counted, write_id=write_id, now=now, error=error),
            purpose="let-go",
        )
    return Release(REST_SECONDS + services.random_source.uniform(0.0, REST_SECONDS))


def _succeed(ownership: Ownership, result: str, effects: Sequence[Effect], services: Services) -> Disposition:
    now, expires_at = _end(ownership.job, services)
    job = ownership.write(
        lambda job, write_id: transitions.succeed(job, result, write_id=write_id, now=now, expires_at=expires_at),
        effects,
        purpose="commit",
    )
    _tell("job_succeeded", job, services, milliseconds=now - (job.started_at or now))
    return Acknowledge()


def _fail(ownership: Ownership, failed: Failed, services: Services) -> Disposition:
    job, spec = ownership.job, ownership.spec
    if job.cancel_requested:
        return _cancel(ownership, services)
    allowed = attempts_allowed(job, spec.max_attempts)
    if job.attempts >= allowed:
        error = f"all {allowed} attempts failed; the last one: {failed.error}"
        return _give_up(ownership, Hopeless(error, failed.cause, failed.frames), services)
    delay_seconds = spec.backoff.delay(job.attempts, services.random_source, min(failed.after_seconds, MAX_AHEAD_SECONDS))
    now, error = services.clock.now(), failed.error
    run_at = now + round(delay_seconds * 1000)
    if delay_seconds <= MAX_DELAY_SECONDS and not services.holds_retries(job.queue):
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
    delay_seconds = round(delay_seconds, 3)
    _tell("job_retried", job, services, reason=failed.cause, delay_seconds=delay_seconds, traceback=failed.frames or None)
    return disposition


def _give_up(ownership: Ownership, hopeless: Hopeless, services: Services) -> Disposition:
    now, expires_at = _end(ownership.job, services)
    job = ownership.write(
        lambda job, write_id: transitions.give_up(job, hopeless.error, write_id=write_id, now=now, expires_at=expires_at),
        purpose="dead",
    )
    _tell("job_dead", job, services, reason=hopeless.cause, traceback=hopeless.frames or None)
    return Acknowledge()


def _hand_over(ownership: Ownership, services: Services) -> Disposition:
    if ownership.job.cancel_requested:
        return _cancel(ownership, services)
    now = services.clock.now()
    ownership.write(
        lambda job, write_id: transitions.hand_over(job, counted=ownership.counted, write_id=write_id, now=now),
        purpose="hand-over",
    )
    _tell("job_handed_over", ownership.job, services)
    return Release()


def _cancel(ownership: Ownership, services: Services) -> Disposition:
    now, expires_at = _end(ownership.job, services)
    job = ownership.write(
        lambda job, write_id: transitions.cancel_mine(job, write_id=write_id, now=now, expires_at=expires_at), purpose="cancel"
    )
    _tell("job_cancelled", job, services)
    return Acknowledge()


def _end(job: Job, services: Services) -> tuple[int, int]:
    now = services.clock.now()
    return now, transitions.expiry(job, now, services.retention_seconds)


def _tell(event: str, job: Job, services: Services, **fields: str | int | float | None) -> None:
    services.telemetry.event(
        event, job_id=job.job_id, queue=job.queue, job_name=job.name, token=job.token, attempt=job.attempts, **fields
    )
