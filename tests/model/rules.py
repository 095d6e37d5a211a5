"""The product's own decisions on abstract rows: its transitions, its verdicts, its conditions, each worked out once.

Ids and versions are small numbers, time is what it decides: a `run_at` is past or to come, a lease has lapsed or not.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import NamedTuple

from ringfence import transitions, verdict
from ringfence.change import All, Change, Condition, Is, apply, holds
from ringfence.job import Job, State
from ringfence.wire import JobRecord, Ticket

NOW = 1_700_000_000_000
TO_COME = NOW + 60_000
PAST = NOW - 1
LEASE_UNTIL = NOW + 10_000
LONG_AFTER = LEASE_UNTIL + verdict.CLOCK_SKEW_MS + 1

STATES = tuple(State)
SCHEDULED, QUEUED, RUNNING, SUCCEEDED, DEAD, CANCELLED = range(len(STATES))
TERMINAL = frozenset({SUCCEEDED, DEAD, CANCELLED})

NONE, DUE, FUTURE = 0, 1, 2
"""A row's ``run_at``: not set, past, or to come."""

FRESH = -1
"""An id that a change makes up; whoever keeps the row gives it a number."""


class Row(NamedTuple):
    """What a row's future depends on."""

    state: int
    token: int = 0
    attempts: int = 0
    hand_overs: int = 0
    cancel: bool = False
    run_at: int = NONE
    due: int = 0
    """The number of its due mark; 0: none."""
    attempt: int = 0
    """The number of the claim that owns it; 0: nobody."""
    ticket: int = 0
    deliveries: int = 0


class Owner(NamedTuple):
    """What an owner knows of its job."""

    token: int
    attempt: int
    attempts: int
    hand_overs: int
    counted: bool
    cancel: bool = False


Make = Callable[[Job, "Given"], Change]


class Given(NamedTuple):
    """What a change is made of beside the row that was seen."""

    ticket: int = 0
    deliveries: int = 0
    counted: bool = True
    later: bool = False
    """Whether the time it writes is still to come."""


def _owner(given: Given) -> transitions.Owner:
    return transitions.Owner(
        ticket=_ticket(given.ticket),
        deliveries=given.deliveries,
        attempt_id="fresh",
        worker="w",
        now=NOW,
        lease_until=LEASE_UNTIL,
    )


def _time(given: Given) -> int:
    return TO_COME if given.later else NOW


RECORD = JobRecord(
    job_id="j", tenant="t", queue="q", name="n", payload="{}", payload_sha256="0" * 64, created_at=NOW, max_attempts=2
)

CHANGES: Mapping[str, Make] = {
    "claim": lambda seen, given: transitions.claim_waiting(_owner(given), write_id="w"),
    "take over": lambda seen, given: transitions.claim_seen(seen, _owner(given), counted=given.counted, write_id="w"),
    "bury": lambda seen, given: transitions.bury_used_up(seen, write_id="w", now=NOW, expires_at=0),
    "cancel": lambda seen, given: transitions.cancel_seen(seen, write_id="w", now=NOW, expires_at=0),
    "ask to stop": lambda seen, given: transitions.request_cancel(seen, write_id="w"),
    "redrive": lambda seen, given: transitions.redrive(seen, write_id="w", now=NOW, due_id="fresh"),
    "clear mark": lambda seen, given: transitions.clear_mark(seen, write_id="w"),
    "mark again": lambda seen, given: transitions.mark_again(seen, write_id="w", run_at=_time(given), due_id="fresh"),
    "join line": lambda seen, given: transitions.join_line(seen, write_id="w", place=NOW, due_id="fresh"),
    "park": lambda seen, given: transitions.park(RECORD, write_id="w", run_at=_time(given), due_id="fresh"),
    "beat": lambda seen, given: transitions.heartbeat(seen, write_id="w", lease_until=LEASE_UNTIL, progress=None),
    "succeed": lambda seen, given: transitions.succeed(seen, "{}", write_id="w", now=NOW, expires_at=0),
    "retry soon": lambda seen, given: transitions.retry_soon(seen, "e", write_id="w", now=NOW, run_at=_time(given)),
    "retry later": lambda seen, given: transitions.retry_later(
        seen, "e", write_id="w", now=NOW, run_at=_time(given), due_id="fresh"
    ),
    "hand over": lambda seen, given: transitions.hand_over(seen, counted=given.counted, write_id="w", now=NOW),
    "let go": lambda seen, given: transitions.let_go(seen, counted=given.counted, write_id="w", now=NOW, error="e"),
    "give up": lambda seen, given: transitions.give_up(seen, "e", write_id="w", now=NOW, expires_at=0),
    "cancel mine": lambda seen, given: transitions.cancel_mine(seen, write_id="w", now=NOW, expires_at=0),
    "write effect": lambda seen, given: Change(job_id="j", write_id="w", condition=transitions.still_mine(seen), set={}),
}
"""Every change of a row, by the word the model has for it."""

OWNERS = ("beat", "succeed", "retry soon", "retry later", "hand over", "let go", "give up", "cancel mine", "write effect")
SEEN = ("take over", "bury", "cancel", "ask to stop", "redrive", "mark again")


class Rules:
    """The decisions of one design: the product's, with some changes of a wrong one in their place."""

    def __init__(self, max_attempts: int, wrong: Mapping[str, Make] | None = None) -> None:
        self._max_attempts = max_attempts
        self._changes = {**CHANGES, **(wrong or {})}
        self.landed = lru_cache(None)(self._landed)
        self.judged = lru_cache(None)(self._judged)
        self.late_owners_are_refused = all(self._relies_on(name, "token", "attempt_id") for name in OWNERS)
        self.stale_snapshots_are_refused = all(self._relies_on(name, "version") for name in SEEN)

    def accepted(self, kind: str) -> Row:
        """The row of a new job that is to run ``now``, ``soon`` (within a queue's delay) or ``far`` ahead."""
        ahead = {"now": None, "soon": NOW + 60_000, "far": NOW + 3_600_000}[kind]
        fields = {name: getattr(RECORD, name) for name in RECORD.__struct_fields__}
        return _row(transitions.accept(JobRecord(**{**fields, "run_at": ahead}), write_id="w", due_id="fresh"))

    def _landed(self, name: str, seen: Row, is_current: bool, given: Given, row: Row) -> Row | None:
        """The row after this change; None if it refuses it. ``is_current``: nothing was written since ``seen``."""
        change = self._changes[name](self._job(seen, 7 if is_current else 6), given)
        job = self._job(row, 7)
        return _row(apply(change, job)) if holds(change.condition, job) else None

    def owner_landed(self, name: str, owner: Owner, given: Given, row: Row) -> Row | None:
        """The same for a change of an owner's, who knows only its own attempt."""
        seen = Row(RUNNING, owner.token, owner.attempts, owner.hand_overs, attempt=owner.attempt)
        return self.landed(name, seen, False, given, row)

    def _judged(self, row: Row, ticket: int, deliveries: int, lapsed: bool) -> verdict.Verdict:
        return verdict.judge(self._job(row, 7), _ticket(ticket), deliveries, LONG_AFTER if lapsed else NOW)

    def _job(self, row: Row, version: int) -> Job:
        return Job(
            job_id="j",
            tenant="t",
            queue="q",
            name="n",
            payload="{}",
            payload_sha256="0" * 64,
            state=STATES[row.state],
            token=row.token,
            attempt_id=f"a{row.attempt}" if row.attempt else None,
            version=version,
            ticket_id=f"t{row.ticket}",
            ticket_deliveries=row.deliveries,
            attempts=row.attempts,
            max_attempts=self._max_attempts,
            lease_until=LEASE_UNTIL if row.state == RUNNING else None,
            run_at=(None, PAST, TO_COME)[row.run_at],
            due_id=f"d{row.due}" if row.due else None,
            cancel_requested=row.cancel,
            hand_overs=row.hand_overs,
        )

    def _relies_on(self, name: str, *fields: str) -> bool:
        """Whether the condition of this change names each of these fields' exact value."""
        condition = self._changes[name](self._job(Row(RUNNING, 1, 1, attempt=1), 7), Given()).condition
        return set(fields) <= set(_exact_fields(condition))


def _row(job: Job) -> Row:
    running = job.state is State.RUNNING
    return Row(
        STATES.index(job.state),
        job.token,
        job.attempts,
        job.hand_overs,
        job.cancel_requested,
        NONE if job.run_at is None else FUTURE if job.run_at > NOW else DUE,
        _number(job.due_id),
        _number(job.attempt_id),
        _number(job.ticket_id) if running else 0,
        job.ticket_deliveries if running else 0,
    )


def _number(name: str | None) -> int:
    return 0 if name is None else FRESH if name == "fresh" else int(name[1:])


@lru_cache(None)
def _ticket(number: int) -> Ticket:
    return Ticket(ticket_id=f"t{number}", job_id="j", tenant="t")


def _exact_fields(condition: Condition) -> list[str]:
    match condition:
        case Is(name):
            return [name]
        case All(conditions):
            return [name for part in conditions for name in _exact_fields(part)]
    return []
