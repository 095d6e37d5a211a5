"""The Python client: the API's verbs, each safe to repeat unless its job is submitted at-least-once.

with Client("https://…", api_key="rf_…") as client:
    submitted = client.submit("signup", {"email": "ada@example.com"})
    job = client.wait(submitted.job_id)
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from datetime import datetime
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote, urlencode

import msgspec
from msgspec import UNSET, UnsetType

from ringfence.client import arguments
from ringfence.client.arguments import NONE
from ringfence.client.batches import BatchSender, Outcome, batches, keyed
from ringfence.client.jobs import JobRequest, JobSnapshot, Submitted, payload_text, snapshot
from ringfence.client.transport import Answer, Transport, document, error_of, problem_in
from ringfence.clock import SystemClock
from ringfence.errors import StillRunning
from ringfence.http.documents import (
    AcceptedDocument,
    EntriesDocument,
    JobPage,
    QuarantineDocument,
    QueueDocument,
    QueuesDocument,
    SetAsideDocument,
)
from ringfence.http.queue_settings import QueueChange
from ringfence.job import Guarantee, State
from ringfence.ports import Clock

JOBS, QUEUES = "/v1/jobs", "/v1/queues"

HELD_SECONDS = 20.0
"""The longest ``?wait=`` that is asked for; the API caps it lower, or at nothing, as it likes."""

LEAST_PATIENCE_SECONDS = 1.0
"""How long a `wait` tries at least to ask, however little time it has: a single refusal says nothing."""

FIRST_POLL_SECONDS, LONGEST_POLL_SECONDS = 0.1, 5.0

PAGE_JOBS = 100


class Client:
    """One API, one key. May be shared by threads.

    ``timeout_seconds`` bounds each request, ``retry_seconds`` all the tries of one call together. Raises `Rejected` for what
    will not be accepted however often it is sent (`NotFound` for an unknown job), `Unavailable` when retrying did not help.
    Proxies named in the environment are not used.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        *,
        timeout_seconds: float = 10.0,
        retry_seconds: float = 30.0,
        allow_plain_http: bool = False,
        clock: Clock | None = None,
        random_source: random.Random | None = None,
    ) -> None:
        arguments.check(str, base_url=base_url)
        arguments.check(str, NONE, api_key=api_key)
        arguments.check(int, float, timeout_seconds=timeout_seconds, retry_seconds=retry_seconds)
        self._clock = clock or SystemClock()
        self._random = random_source or random.Random()
        self._transport = Transport(
            base_url,
            api_key,
            timeout_seconds=timeout_seconds,
            retry_seconds=retry_seconds,
            allow_plain_http=allow_plain_http,
            clock=self._clock,
            random_source=self._random,
        )
        self._batches = BatchSender(self._post_jobs, retry_seconds=retry_seconds, clock=self._clock, random_source=self._random)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close every connection that no call is using."""
        self._transport.close()

    # --- submitting --------------------------------------------------------------------------------------------------

    def submit(
        self,
        name: str,
        payload: Any = None,
        *,
        queue: str = "default",
        idempotency_key: str | None = None,
        delay_seconds: float | None = None,
        run_at: datetime | None = None,
        max_attempts: int = 5,
        ordering_key: str | None = None,
        guarantee: Guarantee | str = Guarantee.ONCE,
        traceparent: str | None = None,
    ) -> Submitted:
        """Submit one job; see `JobRequest`."""
        key, request = keyed(
            JobRequest(
                name=name,
                payload=payload,
                queue=queue,
                idempotency_key=idempotency_key,
                delay_seconds=delay_seconds,
                run_at=run_at,
                max_attempts=max_attempts,
                ordering_key=ordering_key,
                guarantee=guarantee,
            )
        )
        arguments.check(str, NONE, traceparent=traceparent)
        headers = {} if traceparent is None else {"traceparent": traceparent}
        accepted = self._transport.call("POST", JOBS, document(AcceptedDocument), request.encoded(), headers)
        return Submitted(
            job_id=accepted.job_id,
            state=accepted.state,
            repeated=accepted.repeated,
            idempotency_key=key,
            guarantee=accepted.guarantee,
        )

    def submit_many(self, requests: Iterable[JobRequest]) -> list[Outcome]:
        """Submit any number of jobs. The outcomes are in the order of the requests: `Submitted`, or the error of that one.

        Raises only for what is no JSON or of a wrong type (`ValueError`, `TypeError`), before the batch that holds it is sent.
        """
        return [outcome for outcomes in self.submit_in_batches(requests) for outcome in outcomes]

    def submit_in_batches(self, requests: Iterable[JobRequest]) -> Iterator[list[Outcome]]:
        """`submit_many`, a batch at a time: for more jobs than fit in memory, and to see how far it has come."""
        for batch in batches(requests):
            yield self._batches.submit(batch)

    def _post_jobs(self, body: bytes, within_seconds: float) -> EntriesDocument:
        return self._transport.call("POST", JOBS, document(EntriesDocument), body, within_seconds=within_seconds)

    # --- asking ------------------------------------------------------------------------------------------------------

    def get(self, job_id: str) -> JobSnapshot:
        """The job as it is now."""
        return self._transport.call("GET", _path(job_id), snapshot)

    def wait(self, job_id: str, timeout_seconds: float = 60.0) -> JobSnapshot:
        """The job once it has ended, however it did. Raises `StillRunning` when the time is up, `Unavailable` if the API could
        not be asked until then."""
        arguments.check(int, float, timeout_seconds=timeout_seconds)
        deadline = self._clock.monotonic() + timeout_seconds
        pause = FIRST_POLL_SECONDS
        while True:
            asked_at = self._clock.monotonic()
            held = max(0.0, min(HELD_SECONDS, deadline - asked_at))
            patience = max(LEAST_PATIENCE_SECONDS, deadline - asked_at)
            query = f"?wait={held:.3f}" if held else ""
            job = self._transport.call("GET", _path(job_id) + query, snapshot, wait_seconds=held, within_seconds=patience)
            if job.state.terminal:
                return job
            now = self._clock.monotonic()
            if now >= deadline:
                raise StillRunning(f"job {job_id} is still {job.state} after {timeout_seconds:g} s")
            if now - asked_at < pause:  # an API that does not hold requests: ask again less and less often
                self._clock.sleep(min(self._random.uniform(pause / 2, pause), deadline - now))
                pause = min(LONGEST_POLL_SECONDS, pause * 1.5)

    def queues(self) -> dict[str, QueueDocument]:
        """How much waits in each queue, and at what pace it goes. A queue that cannot be asked has None for its depth, and says
        why in ``depth_fault``."""
        return {queue.name: queue for queue in self._transport.call("GET", QUEUES, document(QueuesDocument)).queues}

    def queue(self, name: str) -> QueueDocument:
        """The same of one queue. Raises `Rejected` (404, ``unknown-queue``) if there is none of this name."""
        return self._transport.call("GET", _queue_path(name), document(QueueDocument))

    def quarantine(self, limit: int = 50) -> list[SetAsideDocument]:
        """What could not be read and was set aside, newest first; ``limit`` is at most 100."""
        arguments.check(int, limit=limit)
        return self._transport.call("GET", f"/v1/quarantine?limit={limit}", document(QuarantineDocument)).items

    # --- acting ------------------------------------------------------------------------------------------------------

    def cancel(self, job_id: str) -> JobSnapshot:
        """Cancel a waiting job, ask the worker of a running one to stop, leave an ended one alone. Returns the job afterwards:
        its ``state`` tells which it was."""
        return self._transport.call("POST", _path(job_id) + "/cancel", snapshot)

    def set_queue(
        self,
        name: str,
        *,
        rate_per_second: float | UnsetType | None = UNSET,
        burst: int | UnsetType = UNSET,
        paused: bool | UnsetType = UNSET,
        high_water_mark: int | UnsetType | None = UNSET,
    ) -> QueueDocument:
        """Change some live settings of a queue, for all tenants; None takes a limit away. Returns the queue afterwards.

        Needs a key with the scope admin. In force within five seconds.
        """
        arguments.check(int, float, NONE, UnsetType, rate_per_second=rate_per_second)
        arguments.check(int, UnsetType, burst=burst)
        arguments.check(int, NONE, UnsetType, high_water_mark=high_water_mark)
        arguments.check(bool, UnsetType, paused=paused)
        change = QueueChange(rate_per_second=rate_per_second, burst=burst, paused=paused, high_water_mark=high_water_mark)
        return self._transport.call("PATCH", _queue_path(name), document(QueueDocument), msgspec.json.encode(change))

    def redrive(self, job_id: str, payload: Any = None) -> JobSnapshot:
        """Give a dead job its attempts back, with another payload unless that is None. `Rejected` (409) if it is not dead."""
        body = None if payload is None else b'{"payload":' + payload_text(payload).encode() + b"}"
        job = self._transport.call("POST", _path(job_id) + "/redrive", _redriven, body, returned=(409,))
        return job or self.get(job_id)

    def list(
        self, *, queue: str | None = None, state: State | str | None = None, limit: int | None = None
    ) -> Iterator[JobSnapshot]:
        """Jobs, newest first (dead ones alone: by their end), page after page as they are taken; at most ``limit``."""
        arguments.check(str, NONE, queue=queue, state=state)
        arguments.check(int, NONE, limit=limit)
        left = limit
        cursor: str | None = None
        while left is None or left > 0:
            size = PAGE_JOBS if left is None else min(PAGE_JOBS, left)
            asked = {"queue": queue, "state": state and str(state), "cursor": cursor, "limit": size}
            query = urlencode({name: value for name, value in asked.items() if value is not None})
            page = self._transport.call("GET", f"{JOBS}?{query}", document(JobPage))
            for job in page.jobs[:left]:
                yield JobSnapshot(job, msgspec.json.encode(job).decode())
            left = None if left is None else left - len(page.jobs)
            cursor = page.cursor
            if cursor is None:
                return


def _redriven(answer: Answer) -> JobSnapshot | None:
    """The job; None if an earlier try has redriven it, and its answer was lost."""
    if answer.status != 409:
        return snapshot(answer)
    if answer.tries > 1:
        return None
    raise error_of(problem_in(answer))


def _path(job_id: str) -> str:
    arguments.check(str, job_id=job_id)
    return f"{JOBS}/{quote(job_id, safe='')}"


def _queue_path(name: str) -> str:
    arguments.check(str, name=name)
    return f"{QUEUES}/{quote(name, safe='')}"
