"""What the core needs from outside. Every adapter of a port passes the contract suite of that port in `tests/contract`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from random import Random
from threading import Condition
from typing import Any, NamedTuple, Protocol, runtime_checkable

import msgspec

from ringfence.change import Change, Refused, Written
from ringfence.effects import Effect, Item
from ringfence.ids import Ids
from ringfence.job import Job, Millis, State
from ringfence.queue_settings import QueueSettings, QueueState
from ringfence.rate import Rate
from ringfence.sweep import Notes
from ringfence.wire import Ticket


class Clock(Protocol):
    """Time. Wall time dates rows; nothing that decides an effect rests on it (DESIGN rule 6)."""

    def now(self) -> Millis: ...

    def monotonic(self) -> float:
        """Seconds on a clock that never jumps."""
        ...

    def sleep(self, seconds: float) -> None: ...

    def wait_until(self, condition: Condition, monotonic: float) -> None:
        """Wait on a condition that the caller holds, until it is notified or ``monotonic`` is reached; may wake early."""
        ...


# --- the log ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LogEntry:
    """One record to append: its bytes, and the key that chooses its shard."""

    data: bytes
    partition_key: str


class Log(Protocol):
    """What was accepted, in order."""

    def append(self, entries: Sequence[LogEntry]) -> list[str | None]:
        """Append all entries, sending again only those that failed, with jitter, a bounded number of times.

        Returns one sequence number per entry, by index; None for an entry that could not be appended. Never raises for
        throttling or an unreachable service: those entries are None.
        """
        ...


# --- the queue -------------------------------------------------------------------------------------------------------


MAX_DELAY_SECONDS = 900.0
"""The longest that any queue delays a message: SQS's limit. What is due later is a due mark on the row first.
https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-delay-queues.html"""

MAX_LEASE_SECONDS = 12 * 3600.0
"""The longest that any queue lets one lease last, all extensions included: SQS's limit.
https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-visibility-timeout.html"""


class Lease(msgspec.Struct, frozen=True):
    """A message held for a while. ``body`` is what was in the queue, read by `wire.decode_ticket`.

    A struct, for workers make tens of thousands a second: a frozen dataclass takes eight times as long to build.
    """

    body: str
    receipt: str
    deliveries: int
    """How often the queue has handed this message out, this time included. Approximate on SQS."""
    message_id: str
    queue: str


@dataclass(frozen=True, slots=True)
class Depth:
    """How many messages are visible, leased and delayed. Approximate on SQS."""

    ready: int
    leased: int
    delayed: int
    oldest_ready_seconds: float | None = field(default=None, compare=False)
    """How long the oldest of the visible has been visible; 0 where there is none. None: the engine does not say."""


class Queue(Protocol):
    """Who should try now. One contract for memory, SQS and Redis; delays and leases are whole seconds or fractions thereof,
    rounded up where the engine knows only whole ones."""

    name: str
    max_delay_seconds: float
    max_lease_seconds: float

    def push(self, tickets: Sequence[Ticket], delay_seconds: float | Sequence[float] = 0.0) -> list[Ticket]:
        """Add tickets, visible after the delay (clipped to ``max_delay_seconds``): one for all, or one for each. Returns those
        that were not taken."""
        ...

    def lease(self, max_tickets: int, lease_seconds: float, wait_seconds: float = 0.0) -> list[Lease]:
        """Take up to ``max_tickets``, hidden from others for ``lease_seconds``; waits ``wait_seconds`` for a first one."""
        ...

    def extend(self, leases: Sequence[Lease], lease_seconds: float) -> list[Lease]:
        """Hide these for ``lease_seconds`` more, counted from now and clipped to what the engine allows. Returns those lost."""
        ...

    def acknowledge(self, leases: Sequence[Lease]) -> None:
        """Remove these for good. Stale receipts are ignored, never raised: the ledger has decided already."""
        ...

    def release(self, leases: Sequence[Lease], delay_seconds: float = 0.0) -> None:
        """Make these visible again after the delay. Stale receipts are ignored."""
        ...

    def depth(self) -> Depth: ...


@runtime_checkable
class FusedQueue(Queue, Protocol):
    """A queue that can do both ends of a worker's step in one call. Optional: ask with `isinstance`."""

    def acknowledge_and_lease(
        self, done: Sequence[Lease], max_tickets: int, lease_seconds: float, wait_seconds: float = 0.0
    ) -> list[Lease]:
        """`acknowledge` ``done``, then `lease`. ``done`` is gone before the wait begins. After `Unavailable` it is not known
        whether it is; acknowledging it again does no harm."""
        ...

    def ask(self, done: Sequence[Lease], max_tickets: int, lease_seconds: float) -> Callable[[], list[Lease]]:
        """The same without a wait, in two steps: sent now, and the reply read by calling what is returned, once, in any thread.
        The leases run from now on. Either step may raise `Unavailable`. There may be fewer than are visible."""
        ...


@runtime_checkable
class MarkedQueue(Queue, Protocol):
    """A queue that may lose its memory, and can be asked whether it has. Optional: ask with `isinstance`."""

    def memory_mark(self) -> str:
        """What is the same as long as this queue has lost nothing: ``<life>/<server>``. The first part differs after all was
        lost, the second also after a restart or a failover, which may have lost the last writes. Raises `Unavailable`."""
        ...


# --- the pace --------------------------------------------------------------------------------------------------------


class Limiter(Protocol):
    """Gives out the releases of each queue, one schedule for however many relays ask. Raises `Unavailable`."""

    def reserve(self, queue: str, count: int, rate: Rate, within: Millis | None = None) -> list[Millis]:
        """How long each of ``count`` tickets has to wait from now, in milliseconds, none less than the one before.

        Only those that wait no longer than ``within`` are reserved and returned, so the list may be shorter or empty. Never
        more than rate · w + burst of all that were given out fall into a window w, whoever asked; where they were changed
        meanwhile, the highest rate and the largest burst count. What is reserved is used up, whether a ticket goes or not.
        """
        ...


class SettingsStore(Protocol):
    """The live settings of the queues and the lines of their parked jobs. Every method raises `Unavailable`."""

    def read(self, queue: str) -> QueueState:
        """How the queue stands, strongly consistent; the defaults if nothing was ever set."""
        ...

    def all(self) -> dict[str, QueueState]:
        """Every queue of which anything was ever written, also one that the deployment has no more."""
        ...

    def change(self, queue: str, changes: Mapping[str, Any]) -> QueueSettings:
        """Change some settings and leave the others alone, also those that somebody else changes at this moment. Returns the
        settings afterwards. Raises `Rejected` for a setting that is unknown or out of range: then nothing was changed."""
        ...

    def join_line(self, queue: str, count: int, now: Millis) -> list[Millis]:
        """Places for ``count`` jobs that are to be parked, consecutive, behind all that were given out before and none before
        ``now``. From now on newcomers have to join as well."""
        ...

    def open_line(self, queue: str, last_place: Millis | None, open_from: Millis) -> bool:
        """Let newcomers go again without joining, if somebody had to join at all, and nobody has since ``last_place`` was given
        out (None: whoever has). Their tickets are not visible before ``open_from``. Returns whether this call did it."""
        ...


# --- the ledger ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Page:
    """Some jobs of a listing (payload, checkpoint and result not loaded), newest first, and the cursor of the next page."""

    jobs: list[Job]
    cursor: str | None


class DueMark(NamedTuple):
    """A ticket that timers owe a job from ``run_at`` on."""

    run_at: Millis
    job_id: str


@dataclass(frozen=True, slots=True)
class Unmarked:
    """One page of all rows, and what of it was looked for."""

    jobs: list[Job]
    examined: int
    """Items of the store that were read for it, whatever they were."""
    cursor: str | None
    """Where the next page begins; None: there is no more."""


@dataclass(frozen=True, slots=True)
class Group:
    """Jobs that joined the line of a queue together and wait there as one item, their rows as the gateway left them: ten
    thousand jobs are parked by a hundred writes, and cost as much again when they go."""

    queue: str
    first_place: Millis
    """Of the first in the group; each other one stands a place behind the one before. No two groups of a queue share it."""
    job_ids: Sequence[str]
    left: int = 0
    """How many of them, from the first, have left it."""

    @property
    def last_place(self) -> Millis:
        return self.first_place + len(self.job_ids) - 1

    @property
    def waiting(self) -> list[tuple[str, Millis]]:
        """Those who have not left, and their places."""
        return [(job_id, self.first_place + index) for index, job_id in enumerate(self.job_ids)][self.left :]


class Ledger(Protocol):
    """Who may write. Every method raises `Unavailable` when the store is throttled, in conflict or out of reach; sending the
    very same `Change` again is then always safe (its ``write_id`` tells an own write from somebody else's)."""

    def register(self, job: Job) -> Job | None:
        """Put the row if there is none, or only one that has expired. Returns None if written, else the row that is there.

        An own write whose reply was lost (same ``write_id``) counts as written.
        """
        ...

    def get(self, job_id: str) -> Job | None:
        """The row with all its texts, strongly consistent; None if absent or expired."""
        ...

    def write(self, change: Change, effects: Sequence[Effect] = (), *, request_token: str | None = None) -> Written | Refused:
        """Carry out a change, with the effects in the same transaction if there are any.

        Recognises an own write whose reply was lost (`change.is_own_write`) as written. Raises `EffectRefused` when the row's
        condition held and an effect's did not. Nothing is retried here beyond what the SDK does.
        """
        ...

    def write_many(self, writes: Sequence[Change | Job]) -> list[Written | Refused | None]:
        """Carry out changes of different jobs, each for itself, and put new rows as `register` does: a `Job` is `Refused` if
        there is a row of it. None stands for `Unavailable`, which is not raised here.

        For many at once whose rows nobody else is likely to write just now. ``Written.job`` may be what the change makes of
        the row that it says it saw.
        """
        ...

    def write_effects(self, held: Change, effects: Sequence[Effect], *, request_token: str) -> Refused | None:
        """Carry out effects now, in a transaction that only checks ``held.condition`` on the job's row (nothing of the row is
        written). Returns None when done."""
        ...

    def read_item(self, table: str, key: Item) -> Mapping[str, Any] | None:
        """One item of the user's, strongly consistent; numbers come as int or Decimal."""
        ...

    def peek(self, job_ids: Sequence[str]) -> list[Job]:
        """The rows of these jobs without those texts that lie apart, strongly consistent, in no order; absent and expired ones
        are left out. For whoever decides where a job stands, not what it does."""
        ...

    def due(self, shard: int, now: Millis, limit: int, after: DueMark | None = None) -> list[DueMark]:
        """The due marks of this shard at or before ``now`` and beyond ``after``, the longest due first. A little stale."""
        ...

    def line(self, queue: str, limit: int) -> list[Job]:
        """The jobs parked in this queue's line, the first first, their texts as in `peek`; one that was parked a moment ago may
        be missing. May end before ``limit`` though there are more, but is empty only when the line is."""
        ...

    def join_line(self, group: Group) -> None:
        """Keep a group in line. The same group again changes nothing."""
        ...

    def groups(self, queue: str, limit: int) -> list[Group]:
        """The first groups in this queue's line, the first first, strongly consistent."""
        ...

    def leave_line(self, group: Group, left: int) -> None:
        """So many of the group, from the first, have left it; all of them, and it is gone. Fewer than it is known of already
        changes nothing."""
        ...

    def list_jobs(
        self, tenant: str, queues: Sequence[str], state: State | None = None, cursor: str | None = None, limit: int = 50
    ) -> Page:
        """A tenant's jobs, newest first; dead ones alone by their end. A filter by another state reads at most 200 rows a page.
        A cursor of another tenant or another query is `Rejected`."""
        ...

    def unmarked(self, segment: int, segments: int, cursor: str | None, limit: int) -> Unmarked:
        """The unfinished jobs without a due mark in one part of ``segments`` (counted from 0) of all rows, strongly consistent,
        their texts as in `peek`: whoever has no ticket is among them. Reads ``limit`` items at most, from the cursor on.

        Every such row is in one of the pages from the first (cursor None) to the last, unless it changes on the way. It costs
        the reading of everything there is: for a rare, slow search.
        """
        ...


DUE_SHARDS = 8
"""Index partitions: one throttles at 1,000 writes a second and takes the table's writes with it.
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/bp-partition-key-design.html"""


class SweepStore(Protocol):
    """What reconciling remembers between two runs of the timers. Every method raises `Unavailable`."""

    def read(self) -> Notes:
        """The notes, strongly consistent; empty ones of version 0 if there are none."""
        ...

    def replace(self, seen: Notes, notes: Notes) -> bool:
        """Put ``notes``, of the version after ``seen``, unless somebody has put others since those were read. Returns whether
        they were put; after a lost reply it may say no though they were."""
        ...


# --- things set aside, keys, and what is told ------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SetAside:
    """Something that could not be understood: where it came from, its bytes, and why."""

    source: str
    """``log:<shard>`` or ``queue:<name>``."""
    position: str
    """The sequence number or message id."""
    reason: str
    data: bytes
    at: Millis
    job_id: str | None = None


class Quarantine(Protocol):
    """Keeps what could not be read. Raises `Unavailable` when it cannot: then the record must not count as handled."""

    def put(self, item: SetAside) -> None:
        """Keep it; the same source and position twice are one."""
        ...

    def items(self, limit: int = 100) -> list[SetAside]:
        """The newest first."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiKey:
    """An API key as stored: only the SHA-256 of its secret."""

    key_id: str
    sha256: str
    tenant: str
    scopes: frozenset[str]
    """Some of ``submit``, ``read``, ``operate``, ``admin``."""
    created_at: Millis
    note: str = ""


class Keys(Protocol):
    """The API keys, looked up by the SHA-256 of the presented secret."""

    def find(self, sha256: str) -> ApiKey | None: ...

    def add(self, key: ApiKey) -> None: ...

    def remove(self, key_id: str) -> bool: ...

    def all(self) -> list[ApiKey]: ...


class Telemetry(Protocol):
    """Where events go: one JSON line each, with stable names, never a payload."""

    def event(self, name: str, **fields: str | int | float | bool | None) -> None: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Services:
    """What everything that runs jobs needs from outside, in one hand."""

    ledger: Ledger
    quarantine: Quarantine
    clock: Clock
    ids: Ids
    telemetry: Telemetry
    random_source: Random
    retention_seconds: float
    holds_retries: Callable[[str], bool] = lambda _queue: False
    """Whether a retry in this queue waits on its row, however soon it is due: under a rate it counts like a new job."""
