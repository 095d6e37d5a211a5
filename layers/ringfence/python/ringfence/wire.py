"""The two formats that travel: the log record (many jobs) and the ticket (one job's name in a queue).

Readers accept the next version of a format one release before writers emit it, so that a rolling deployment never meets a
message it cannot read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from json.encoder import encode_basestring_ascii
from typing import Annotated

import msgspec

from ringfence.errors import Poisoned
from ringfence.job import Guarantee, Job, Millis

WRITES_VERSION = 1
READS_VERSIONS = frozenset({1, 2})

MAX_PAYLOAD_BYTES = 32 * 1024
"""UTF-8 bytes of a payload's text. Escaped into the log record's ASCII it at most triples, so it fits every later stage."""

MAX_JOBS_PER_RECORD = 100
MAX_RECORD_BYTES = 256 * 1024
"""Well below the 1 MiB that a Kinesis record may hold, so that one slow record delays little."""


Id = Annotated[str, msgspec.Meta(min_length=1, max_length=64, pattern=r"^[!-~]+\Z")]
"""An id as any store takes it, as a key or in a header."""

JobId = Annotated[str, msgspec.Meta(min_length=1, max_length=64, pattern=r"^[!-\"$-~]+\Z")]
"""The same without ``#``, which is in the keys of what else a ledger's table holds."""

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
Tenant = Annotated[str, msgspec.Meta(max_length=512)]
"""At most 1,536 bytes: with the queue's name it fits an index key of 2,048.
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html"""

Sha256 = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{64}\Z")]
Attempts = Annotated[int, msgspec.Meta(ge=1, le=1_000)]
Time = Annotated[Millis, msgspec.Meta(ge=0, le=10**14)]
Trace = Annotated[str, msgspec.Meta(max_length=128)]
Payload = Annotated[str, msgspec.Meta(max_length=MAX_PAYLOAD_BYTES)]


class JobRecord(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One accepted job in the log: enough to push its ticket, and to register it if the gateway could not."""

    job_id: JobId
    tenant: Tenant
    queue: Name
    name: Name
    payload: Payload
    payload_sha256: Sha256
    created_at: Time
    max_attempts: Attempts
    run_at: Time | None = None
    registered: bool = True
    """Whether the gateway has put the job's row into the ledger; false also for a job that is to have none."""
    traceparent: Trace | None = None
    guarantee: Guarantee = Guarantee.ONCE


def record_of(job: Job) -> JobRecord:
    """What the log says of a job that was just accepted, from its row."""
    return JobRecord(
        job_id=job.job_id,
        tenant=job.tenant,
        queue=job.queue,
        name=job.name,
        payload=job.payload or "",
        payload_sha256=job.payload_sha256,
        created_at=job.created_at,
        max_attempts=job.max_attempts,
        run_at=job.run_at,
        traceparent=job.traceparent,
    )


class _Record(msgspec.Struct):
    v: int
    jobs: list[JobRecord]


class Ticket(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The small message in a queue that names a job. Every push is a new ticket with an id of its own.

    Its ids are `Id` and `JobId`; `decode_ticket` checks them without their patterns, which took half of its time.
    """

    ticket_id: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    job_id: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    tenant: Tenant
    name: Name | None = None
    """The job's registered name: lets a worker choose the lease before it has seen the row."""
    v: int = WRITES_VERSION
    traceparent: Trace | None = None
    payload: Payload | None = None
    """The job itself, JSON text: it has no row (`Guarantee.AT_LEAST_ONCE`). None: the row has it."""
    max_attempts: Attempts | None = None
    created_at: Time | None = None
    """These two only beside a payload."""
    attempts: Annotated[int, msgspec.Meta(ge=0, le=1_000)] = 0
    """Failed attempts so far of a job that rides in its ticket."""


def new_ticket(ticket_id: str, job: JobRecord | Job) -> Ticket:
    """A ticket for this job; ``ticket_id`` is fresh. A record without a row rides in it; a `Job` has a row."""
    if isinstance(job, JobRecord) and job.guarantee is Guarantee.AT_LEAST_ONCE:
        return Ticket(
            ticket_id=ticket_id,
            job_id=job.job_id,
            tenant=job.tenant,
            name=job.name,
            traceparent=job.traceparent,
            payload=job.payload,
            max_attempts=job.max_attempts,
            created_at=job.created_at,
        )
    return Ticket(ticket_id=ticket_id, job_id=job.job_id, tenant=job.tenant, name=job.name, traceparent=job.traceparent)


def with_attempts(ticket: Ticket, attempts: int, *, ticket_id: str) -> Ticket:
    """A new ticket for the job that rides in this one, after so many failed attempts."""
    return Ticket(
        ticket_id=ticket_id,
        job_id=ticket.job_id,
        tenant=ticket.tenant,
        name=ticket.name,
        traceparent=ticket.traceparent,
        payload=ticket.payload,
        max_attempts=ticket.max_attempts,
        created_at=ticket.created_at,
        attempts=attempts,
    )


class _TicketOnWire(Ticket, frozen=True, kw_only=True, omit_defaults=False):
    v: int


class _JobIdOnly(msgspec.Struct):
    job_id: str | None = None


_BEYOND_ASCII = re.compile(r"[^\x00-\x7f]+")
_VERSION_AT_THE_END = b',"v":%d}' % WRITES_VERSION

_encoder = msgspec.json.Encoder()
_record_decoder = msgspec.json.Decoder(_Record)
_ticket_decoder = msgspec.json.Decoder(_TicketOnWire)
_job_id_decoder = msgspec.json.Decoder(_JobIdOnly)


def _ascii(json_bytes: bytes) -> bytes:
    """The same JSON with everything beyond ASCII escaped: no store or queue between here and the reader can mangle it."""
    text = json_bytes.decode()
    if text.isascii():
        return json_bytes
    # What is not ASCII stands within strings only, so each run of it may be escaped by itself.
    return _BEYOND_ASCII.sub(lambda run: encode_basestring_ascii(run.group())[1:-1], text).encode("ascii")


def encode_records(jobs: Sequence[JobRecord]) -> Iterator[tuple[bytes, list[JobRecord]]]:
    """Pack jobs, in order, into as few records as `MAX_JOBS_PER_RECORD` and `MAX_RECORD_BYTES` allow."""
    prefix, suffix = b'{"v":%d,"jobs":[' % WRITES_VERSION, b"]}"
    room = MAX_RECORD_BYTES - len(prefix) - len(suffix)
    parts: list[bytes] = []
    packed: list[JobRecord] = []
    size = 0
    for job in jobs:
        part = _ascii(_encoder.encode(job))
        if parts and (len(parts) == MAX_JOBS_PER_RECORD or size + len(part) + 1 > room):
            yield prefix + b",".join(parts) + suffix, packed
            parts, packed, size = [], [], 0
        parts.append(part)
        packed.append(job)
        size += len(part) + 1
    if parts:
        yield prefix + b",".join(parts) + suffix, packed


def decode_record(data: bytes) -> list[JobRecord]:
    """The jobs of a log record. Raises `Poisoned` with the reason when no reader could understand it."""
    if not data:
        raise Poisoned("the record is empty")
    if data[:2] == b"\x1f\x8b":
        raise Poisoned("the record is gzip, not JSON")
    if data[:4] == b"\xf3\x89\x9a\xc2":
        raise Poisoned("the record is aggregated by the Kinesis Producer Library")
    try:
        record = _record_decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as fault:
        raise Poisoned(f"not a log record: {fault}") from None
    if record.v not in READS_VERSIONS:
        raise Poisoned(f"log record version {record.v} is not one of {sorted(READS_VERSIONS)}")
    return record.jobs


def encode_ticket(ticket: Ticket) -> str:
    """The ticket as ASCII JSON."""
    # Encoding leaves out what has its default, and so the version, which is never to be missing.
    encoded = _encoder.encode(ticket)
    if ticket.v == WRITES_VERSION:
        encoded = encoded[:-1] + _VERSION_AT_THE_END
    text = encoded.decode()
    return text if text.isascii() else _ascii(encoded).decode("ascii")


def decode_ticket(body: str) -> Ticket:
    """The ticket in a message. Raises `Poisoned`, with the job id when at least that can be read."""
    try:
        ticket = _ticket_decoder.decode(body)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as fault:
        raise Poisoned(f"not a ticket: {fault}", job_id=_job_id_in(body)) from None
    if not _is_visible(ticket.ticket_id):
        raise Poisoned("not a ticket: its ticket_id has other characters than visible ASCII", job_id=ticket.job_id)
    if not _is_visible(ticket.job_id) or "#" in ticket.job_id:
        raise Poisoned("not a ticket: its job_id has other characters than visible ASCII, or a #", job_id=ticket.job_id)
    if ticket.v not in READS_VERSIONS:
        raise Poisoned(f"ticket version {ticket.v} is not one of {sorted(READS_VERSIONS)}", job_id=ticket.job_id)
    if ticket.payload is not None and None in (ticket.name, ticket.max_attempts, ticket.created_at):
        raise Poisoned("the ticket carries a payload, but no name, max_attempts or created_at with it", job_id=ticket.job_id)
    return ticket


def _is_visible(text: str) -> bool:
    return text.isascii() and text.isprintable() and " " not in text


def _job_id_in(body: str) -> str | None:
    try:
        return _job_id_decoder.decode(body).job_id
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
