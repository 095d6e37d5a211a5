"""What a claim finds in its way: one verdict on the row just seen, by the rules of DESIGN §5's claim, in their order."""

from __future__ import annotations

from dataclasses import dataclass

from ringfence.job import WAITING, Job, Millis, State
from ringfence.wire import Ticket

CLOCK_SKEW_MS = 5_000
"""How far two machines' clocks are trusted to agree. Too small costs a needless run, never a second effect."""


RETURNS_PER_ATTEMPT = 3
"""So many hand-overs and uncounted take-overs without a newer checkpoint count as an attempt: a job that never advances, or
that kills its process while it has a second ticket, must end."""


@dataclass(frozen=True, slots=True)
class Missing:
    """No row: the ticket names a job nobody accepted."""


@dataclass(frozen=True, slots=True)
class Finished:
    """The job has ended: acknowledge, run nothing."""


@dataclass(frozen=True, slots=True)
class CancelNow:
    """A cancel was asked for and nobody else runs the job: write ``cancelled``, then acknowledge."""


@dataclass(frozen=True, slots=True)
class Held:
    """Another worker runs it: put the ticket back until its lease is over."""

    until: Millis


@dataclass(frozen=True, slots=True)
class Early:
    """Not due yet: put the ticket back until then, never acknowledge it."""

    until: Millis


@dataclass(frozen=True, slots=True)
class UsedUp:
    """No attempts are left: write ``dead``, raising the token so that a late owner cannot write."""


@dataclass(frozen=True, slots=True)
class Free:
    """Nothing stands in the way. ``counted`` is false when only a clock says that the last owner is gone."""

    counted: bool


Verdict = Missing | Finished | CancelNow | Held | Early | UsedUp | Free


def judge(job: Job | None, ticket: Ticket, deliveries: int, now: Millis, max_attempts: int | None = None) -> Verdict:
    """What stands between this ticket and a claim of the row just seen.

    ``max_attempts`` is what the job's code allows, where that is less than what the submission did.
    """
    if job is None:
        return Missing()
    if job.state.terminal:
        return Finished()
    used_up = job.attempts >= attempts_allowed(job, max_attempts)
    if job.state in WAITING:
        if job.cancel_requested:
            return CancelNow()
        if job.run_at is not None and job.run_at > now:
            return Early(job.run_at)
        return UsedUp() if used_up else Free(counted=True)
    came_again = job.ticket_id == ticket.ticket_id and deliveries > job.ticket_deliveries
    free_at = (job.lease_until or 0) + CLOCK_SKEW_MS
    lapsed = free_at < now
    if not came_again and not lapsed:
        return Held(free_at)
    if job.cancel_requested:
        return CancelNow()
    counted = came_again or job.hand_overs + 1 >= RETURNS_PER_ATTEMPT
    if counted and used_up:
        # A healthy job must not die of a duplicate: over a running row its lease must be over by the clock, too.
        return UsedUp() if lapsed else Held(free_at)
    return Free(counted)


def was_lost_twice(seen: Job) -> bool:
    """Whether a job just found free to be taken over has lost the owner before this one as well: it may be what kills them."""
    return seen.state is State.RUNNING and bool(seen.history) and seen.history[-1].outcome == "lost"


def attempts_allowed(job: Job, max_attempts: int | None) -> int:
    """The submission's attempts, or fewer if the job's code says so."""
    return job.max_attempts if max_attempts is None else min(job.max_attempts, max_attempts)
