"""Many jobs in as few requests as the API allows, and only the unlucky ones again."""

from __future__ import annotations

import dataclasses
import random
import re
import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence

from ringfence.client import arguments
from ringfence.client.jobs import JobRequest, Submitted
from ringfence.client.transport import BACKOFF, error_of
from ringfence.errors import Rejected, RingfenceError, Unavailable
from ringfence.http.documents import EntriesDocument, EntryDocument
from ringfence.http.submissions import MAX_JOBS
from ringfence.job import Guarantee
from ringfence.ports import Clock
from ringfence.retry import Pauses

MAX_BATCH_BYTES = 2 * 1024 * 1024
"""The API takes 6 MB as Lambda counts them: the body is a JSON string in the event, where each quote and backslash is two
bytes. A third of it always fits."""

Outcome = Submitted | RingfenceError
"""What became of one job: accepted, or the error with which it was refused."""

_JOB_POINTER = re.compile(r"/jobs/(\d+)(/.*)?")


@dataclasses.dataclass(frozen=True, slots=True)
class Encoded:
    """A job ready to be sent, under a key of its own if it is to have a row."""

    key: str | None
    body: bytes


Send = Callable[[bytes, float], EntriesDocument]
"""Posts a body to the API, with the retries of a whole request, within so many seconds."""


def keyed(request: JobRequest) -> tuple[str | None, JobRequest]:
    """The request with its idempotency key, a fresh random one if it has none and may have one."""
    if request.idempotency_key is not None or not request.has_row:
        return request.idempotency_key, request
    key = secrets.token_hex(16)
    return key, dataclasses.replace(request, idempotency_key=key)


def batches(requests: Iterable[JobRequest]) -> Iterator[list[Encoded]]:
    """The jobs in their order, packed up to `MAX_JOBS` and `MAX_BATCH_BYTES`. Takes from ``requests`` only as it goes."""
    packed: list[Encoded] = []
    size = 0
    for request in requests:
        arguments.check(JobRequest, request=request)
        key, with_key = keyed(request)
        job = Encoded(key, with_key.encoded())
        if packed and (len(packed) == MAX_JOBS or size + len(job.body) + 1 > MAX_BATCH_BYTES):
            yield packed
            packed, size = [], 0
        packed.append(job)
        size += len(job.body) + 1
    if packed:
        yield packed


class BatchSender:
    """Sends batches, and those of their jobs again that were refused for now."""

    def __init__(self, send: Send, *, retry_seconds: float, clock: Clock, random_source: random.Random) -> None:
        self._send, self._retry_seconds, self._clock, self._random = send, retry_seconds, clock, random_source

    def submit(self, batch: Sequence[Encoded]) -> list[Outcome]:
        """An outcome for each job, in their order. Never raises for what befell jobs."""
        pauses = Pauses(BACKOFF, self._clock, self._random, seconds=self._retry_seconds)
        outcomes: list[Outcome] = [Unavailable() for _ in batch]
        waiting = list(range(len(batch)))
        while waiting:
            spent = False
            try:
                answered = _one_round(self._send, [batch[index] for index in waiting], pauses.left_seconds)
            except Unavailable as fault:  # the request as a whole, after all its tries
                answered = [fault] * len(waiting)
                spent = True
            for index, outcome in zip(waiting, answered, strict=True):
                outcomes[index] = outcome
            refused_for_now = [outcome for outcome in answered if isinstance(outcome, Unavailable)]
            waiting = [index for index in waiting if isinstance(outcomes[index], Unavailable)]
            asked = max((outcome.retry_after_seconds for outcome in refused_for_now), default=0.0)
            if waiting and (spent or not pauses.another_try(asked)):
                break
        return outcomes


def _one_round(send: Send, jobs: Sequence[Encoded], within_seconds: float) -> list[Outcome]:
    try:
        answered = send(b'{"jobs":[' + b",".join(job.body for job in jobs) + b"]}", within_seconds)
    except Rejected as refusal:
        return _all_refused(refusal, len(jobs))
    if (told := len(answered.jobs)) != len(jobs):
        return [Unavailable(f"the API told of {told} jobs, and {len(jobs)} were sent")] * len(jobs)
    return [_outcome(job, entry) for job, entry in zip(jobs, answered.jobs, strict=True)]


def _outcome(job: Encoded, entry: EntryDocument) -> Outcome:
    if entry.job_id is not None and entry.state is not None:
        return Submitted(
            job_id=entry.job_id,
            state=entry.state,
            repeated=bool(entry.repeated),
            idempotency_key=job.key,
            guarantee=entry.guarantee or Guarantee.ONCE,
        )
    if entry.problem is None:
        return RingfenceError(f"the API answered {entry.status} for this job and did not say why")
    error = error_of(entry.problem)
    if isinstance(error, Unavailable) and entry.retry_after_seconds is not None:
        error.retry_after_seconds = entry.retry_after_seconds
    return error


def _all_refused(refusal: Rejected, count: int) -> list[Outcome]:
    """A malformed job has its whole request refused: it gets the blame, the others are told that nothing was accepted."""
    found = _JOB_POINTER.fullmatch(refusal.pointer or "")
    if found is None or int(found[1]) >= count:
        return [refusal] * count
    culprit = int(found[1])
    outcomes: list[Outcome] = [
        Rejected(
            f"not accepted: job {culprit + 1} of the same request was refused", kind="batch-refused", status=refusal.status
        )
        for _ in range(count)
    ]
    outcomes[culprit] = Rejected(str(refusal), kind=refusal.kind, status=refusal.status, pointer=found[2] or "")
    return outcomes
