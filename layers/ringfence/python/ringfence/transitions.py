"""The rules of the ledger: each transition of a job as one conditional `Change`.

Nothing here touches a store. An owner's write relies on its token, its attempt and ``running``; anybody else's on the state
and version it saw. Break a line and a job is lost or an effect doubled.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ringfence.change import AtMost, Below, Change, Condition, Is, OneOf, Unset, all_of, any_of
from ringfence.job import WAITING, Job, Millis, PastAttempt, Progress, State
from ringfence.ports import MAX_DELAY_SECONDS
from ringfence.verdict import RETURNS_PER_ATTEMPT
from ringfence.wire import JobRecord, Ticket

LEDGER_LEASE_MARGIN_MS = 1_000
"""The row's lease ends this much before the queue's, so that whoever gets the ticket next finds the row free."""

HISTORY_LENGTH = 3
ERROR_LENGTH = 2_000
"""Characters of an error that are kept: a bounded history whatever a job raises."""

RETENTION_FLOOR_SECONDS = 6 * 24 * 3600
"""A finished row outlives the log's retention (five days at most in the template), or a replayed record would run it again."""

MAX_AHEAD_SECONDS = 366 * 24 * 3600
"""How far ahead a job may be scheduled or put off: the same day next year."""


def expiry(job: Job, now: Millis, retention_seconds: float) -> int:
    """``expires_at`` for a row that ends now. A clock that is behind the row's own times does not shorten its life."""
    end = max(now, job.created_at, job.started_at or 0)
    return end // 1000 + int(max(retention_seconds, RETENTION_FLOOR_SECONDS))


# --- accepting -------------------------------------------------------------------------------------------------------


def accept(record: JobRecord, *, write_id: str, due_id: str) -> Job:
    """The new row of an accepted job: ``queued``, or ``scheduled`` with a due mark if a queue cannot delay it that long."""
    far = is_far(record)
    return Job(
        job_id=record.job_id,
        tenant=record.tenant,
        queue=record.queue,
        name=record.name,
        payload=record.payload,
        payload_sha256=record.payload_sha256,
        state=State.SCHEDULED if far else State.QUEUED,
        write_id=write_id,
        version=1,
        max_attempts=record.max_attempts,
        run_at=record.run_at,
        due_id=due_id if far else None,
        created_at=record.created_at,
        traceparent=record.traceparent,
    )


def accept_parked(record: JobRecord, *, write_id: str, run_at: Millis, due_id: str) -> Job:
    """The relay's: the new row of a job that was to have none, and has to wait longer than in a queue, for its time or for its
    turn in line. From now on it is a job like any other."""
    row = accept(record, write_id=write_id, due_id=due_id)
    return dataclasses.replace(row, state=State.SCHEDULED, run_at=run_at, due_id=due_id)


def put_off(record: JobRecord, attempts: int, error: str, *, write_id: str, run_at: Millis, due_id: str) -> Job:
    """The new row of a job that had none, after so many failed attempts: it waits for its time."""
    row = accept_parked(record, write_id=write_id, run_at=run_at, due_id=due_id)
    return dataclasses.replace(row, attempts=attempts, error=_clip(error))


def die_without_row(
    record: JobRecord, attempts: int, error: str, *, write_id: str, now: Millis, retention_seconds: float
) -> Job:
    """The new row of a job that had none: dead, kept with its payload for a redrive."""
    row = dataclasses.replace(accept(record, write_id=write_id, due_id=""), run_at=None, due_id=None)
    return dataclasses.replace(
        row,
        state=State.DEAD,
        attempts=attempts,
        error=_clip(error),
        finished_at=now,
        expires_at=expiry(row, now, retention_seconds),
    )


def park(record: JobRecord, *, write_id: str, run_at: Millis, due_id: str) -> Change:
    """The relay's: the job waits on its row instead of in the queue, for its time or for its turn in line.

    Only if nobody has claimed it yet: a record that is read again must not park a job that runs, or that wants a retry.
    """
    return Change(
        job_id=record.job_id,
        write_id=write_id,
        condition=all_of(Is("state", State.QUEUED), Is("token", 0)),
        set={"state": State.SCHEDULED, "run_at": run_at, "due_id": due_id},
        seen=accept(record, write_id="", due_id=""),
    )


def is_far(record: JobRecord) -> bool:
    """Whether the job is so far ahead that timers, not the relay, push its ticket."""
    return record.run_at is not None and record.run_at - record.created_at > MAX_DELAY_SECONDS * 1000


# --- claiming --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Owner:
    """What a claim writes about its owner."""

    ticket: Ticket
    deliveries: int
    attempt_id: str
    worker: str
    now: Millis
    lease_until: Millis
    max_attempts: int | None = None
    """What the job's code allows, where that is less than what the submission did."""


def lease_end(now: Millis, lease_seconds: float) -> Millis:
    """``lease_until`` for a lease that starts now: a little before the queue's own end, but never in the past."""
    length = int(lease_seconds * 1000)
    return now + max(length - LEDGER_LEASE_MARGIN_MS, length // 2)


def claim_waiting(owner: Owner, *, write_id: str) -> Change:
    """The common claim, of a row not seen before: one conditional update that mints the token."""
    waiting = OneOf("state", WAITING)
    due = any_of(Unset("run_at"), AtMost("run_at", owner.now))
    attempts_left: list[Condition] = [Below("attempts", "max_attempts")]
    if owner.max_attempts is not None:
        attempts_left.append(AtMost("attempts", owner.max_attempts - 1))
    not_cancelled = Unset("cancel_requested")
    return Change(
        job_id=owner.ticket.job_id,
        write_id=write_id,
        condition=all_of(waiting, due, *attempts_left, not_cancelled),
        set=_owned_by(owner),
        add={"token": 1, "attempts": 1},
    )


def claim_seen(seen: Job, owner: Owner, *, counted: bool, write_id: str) -> Change:
    """The claim of a row just judged `Free`: mostly a take-over from an owner whose lease is over, unless that one has given it
    back meanwhile."""
    lost = {}
    if seen.state is State.RUNNING:
        lost = {**_ended_attempt(seen, owner.now, "lost"), "hand_overs": 0 if counted else seen.hand_overs + 1}
    return Change(
        job_id=seen.job_id,
        write_id=write_id,
        condition=_as_seen(seen),
        set={**_owned_by(owner), **lost},
        add={"token": 1, "attempts": 1} if counted else {"token": 1},
        seen=seen,
    )


def bury_used_up(seen: Job, *, write_id: str, now: Millis, expires_at: int) -> Change:
    """Write ``dead`` over a row whose attempts are used up, with a token above the last owner's."""
    reason = seen.error or "the worker was lost"
    return Change(
        job_id=seen.job_id,
        write_id=write_id,
        condition=_as_seen(seen),
        set={
            **_terminal(State.DEAD, now, expires_at),
            **_ended_attempt(seen, now, "lost"),
            "error": _clip(f"all {seen.attempts} attempts are used up; the last one: {reason}"),
        },
        add={"token": 1},
        seen=seen,
    )


def bury_unreadable(seen: Job, reason: str, *, write_id: str, now: Millis, expires_at: int) -> Change:
    """Write ``dead`` for a job whose ticket cannot be read."""
    return Change(
        job_id=seen.job_id,
        write_id=write_id,
        condition=all_of(_as_seen(seen), OneOf("state", WAITING)),
        set={**_terminal(State.DEAD, now, expires_at), "error": _clip(reason)},
        add={"token": 1},
        seen=seen,
    )


# --- the owner's writes ----------------------------------------------------------------------------------------------


def still_mine(job: Job) -> Condition:
    """What every write of an owner relies on: equal, not greater-or-equal."""
    return all_of(Is("token", job.token), Is("attempt_id", job.attempt_id), Is("state", State.RUNNING))


def heartbeat(job: Job, *, write_id: str, lease_until: Millis, progress: Progress | None) -> Change:
    """Keep the row's lease; carries progress along."""
    reported: dict[str, Any] = {} if progress is None else {"progress": progress}
    return _owner(job, write_id, {"lease_until": lease_until, **reported})


def checkpoint(job: Job, state: str, *, write_id: str) -> Change:
    """Remember how far the job has come; what a later attempt starts from."""
    return _owner(job, write_id, {"checkpoint": state, "hand_overs": 0})


def succeed(job: Job, result: str, *, write_id: str, now: Millis, expires_at: int) -> Change:
    """The commit. With effects, the same transaction carries them."""
    ended = {**_terminal(State.SUCCEEDED, now, expires_at), **_ended_attempt(job, now, "succeeded")}
    return _owner(job, write_id, {**ended, "result": result, "checkpoint": None, "error": None})


def retry_soon(job: Job, error: str, *, write_id: str, now: Millis, run_at: Millis) -> Change:
    """Back to ``queued``; the ticket is released with the delay."""
    return _owner(
        job,
        write_id,
        {**_given_back(State.QUEUED), **_ended_attempt(job, now, "retry"), "run_at": run_at, "error": _clip(error)},
    )


def retry_later(job: Job, error: str, *, write_id: str, now: Millis, run_at: Millis, due_id: str) -> Change:
    """Back to ``scheduled`` with a due mark; only then may the ticket be acknowledged."""
    return _owner(
        job,
        write_id,
        {
            **_given_back(State.SCHEDULED),
            **_ended_attempt(job, now, "retry"),
            "run_at": run_at,
            "due_id": due_id,
            "error": _clip(error),
        },
    )


def hand_over(job: Job, *, counted: bool, write_id: str, now: Millis) -> Change:
    """Back to ``queued`` with the checkpoint kept; the attempt, if this claim counted one, is given back unless the job has
    stopped advancing."""
    stuck = job.hand_overs + 1 >= RETURNS_PER_ATTEMPT
    changed = {
        **_given_back(State.QUEUED),
        **_ended_attempt(job, now, "handed-over"),
        "hand_overs": 0 if stuck else job.hand_overs + 1,
    }
    return _owner(job, write_id, {**changed}, add={"attempts": -1} if counted and not stuck else {})


def let_go(job: Job, *, counted: bool, write_id: str, now: Millis, error: str) -> Change:
    """Back to ``queued`` because the ledger was too busy to end the attempt: not the job's fault, so it costs it nothing."""
    changed = {**_given_back(State.QUEUED), **_ended_attempt(job, now, "handed-over"), "error": _clip(error)}
    return _owner(job, write_id, changed, add={"attempts": -1} if counted else {})


def give_up(job: Job, error: str, *, write_id: str, now: Millis, expires_at: int) -> Change:
    """The owner's ``dead``: no attempts left, or none would help."""
    ended = {**_terminal(State.DEAD, now, expires_at), **_ended_attempt(job, now, "dead")}
    return _owner(job, write_id, {**ended, "error": _clip(error)})


def cancel_mine(job: Job, *, write_id: str, now: Millis, expires_at: int) -> Change:
    """The owner honours a cancel instead of a retry or hand-over."""
    return _owner(job, write_id, {**_terminal(State.CANCELLED, now, expires_at), **_ended_attempt(job, now, "cancelled")})


# --- everybody else's ------------------------------------------------------------------------------------------------


def cancel_seen(seen: Job, *, write_id: str, now: Millis, expires_at: int) -> Change:
    """Cancel a job that nobody runs (or whose runner is gone, as `judge` found), fencing off a late owner."""
    ended = _ended_attempt(seen, now, "lost") if seen.state is State.RUNNING else {}
    return Change(
        job_id=seen.job_id,
        write_id=write_id,
        condition=_as_seen(seen),
        set={**_terminal(State.CANCELLED, now, expires_at), **ended},
        add={"token": 1},
        seen=seen,
    )


def request_cancel(seen: Job, *, write_id: str) -> Change:
    """Ask the running owner to stop; the next claim, retry or hand-over turns it into ``cancelled``."""
    return Change(job_id=seen.job_id, write_id=write_id, condition=_as_seen(seen), set={"cancel_requested": True}, seen=seen)


@dataclass(frozen=True, slots=True)
class Edited:
    """Another payload for a redriven job; ``submitted_sha256`` is of the canonical form of the one it replaces."""

    payload: str
    payload_sha256: str
    submitted_sha256: str


def redrive(seen: Job, *, write_id: str, now: Millis, due_id: str, edited: Edited | None = None) -> Change:
    """``dead → scheduled``, due now, attempts 0, token kept. Timers push the ticket."""
    changed: dict[str, Any] = {}
    if edited is not None:
        changed = {
            "payload": edited.payload,
            "payload_sha256": edited.payload_sha256,
            "request_sha256": seen.request_sha256 or edited.submitted_sha256,
        }
    return Change(
        job_id=seen.job_id,
        write_id=write_id,
        condition=all_of(_as_seen(seen), Is("state", State.DEAD)),
        set={
            **changed,
            "state": State.SCHEDULED,
            "run_at": now,
            "due_id": due_id,
            "attempts": 0,
            "hand_overs": 0,
            "finished_at": None,
            "expires_at": None,
            "cancel_requested": False,
        },
        seen=seen,
    )


def clear_mark(seen: Job, *, write_id: str) -> Change:
    """The timers' second step, after the push: the mark goes, and a ``scheduled`` row becomes ``queued``.

    Relies on the mark just pushed for and on the state it saw; a newer mark stays.
    """
    moved = {"state": State.QUEUED} if seen.state is State.SCHEDULED else {}
    return Change(
        job_id=seen.job_id,
        write_id=write_id,
        condition=all_of(Is("due_id", seen.due_id), Is("state", seen.state)),
        set={**moved, "due_id": None},
        seen=seen,
    )


def mark_again(seen: Job, *, write_id: str, run_at: Millis, due_id: str) -> Change:
    """Reconciling: timers owe the job a ticket again, for its time or for its turn in line. One that runs goes on running, and
    if its owner gives it back its ticket is on the way."""
    moved = {} if seen.state is State.RUNNING else {"state": State.SCHEDULED}
    return Change(
        job_id=seen.job_id,
        write_id=write_id,
        condition=_as_seen(seen),
        set={**moved, "run_at": run_at, "due_id": due_id},
        seen=seen,
    )


def join_line(seen: Job, *, write_id: str, place: Millis, due_id: str) -> Change:
    """The timers': a job that has fallen due waits for its turn.

    Relies on the mark that was due, and on the state and time it saw: a claim leaves the mark alone, and a retry that came
    after it may have put the job off.
    """
    return Change(
        job_id=seen.job_id,
        write_id=write_id,
        condition=all_of(Is("due_id", seen.due_id), Is("state", seen.state), Is("run_at", seen.run_at)),
        set={"run_at": place, "due_id": due_id},
        seen=seen,
    )


# --- pieces ----------------------------------------------------------------------------------------------------------


def _as_seen(seen: Job) -> Condition:
    return all_of(Is("state", seen.state), Is("version", seen.version))


def _owner(job: Job, write_id: str, changed: Mapping[str, Any], add: Mapping[str, int] | None = None) -> Change:
    return Change(job_id=job.job_id, write_id=write_id, condition=still_mine(job), set=changed, add=add or {}, seen=job)


def _owned_by(owner: Owner) -> dict[str, Any]:
    return {
        "state": State.RUNNING,
        "attempt_id": owner.attempt_id,
        "ticket_id": owner.ticket.ticket_id,
        "ticket_deliveries": owner.deliveries,
        "worker": owner.worker,
        "started_at": owner.now,
        "lease_until": owner.lease_until,
    }


def _given_back(state: State) -> dict[str, Any]:
    return {"state": state, "attempt_id": None, "worker": None, "lease_until": None}


def _terminal(state: State, now: Millis, expires_at: int) -> dict[str, Any]:
    return {
        "state": state,
        "finished_at": now,
        "expires_at": expires_at,
        "attempt_id": None,
        "lease_until": None,
        "run_at": None,
        "due_id": None,
    }


def _ended_attempt(job: Job, now: Millis, outcome: str) -> dict[str, Any]:
    if job.state is not State.RUNNING:
        return {}
    ended = PastAttempt(job.token, job.started_at or now, now, outcome)
    return {"history": (*job.history, ended)[-HISTORY_LENGTH:]}


def _clip(error: str) -> str:
    # Python puts lone surrogates into messages about undecodable file names, and no store takes them.
    error = error.encode(errors="backslashreplace").decode()
    return error if len(error) <= ERROR_LENGTH else error[: ERROR_LENGTH - 1] + "…"
