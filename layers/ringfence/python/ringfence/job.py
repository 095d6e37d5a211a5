"""The job: one row of the ledger, and the words for where it stands."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

Millis = int
"""Milliseconds since the Unix epoch."""


class State(StrEnum):
    """Where a job stands.

    ``scheduled → queued → running → succeeded | dead | cancelled``; a retry or hand-over leads from ``running`` back to
    ``queued`` or ``scheduled``; a redrive from ``dead`` to ``scheduled``. Terminal states absorb everything but a redrive.
    """

    SCHEDULED = "scheduled"
    QUEUED = "queued"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    DEAD = "dead"
    CANCELLED = "cancelled"

    @property
    def terminal(self) -> bool:
        return self in TERMINAL


class Guarantee(StrEnum):
    """What a job was promised when it was accepted."""

    ONCE = "once"
    """A row in the ledger: a token fences its effects, and its state can be asked for."""

    AT_LEAST_ONCE = "at-least-once"
    """No row: its payload rides in its ticket, and it may run twice. It gets a row when it must wait longer than a queue can
    hold it, and when it is dead."""


LINE_MARK = "+"
"""What the due mark of a parked job begins with. No random id does."""

WAITING = (State.SCHEDULED, State.QUEUED)
TERMINAL = (State.SUCCEEDED, State.DEAD, State.CANCELLED)


@dataclass(frozen=True, slots=True)
class PastAttempt:
    """One ended attempt. ``outcome`` is one of succeeded, retry, dead, cancelled, handed-over, lost."""

    token: int
    started_at: Millis
    ended_at: Millis
    outcome: str


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a running job says it is."""

    done: int
    total: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One row of the ledger. All times are `Millis` except ``expires_at`` (seconds, as DynamoDB's TTL wants them)."""

    job_id: str
    """26 characters of base32: 128 random bits, or as many of a hash of tenant and idempotency key."""
    tenant: str
    queue: str
    name: str
    """The registered name of the code to run."""
    payload: str | None
    """JSON text, byte for byte as received. None only in listings, which do not load it."""
    payload_sha256: str
    """Hex SHA-256 of the payload text in UTF-8."""
    state: State
    request_sha256: str | None = None
    """Hex SHA-256 of the canonical payload that was submitted, once a redrive has put another in its place."""
    token: int = 0
    """The fencing token: raised by every claim, never reset."""
    attempt_id: str | None = None
    """Random, one per claim."""
    write_id: str = ""
    """Random, one per mutation; how a write recognises itself when its reply was lost."""
    version: int = 0
    """Raised by one with every write."""
    ticket_id: str | None = None
    ticket_deliveries: int = 0
    """The ticket of the latest claim and its delivery count then."""
    attempts: int = 0
    max_attempts: int = 5
    worker: str | None = None
    lease_until: Millis | None = None
    run_at: Millis | None = None
    """Not before this time."""
    due_id: str | None = None
    """The due mark: timers owe this row a ticket at ``run_at``, or, beginning with `LINE_MARK`, when the turn of the queue's
    line comes to it; then ``run_at`` is its place there."""
    created_at: Millis = 0
    started_at: Millis | None = None
    finished_at: Millis | None = None
    progress: Progress | None = None
    checkpoint: str | None = None
    """JSON text."""
    result: str | None = None
    """JSON text."""
    error: str | None = None
    """Why the last attempt failed, or why the job is dead."""
    cancel_requested: bool = False
    hand_overs: int = 0
    """Hand-overs and uncounted take-overs since the last newer checkpoint or counted attempt."""
    history: tuple[PastAttempt, ...] = ()
    """The last three ended attempts, oldest first."""
    traceparent: str | None = None
    expires_at: int | None = None
    """Seconds since the epoch after which the row counts as absent."""

    @property
    def in_line(self) -> bool:
        """Whether the job is parked in the line of its queue."""
        return self.due_id is not None and self.due_id.startswith(LINE_MARK)

    def expired(self, now: Millis) -> bool:
        """Whether the row counts as absent: DynamoDB deletes expired items only some time later.

        https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ttl-expired-items.html
        """
        return self.expires_at is not None and self.expires_at < now // 1000
