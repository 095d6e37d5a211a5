"""Accepting work.

Register the row, append to the log, answer: the append is the acceptance, and nothing is accepted that could still be lost.
A job with the guarantee at-least-once has no row: the log and its ticket carry it, and the ledger is not asked.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass

from ringfence import jsontext, transitions
from ringfence.change import Written
from ringfence.errors import Unavailable
from ringfence.ids import derived_job_id
from ringfence.job import Guarantee, Job, Millis, State
from ringfence.ports import Log, LogEntry, Queue, Services
from ringfence.transitions import MAX_AHEAD_SECONDS
from ringfence.wire import MAX_PAYLOAD_BYTES, JobRecord, encode_records, record_of

REGISTERED_AT_ONCE = 16
"""Conditional puts in flight at once. A batch write would be fewer requests, and unconditional: one that lands late, after the
SDK has sent it again, would put a finished job back to its beginning."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """One job as a client asks for it. ``payload`` is JSON text; ``run_at`` and ``delay_seconds`` exclude each other, and so do
    an idempotency key and the guarantee at-least-once."""

    name: str
    payload: str
    queue: str = "default"
    idempotency_key: str | None = None
    delay_seconds: float | None = None
    run_at: Millis | None = None
    max_attempts: int = 5
    ordering_key: str | None = None
    traceparent: str | None = None
    guarantee: Guarantee = Guarantee.ONCE


@dataclass(frozen=True, slots=True)
class Accepted:
    """The job will run. ``repeated``: an earlier request with this idempotency key had asked for it already."""

    job: Job
    """Its row; for the guarantee at-least-once, what its row would be."""
    repeated: bool = False
    guarantee: Guarantee = Guarantee.ONCE


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """The job will not run because of this request; ``retry_after_seconds`` is set when asking again may help."""

    status: int
    kind: str
    detail: str
    pointer: str | None = None
    retry_after_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class _ToAppend:
    """A job that still has to be appended. Its row is in the ledger, unless its record says ``registered: false``: then the
    relay shall put it there, or it is to have none."""

    record: JobRecord
    job: Job
    repeated: bool
    ordering_key: str | None
    keyed: bool


class Acceptance:
    """Takes jobs in, for one deployment and all its tenants."""

    def __init__(self, services: Services, log: Log, queues: Mapping[str, Queue]) -> None:
        self._services, self._log, self._queues = services, log, queues
        self._ledger, self._clock, self._ids, self._telemetry = (
            services.ledger,
            services.clock,
            services.ids,
            services.telemetry,
        )

    def submit(self, tenant: str, submissions: Sequence[Submission]) -> list[Accepted | Refusal]:
        """Accept jobs, each on its own; the answers are in the order of the submissions."""
        answers: list[Accepted | Refusal | None] = [None] * len(submissions)
        candidates: dict[int, tuple[Submission, JobRecord]] = {}
        now = self._clock.now()
        for index, submission in enumerate(submissions):
            refusal = self._fault_of(submission, now)
            if refusal is None:
                candidates[index] = submission, self._record(tenant, submission, now)
            else:
                answers[index] = refusal
        to_append: dict[int, _ToAppend] = {}
        for index, outcome in self._register(candidates).items():
            if isinstance(outcome, _ToAppend):
                to_append[index] = outcome
            else:
                answers[index] = outcome
        for index, outcome in self._append(to_append).items():
            answers[index] = outcome
        return [self._told(answer) for answer in answers if answer is not None]

    def _fault_of(self, submission: Submission, now: Millis) -> Refusal | None:
        if submission.queue not in self._queues:
            known = ", ".join(sorted(self._queues))
            return Refusal(
                status=422, kind="unknown-queue", detail=f"there is no such queue; there are: {known}", pointer="/queue"
            )
        size = len(submission.payload.encode(errors="surrogatepass"))
        if size > MAX_PAYLOAD_BYTES:
            detail = f"the payload has {size} bytes; at most {MAX_PAYLOAD_BYTES} are taken"
            return Refusal(status=413, kind="payload-too-large", detail=detail, pointer="/payload")
        run_at = _run_at(submission, now)
        if run_at is not None and run_at - now > MAX_AHEAD_SECONDS * 1000:
            detail = f"at most {MAX_AHEAD_SECONDS // 86_400} days ahead"
            pointer = "/run_at" if submission.delay_seconds is None else "/delay_seconds"
            return Refusal(status=422, kind="too-far-ahead", detail=detail, pointer=pointer)
        if submission.guarantee is Guarantee.AT_LEAST_ONCE and submission.idempotency_key is not None:
            detail = (
                "an idempotency key is kept in the job's row, and one with the guarantee at-least-once has none: leave out "
            )
            detail += "the key, or submit it with the guarantee once"
            return Refusal(status=422, kind="idempotency-key-needs-row", detail=detail, pointer="/idempotency_key")
        return None

    def _record(self, tenant: str, submission: Submission, now: Millis) -> JobRecord:
        key = submission.idempotency_key
        return JobRecord(
            job_id=self._ids.job() if key is None else derived_job_id(tenant, key),
            tenant=tenant,
            queue=submission.queue,
            name=submission.name,
            payload=submission.payload,
            payload_sha256=jsontext.sha256(submission.payload),
            created_at=now,
            max_attempts=submission.max_attempts,
            run_at=_run_at(submission, now),
            registered=submission.guarantee is Guarantee.ONCE,
            traceparent=submission.traceparent,
            guarantee=submission.guarantee,
        )

    def _register(self, candidates: Mapping[int, tuple[Submission, JobRecord]]) -> dict[int, _ToAppend | Accepted | Refusal]:
        """What became of each, in the order of the request, for it is appended in that."""
        with_rows = {index: pair for index, pair in candidates.items() if pair[1].guarantee is Guarantee.ONCE}
        outcomes = self._register_all(with_rows)
        return {index: outcomes[index] if index in outcomes else _without_row(*pair) for index, pair in candidates.items()}

    def _register_all(self, with_rows: Mapping[int, tuple[Submission, JobRecord]]) -> dict[int, _ToAppend | Accepted | Refusal]:
        if len(with_rows) < 2:
            return {index: self._register_one(*pair) for index, pair in with_rows.items()}
        with ThreadPoolExecutor(min(len(with_rows), REGISTERED_AT_ONCE)) as pool:
            outcomes = pool.map(lambda pair: self._register_one(*pair), with_rows.values())
            return dict(zip(with_rows, outcomes, strict=True))

    def _register_one(self, submission: Submission, record: JobRecord) -> _ToAppend | Accepted | Refusal:
        job, keyed = self._new_job(record), submission.idempotency_key is not None
        try:
            there = self._ledger.register(job)
        except Unavailable as fault:
            if keyed:
                return _unavailable("the ledger is busy; nothing was accepted", fault.retry_after_seconds)
            return _ToAppend(_unregistered(record), job, False, submission.ordering_key, keyed)
        if there is None:
            return _ToAppend(record, job, False, submission.ordering_key, keyed)
        if not _same_request(there, record):
            detail = "this idempotency key was used for another job: its name, queue or payload differs"
            return Refusal(status=422, kind="idempotency-key-reused", detail=detail, pointer="/idempotency_key")
        if there.state is State.QUEUED and there.token == 0:
            # The first request may have died between register and append; only a second append makes its promise true.
            return _ToAppend(record_of(there), there, True, submission.ordering_key, keyed)
        return Accepted(there, repeated=True)

    def _new_job(self, record: JobRecord) -> Job:
        return transitions.accept(record, write_id=self._ids.mark(), due_id=self._ids.mark())

    def _append(self, registered: Mapping[int, _ToAppend]) -> dict[int, Accepted | Refusal]:
        by_key: dict[str | None, list[tuple[int, _ToAppend]]] = {}
        for index, entry in registered.items():
            by_key.setdefault(entry.ordering_key, []).append((index, entry))
        entries: list[LogEntry] = []
        rides: list[list[tuple[int, _ToAppend]]] = []
        for ordering_key, group in by_key.items():
            position = 0
            for data, packed in encode_records([entry.record for _, entry in group]):
                key = self._ids.mark() if ordering_key is None else _partition(group[0][1].job.tenant, ordering_key)
                entries.append(LogEntry(data, key))
                rides.append(group[position : position + len(packed)])
                position += len(packed)
        outcomes: dict[int, Accepted | Refusal] = {}
        sequences = self._log.append(entries) if entries else []
        for sequence, ride in zip(sequences, rides, strict=True):
            for index, entry in ride:
                if sequence is not None:
                    outcomes[index] = Accepted(entry.job, entry.repeated, entry.record.guarantee)
                else:
                    outcomes[index] = self._withdraw(entry)
        return outcomes

    def _withdraw(self, entry: _ToAppend) -> Refusal:
        """A keyless job that was refused must not run later by way of its row, which may be there even if nobody was told so;
        a keyed one is finished by its repeat. One without a row cannot be called back, should the log have it all the same."""
        self._telemetry.event("append_failed", job_id=entry.job.job_id, queue=entry.job.queue)
        if entry.keyed:
            return _unavailable("the log is busy; the job may have been accepted: repeat the request with its key", 1.0)
        perhaps = _unavailable("the log is busy; the job may have been accepted: sent again, it may run twice", 1.0)
        if entry.record.guarantee is Guarantee.AT_LEAST_ONCE:
            return perhaps
        now = self._clock.now()
        expires_at = transitions.expiry(entry.job, now, self._services.retention_seconds)
        change = transitions.cancel_seen(entry.job, write_id=self._ids.mark(), now=now, expires_at=expires_at)
        with suppress(Unavailable):
            if isinstance(self._ledger.write(change), Written):
                return _unavailable("the log is busy; nothing was accepted", 1.0)
        # Its record may be in the log, or its row found without a ticket by the timers; or it has run already.
        self._telemetry.event("withdraw_failed", job_id=entry.job.job_id, queue=entry.job.queue)
        return perhaps

    def _told(self, answer: Accepted | Refusal) -> Accepted | Refusal:
        if isinstance(answer, Accepted):
            name = "job_repeated" if answer.repeated else "job_accepted"
            self._telemetry.event(name, job_id=answer.job.job_id, queue=answer.job.queue, job_name=answer.job.name)
        return answer


def _without_row(submission: Submission, record: JobRecord) -> _ToAppend:
    job = transitions.accept(record, write_id="", due_id="")
    return _ToAppend(record, job, repeated=False, ordering_key=submission.ordering_key, keyed=False)


def _run_at(submission: Submission, now: Millis) -> Millis | None:
    if submission.delay_seconds is not None:
        return now + round(submission.delay_seconds * 1000) if submission.delay_seconds > 0 else None
    return submission.run_at if submission.run_at is not None and submission.run_at > now else None


def _same_request(there: Job, asked: JobRecord) -> bool:
    if (there.name, there.queue) != (asked.name, asked.queue) or there.payload is None:
        return False
    asked_form = jsontext.canonical(asked.payload)
    if there.request_sha256 is not None:  # a redrive has put another payload in the place of the submitted one
        return there.request_sha256 == jsontext.sha256(asked_form)
    return there.payload_sha256 == asked.payload_sha256 or jsontext.canonical(there.payload) == asked_form


def _unregistered(record: JobRecord) -> JobRecord:
    return JobRecord(**{name: getattr(record, name) for name in record.__struct_fields__} | {"registered": False})


def _partition(tenant: str, ordering_key: str) -> str:
    return hashlib.sha256(f"{len(tenant)}:{tenant}{ordering_key}".encode()).hexdigest()


def _unavailable(detail: str, retry_after_seconds: float) -> Refusal:
    return Refusal(status=503, kind="unavailable", detail=detail, retry_after_seconds=retry_after_seconds)
