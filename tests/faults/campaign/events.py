"""The interesting events: a campaign in which one of them never happened has not tried what it was to try."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ringfence.job import Job, State

from .bed import RELAY
from .books import Books
from .inside.orders import THROTTLED, WRITES


@dataclass(frozen=True, slots=True)
class Story:
    """All that is known of a run."""

    told: Counter[str]
    """The processes' events, as `watch.Watch` counts them."""
    rows: Iterable[Job]
    books: Books
    lease_ms: int
    confirmed: frozenset[str]
    """What acts have seen for themselves."""


@dataclass(frozen=True, slots=True)
class Interesting:
    """``count`` says how often it happened."""

    name: str
    count: Callable[[Story], int]
    needs: str | None = None
    """``sqs`` or ``redis``: only where there is a queue on it."""


def _told(*names: str) -> Callable[[Story], int]:
    return lambda story: sum(story.told[name] for name in names)


def _confirmed(name: str) -> Callable[[Story], int]:
    return lambda story: int(name in story.confirmed)


def _lost_attempts(story: Story) -> int:
    return sum(past.outcome == "lost" for row in story.rows for past in row.history)


def _kept_by_heartbeats(story: Story) -> int:
    return sum(
        row.state is State.SUCCEEDED
        and row.token == 1
        and (row.finished_at or 0) - (row.started_at or row.finished_at or 0) > story.lease_ms
        for row in story.rows
    )


INTERESTING: Sequence[Interesting] = (
    Interesting("a lease ended while its job was running", _told("lease_lost")),
    Interesting("a running job was taken over", _lost_attempts),
    Interesting("a late commit was refused", _told("late_write_refused:commit")),
    Interesting("a late heartbeat was refused", _told("late_write_refused:heartbeat")),
    Interesting("a long job was kept by its heartbeats", _kept_by_heartbeats),
    Interesting("an own write was recognised", _told("campaign_own_write")),
    Interesting("a duplicate of an ended job collapsed", _told("claim_finished")),
    Interesting("a duplicate of a running job was put back", _told("job_held")),
    Interesting("a repeated request was the same job", _told("job_repeated")),
    Interesting("a failed attempt was retried", _told("job_retried")),
    Interesting("a job was handed over", _told("job_handed_over")),
    Interesting("a job was cancelled", lambda story: sum(row.state is State.CANCELLED for row in story.rows)),
    Interesting("a dead job was redriven", lambda story: sum(p.redrive == "done" for p in story.books.all())),
    Interesting("a killer of its worker was buried", lambda story: sum(_is_buried_killer(row) for row in story.rows)),
    Interesting("a throttled write was retried", _told(*(
        f"campaign_retried:dynamodb.{write} {code}" for write in WRITES for code in THROTTLED))),
    Interesting("a transaction in conflict was retried",
        _told("campaign_retried:dynamodb.TransactWriteItems TransactionCanceledException")),
    Interesting("some entries of a batch failed", _told("campaign_entries_failed")),
    Interesting("the relay held its place", _told(f"{RELAY}:relay_held", f"{RELAY}:push_failed")),
    Interesting("an append failed", _told("append_failed")),
    Interesting("an unreadable record was quarantined", _told("record_quarantined")),
    Interesting("a foreign message was quarantined", _told("ticket_quarantined")),
    Interesting("a clock was wrong", _told("campaign_clock_wrong")),
    Interesting("the next version was read", _told("campaign_next_version_read")),
    Interesting("a job was parked", _told("jobs_parked")),
    Interesting("a line of parked jobs was released", _told("line_opened")),
    Interesting("SQS' last resort was drained", _told("last_resort_drained")),
    Interesting("a job at-least-once ran", _told("carried_jobs_succeeded")),
    Interesting("NOSCRIPT recovered", _confirmed("NOSCRIPT recovered"), "redis"),
    Interesting("a loss of Redis was noticed", _told("repair_started"), "redis"),
    Interesting("a loss of Redis was repaired", _told("repair_finished:renewed"), "redis"),
    Interesting("a full Redis refused a ticket", _told("redis_call_failed:full"), "redis"),
)  # fmt: skip


def _is_buried_killer(row: Job) -> bool:
    return row.name == "pill" and row.state is State.DEAD


def happened(story: Story, there: Mapping[str, object]) -> dict[str, int]:
    """How often each happened that could. ``there`` says of ``sqs`` and ``redis`` whether a queue is on it."""
    return {each.name: each.count(story) for each in INTERESTING if each.needs is None or there[each.needs]}
