"""The documents of the API's answers. What a field is called here is a promise; the ledger's internals are not in them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from ringfence.acceptance import Accepted
from ringfence.errors import Unavailable
from ringfence.http.reply import Problem
from ringfence.job import Guarantee, Job, Millis, State
from ringfence.ports import Depth, SetAside
from ringfence.queue_settings import QueueState

Time = Annotated[str, Meta(description="RFC 3339, UTC, milliseconds.", examples=["2026-11-05T12:34:56.789Z"])]
JobId = Annotated[str, Meta(description="26 characters, a–z and 2–7.", examples=["k5u3c6mwzq2yxj7v4n8d2h6t3e"])]
Exact = msgspec.Raw
"""JSON given back in the very text that came in: no number has passed through a float."""


class ProgressDocument(msgspec.Struct, frozen=True):
    """How far a running job says it is."""

    done: int
    total: int


class AttemptDocument(msgspec.Struct, frozen=True):
    """An ended attempt; `outcome` is succeeded, retry, dead, cancelled, handed-over or lost."""

    token: int
    started_at: Time
    ended_at: Time
    outcome: str


class JobDocument(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A job as the ledger has it. What is not known (yet) is left out; listings leave out payload, checkpoint and result."""

    job_id: JobId
    queue: str
    name: str
    state: State
    token: Annotated[int, Meta(description="The fencing token: raised by every claim, never reset.")]
    attempts: int
    max_attempts: int
    created_at: Time
    payload_sha256: Annotated[str, Meta(description="Hex SHA-256 of the payload's exact text in UTF-8.")]
    payload: Exact | msgspec.UnsetType = msgspec.UNSET
    run_at: Time | None = None
    started_at: Time | None = None
    finished_at: Time | None = None
    progress: ProgressDocument | None = None
    checkpoint: Exact | msgspec.UnsetType = msgspec.UNSET
    result: Exact | msgspec.UnsetType = msgspec.UNSET
    error: Annotated[str, Meta(description="Why the last attempt failed, or why the job is dead.")] | None = None
    cancel_requested: bool = False
    history: list[AttemptDocument] = []
    expires_at: Time | None = None


class JobPage(msgspec.Struct, frozen=True, omit_defaults=True):
    """Some jobs, newest first (dead ones alone: by their end); `cursor` leads to the next page, and the last one has none."""

    jobs: list[JobDocument]
    cursor: str | None = None


class AcceptedDocument(msgspec.Struct, frozen=True, kw_only=True):
    """An accepted job. `repeated`: an earlier request with the same idempotency key had asked for it already."""

    job_id: JobId
    state: State
    queue: str
    name: str
    created_at: Time
    payload_sha256: str
    repeated: bool
    guarantee: Guarantee = Guarantee.ONCE


class EntryDocument(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What became of one job of many: `status` 202 and its id, or the status and problem it would have had on its own."""

    status: int
    job_id: str | None = None
    state: State | None = None
    guarantee: Guarantee | None = None
    repeated: bool | None = None
    problem: Problem | None = None
    retry_after_seconds: float | None = None


class EntriesDocument(msgspec.Struct, frozen=True):
    """One entry per job, in the order of the request."""

    jobs: list[EntryDocument]


class QueueDocument(msgspec.Struct, frozen=True, omit_defaults=True):
    """How many tickets wait, are leased, are delayed (approximate on SQS), and at what pace new ones are pushed.

    `ready`, `leased` and `delayed` are null while the queue cannot be asked, and only then there is a `depth_fault`."""

    name: str
    ready: int | None
    leased: int | None
    delayed: int | None
    rate_per_second: Annotated[float | None, Meta(description="Tickets a second on average; null: as they come.")]
    burst: Annotated[int, Meta(description="Tickets that may come at once after a pause, where there is a rate.")]
    paused: Annotated[bool, Meta(description="Nothing is pushed; jobs are accepted and wait in line.")]
    high_water_mark: Annotated[int | None, Meta(description="Tickets above which no more are pushed; null: no limit.")]
    parked: Annotated[bool, Meta(description="Jobs wait in line, and newcomers behind them.")]
    depth_fault: Annotated[str | None, Meta(description="Why the depth is not known; the settings are in force.")] = None


class QueuesDocument(msgspec.Struct, frozen=True):
    """The queues of this deployment."""

    queues: list[QueueDocument]


class SetAsideDocument(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that could not be read. Its bytes stay in the ledger table: they may be anybody's."""

    source: str
    position: str
    reason: str
    bytes: int
    at: Time
    job_id: str | None = None


class QuarantineDocument(msgspec.Struct, frozen=True):
    """What was set aside, newest first."""

    items: list[SetAsideDocument]


class Health(msgspec.Struct, frozen=True):
    """The function runs. Nothing behind it was asked."""

    status: str = "ok"


def job_document(job: Job) -> JobDocument:
    """A row as its owner may see it."""
    return JobDocument(
        job_id=job.job_id,
        queue=job.queue,
        name=job.name,
        state=job.state,
        token=job.token,
        attempts=job.attempts,
        max_attempts=job.max_attempts,
        created_at=rfc3339(job.created_at),
        payload_sha256=job.payload_sha256,
        payload=_exact(job.payload),
        run_at=_time(job.run_at),
        started_at=_time(job.started_at),
        finished_at=_time(job.finished_at),
        progress=None if job.progress is None else ProgressDocument(job.progress.done, job.progress.total),
        checkpoint=_exact(job.checkpoint),
        result=_exact(job.result),
        error=job.error,
        cancel_requested=job.cancel_requested,
        history=[
            AttemptDocument(past.token, rfc3339(past.started_at), rfc3339(past.ended_at), past.outcome) for past in job.history
        ],
        expires_at=None if job.expires_at is None else rfc3339(job.expires_at * 1000),
    )


def accepted_document(accepted: Accepted) -> AcceptedDocument:
    job = accepted.job
    return AcceptedDocument(
        job_id=job.job_id,
        state=job.state,
        queue=job.queue,
        name=job.name,
        created_at=rfc3339(job.created_at),
        payload_sha256=job.payload_sha256,
        repeated=accepted.repeated,
        guarantee=accepted.guarantee,
    )


def queue_document(name: str, depth: Depth | Unavailable, state: QueueState) -> QueueDocument:
    settings = state.settings
    counts = (depth.ready, depth.leased, depth.delayed) if isinstance(depth, Depth) else (None, None, None)
    return QueueDocument(
        name=name,
        ready=counts[0],
        leased=counts[1],
        delayed=counts[2],
        rate_per_second=settings.rate_per_second,
        burst=settings.burst,
        paused=settings.paused,
        high_water_mark=settings.high_water_mark,
        parked=state.line.waiting,
        depth_fault=None if isinstance(depth, Depth) else str(depth),
    )


def set_aside_document(item: SetAside) -> SetAsideDocument:
    return SetAsideDocument(item.source, item.position, item.reason, len(item.data), rfc3339(item.at), item.job_id)


LAST_MILLISECOND = 253_402_300_799_999
"""The end of the year 9999."""


def rfc3339(millis: Millis) -> str:
    """A time of the ledger as text, in UTC. What no calendar knows is the last day it knows."""
    seconds, rest = divmod(min(max(millis, 0), LAST_MILLISECOND), 1000)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%dT%H:%M:%S}.{rest:03d}Z"


def _time(millis: Millis | None) -> str | None:
    return None if millis is None else rfc3339(millis)


def _exact(text: str | None) -> msgspec.Raw | msgspec.UnsetType:
    return msgspec.UNSET if text is None else msgspec.Raw(text.encode())
