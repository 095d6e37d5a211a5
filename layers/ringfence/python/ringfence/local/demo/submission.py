"""Putting the files into the bucket and the jobs into the queue."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from ringfence.client import Client, JobRequest, Submitted
from ringfence.local.demo.sources import Source

JOB = "index_module"

UPLOADS_AT_ONCE = 8

JOBS_PER_REQUEST = 50
"""Few enough that the slowest emulator answers each request within the client's timeout."""


@dataclass(slots=True)
class Accepted:
    """The jobs that the API has accepted, and what it said of the others."""

    jobs: dict[str, str] = field(default_factory=dict)
    """Job id → key of its file."""
    refused: list[str] = field(default_factory=list)


def upload(sources: Sequence[Source], s3: Any, bucket: str) -> None:
    """Put every file into the bucket, under its key."""

    def put(source: Source) -> None:
        s3.put_object(Bucket=bucket, Key=source.key, Body=source.data)

    with ThreadPoolExecutor(UPLOADS_AT_ONCE) as pool:
        for _ in pool.map(put, sources):
            pass  # what a put raises is raised here


def submit(sources: Sequence[Source], client: Client, run: str, tell: Callable[[Accepted], None]) -> Accepted:
    """Submit a job for each file, in batches. ``run`` makes the idempotency keys this demo's own."""
    accepted = Accepted()
    for start in range(0, len(sources), JOBS_PER_REQUEST):
        batch = sources[start : start + JOBS_PER_REQUEST]
        requests = [
            JobRequest(name=JOB, payload={"key": source.key}, idempotency_key=f"{run}-{start + offset}")
            for offset, source in enumerate(batch)
        ]
        for source, outcome in zip(batch, client.submit_many(requests), strict=True):
            if isinstance(outcome, Submitted):
                accepted.jobs[outcome.job_id] = source.key
            else:
                accepted.refused.append(f"{source.key}: {outcome}")
        tell(accepted)
    return accepted
