"""What may be posted to ``/v1/jobs``, and what the gateway is asked for it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated

import msgspec
from msgspec import Meta

from ringfence.acceptance import Submission
from ringfence.errors import Rejected
from ringfence.http import idempotency, json_body, patterns
from ringfence.job import Guarantee, Millis
from ringfence.jsontext import MAX_DEPTH
from ringfence.transitions import MAX_AHEAD_SECONDS
from ringfence.wire import MAX_PAYLOAD_BYTES

MAX_JOBS = 500
"""Jobs in one request."""

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

JobName = Annotated[
    str, Meta(pattern=patterns.NAME, description="The registered name of the code to run.", examples=["signup"])
]
QueueName = Annotated[str, Meta(pattern=patterns.NAME, description="A queue of this deployment.", examples=["default"])]
Payload = Annotated[
    msgspec.Raw,
    Meta(
        description=f"Any JSON, {{}} if left out. At most {MAX_DEPTH} levels deep and {MAX_PAYLOAD_BYTES} bytes of UTF-8 long, "
        "white space included. Kept exactly as received.",
        examples=[{"email": "ada@example.com", "name": "Ada"}],
    ),
]
IdempotencyKey = Annotated[
    str,
    Meta(
        pattern=patterns.IDEMPOTENCY_KEY,
        description="Printable ASCII. The same key, name, queue and payload mean the same job, however often it is sent.",
    ),
]
OrderingKey = Annotated[
    str,
    Meta(
        pattern=patterns.ORDERING_KEY,
        description="Tickets of one ordering key are pushed into their queue in the order of acceptance, those of parked jobs "
        "included. No order is promised of delayed jobs and retries, nor among workers, nor by SQS itself.",
    ),
]
DelaySeconds = Annotated[float, Meta(ge=0, le=MAX_AHEAD_SECONDS, description="Not before so many seconds from now.")]
RunAt = Annotated[datetime, Meta(tz=True, description="Not before this time (RFC 3339, with an offset).")]
GuaranteeOfJob = Annotated[
    Guarantee,
    Meta(
        description="once: a row in the ledger, so that the job's state can be asked for and its effects are fenced. "
        "at-least-once: the price of a plain queue, and no row, so no key, no effects, no page (unless it has to wait long or "
        "dies); it may run again after it has ended, and a repeated request is another job."
    ),
]
MaxAttempts = Annotated[int, Meta(ge=1, le=100, description="How often the job may be started.")]


class NewJob(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """One job. `delay_seconds` and `run_at` exclude each other, and so do a key and the guarantee at-least-once."""

    name: JobName
    queue: QueueName = "default"
    payload: Payload = msgspec.field(default_factory=lambda: msgspec.Raw(b"{}"))
    idempotency_key: IdempotencyKey | None = None
    delay_seconds: DelaySeconds | None = None
    run_at: RunAt | None = None
    max_attempts: MaxAttempts = 5
    ordering_key: OrderingKey | None = None
    guarantee: GuaranteeOfJob = Guarantee.ONCE


class NewJobs(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Up to 500 jobs. If one is malformed the whole request is refused with a pointer to it, and nothing is accepted."""

    jobs: Annotated[list[NewJob], Meta(min_length=1, max_length=MAX_JOBS)]


class Edited(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """A redrive may bring another payload."""

    payload: Payload | msgspec.UnsetType = msgspec.UNSET


def read(text: str, *, key_header: str | None, traceparent: str | None) -> tuple[list[Submission], bool]:
    """The jobs asked for, and whether they came as many. Raises `Rejected` with a pointer for the first fault."""
    header_key = idempotency.key_in(key_header)
    value = json_body.parse(text)
    if isinstance(value, dict) and "jobs" in value:
        if header_key is not None:
            detail = "one Idempotency-Key header cannot stand for many jobs; give each its own idempotency_key"
            raise Rejected(detail, kind="invalid-idempotency-key", status=400)
        jobs = json_body.decode(text, NewJobs).jobs
        return [_submission(job, f"/jobs/{index}", job.idempotency_key, traceparent) for index, job in enumerate(jobs)], True
    job = json_body.decode(text, NewJob)
    return [_submission(job, "", idempotency.agreed(header_key, job.idempotency_key), traceparent)], False


def read_edited(text: str) -> str | None:
    """The payload that a redrive brings, None if it brings none."""
    if not text.strip():
        return None
    json_body.parse(text)
    payload = json_body.decode(text, Edited).payload
    return None if isinstance(payload, msgspec.UnsetType) else json_body.payload_text(payload, "/payload")


def _submission(job: NewJob, at: str, key: str | None, traceparent: str | None) -> Submission:
    if job.delay_seconds is not None and job.run_at is not None:
        raise Rejected("delay_seconds and run_at exclude each other", pointer=f"{at}/run_at")
    return Submission(
        name=job.name,
        queue=job.queue,
        payload=json_body.payload_text(job.payload, f"{at}/payload"),
        idempotency_key=key,
        delay_seconds=job.delay_seconds,
        run_at=None if job.run_at is None else _millis(job.run_at),
        max_attempts=job.max_attempts,
        ordering_key=job.ordering_key,
        traceparent=traceparent,
        guarantee=job.guarantee,
    )


def _millis(time: datetime) -> Millis:
    """Rounded up: a job never runs before its time."""
    micros = (time - _EPOCH) // datetime.resolution
    return -(-micros // 1000)
