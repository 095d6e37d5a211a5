"""A queue that keeps a pace of one a second gets ten thousand jobs, beside a free one in the same shard, with real processes:
gateway, relay, timers, Redis and ``ringfence worker`` (must hold 2). `test_slow_neighbour` is the short form.

The emulator is one process and the bottleneck of it all, so that ten thousand requests would tell of it and of nothing else.
The rows of the crowd are there beforehand in every round; its records come into the log while the free queue is measured, or
do not.
"""

from __future__ import annotations

import bisect
import itertools
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from ringfence import Client, transitions
from ringfence.aws.ledger import DynamoLedger
from ringfence.aws.log import KinesisLog
from ringfence.clock import SystemClock
from ringfence.http.auth import DEFAULT_TENANT
from ringfence.ids import RandomIds
from ringfence.job import Job
from ringfence.jsontext import sha256
from ringfence.local.dev import Dev
from ringfence.ports import LogEntry
from ringfence.settings import Settings
from ringfence.testing.worker_command import WorkerCommand
from ringfence.wire import JobRecord, encode_records

ROOT = Path(__file__).parents[2]
APP = Path(__file__).with_name("campaign_app")
LIBRARY = ROOT / "layers" / "ringfence" / "python"

ROUNDS = 5
CROWD = 10_000
FREE_PER_SECOND = 10
SECONDS = 30
CROWD_COMES_AFTER_SECONDS = 5
LOG_BYTES_PER_SECOND = 1_000_000
"""What a shard takes, though the emulator would take more.
https://docs.aws.amazon.com/streams/latest/dev/service-sizes-and-limits.html"""
PACE_KNOWN_SECONDS = 5


class Here:
    """A running system with the rows of a crowd in its ledger."""

    def __init__(self, dev: Dev) -> None:
        settings = Settings.from_environment(dev.environment("WorkerFunction"))
        clock, dynamodb = SystemClock(), dev.endpoint.client("dynamodb")
        self.dev = dev
        self.client = Client(dev.api_url, timeout_seconds=30)
        self.ledger = DynamoLedger(dynamodb, settings.ledger_table, settings.tables, clock)
        self.log = KinesisLog(dev.endpoint.client("kinesis"), settings.stream, clock)
        self.client.set_queue("default", rate_per_second=1.0)
        self.crowd = self._registered_crowd()
        time.sleep(PACE_KNOWN_SECONDS)

    def _registered_crowd(self) -> list[LogEntry]:
        ids, payload = RandomIds(), "{}"
        records = [
            JobRecord(
                job_id=ids.job(),
                tenant=DEFAULT_TENANT,
                queue="default",
                name="noop",
                payload=payload,
                payload_sha256=sha256(payload),
                created_at=int(time.time() * 1000),
                max_attempts=5,
            )
            for _ in range(CROWD)
        ]

        def register(record: JobRecord) -> None:
            assert self.ledger.register(transitions.accept(record, write_id=ids.mark(), due_id="")) is None

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(register, records))
        return [LogEntry(data, ids.mark()) for data, _ in encode_records(records)]

    def latencies_ms(self, crowd: list[LogEntry]) -> list[float]:
        """From its acceptance to its end, for each job of the free queue."""
        job_ids: list[str] = []
        ends, appended = list(itertools.accumulate(len(entry.data) for entry in crowd)), 0
        start = time.monotonic()
        for number in range(SECONDS * FREE_PER_SECOND):
            fits = LOG_BYTES_PER_SECOND * (number / FREE_PER_SECOND - CROWD_COMES_AFTER_SECONDS)
            if (coming := bisect.bisect(ends, fits)) > appended:
                assert None not in self.log.append(crowd[appended:coming])
                appended = coming
            job_ids.append(self.client.submit("noop", {}, queue="priority").job_id)
            time.sleep(max(0.0, start + (number + 1) / FREE_PER_SECOND - time.monotonic()))
        return [float((row.finished_at or 0) - row.created_at) for row in map(self._ended, job_ids)]

    def _ended(self, job_id: str) -> Job:
        give_up_at = time.monotonic() + 60
        while (row := self.ledger.get(job_id)) is None or not row.state.terminal:
            assert time.monotonic() < give_up_at
            time.sleep(0.05)
        return row

    def waiting(self) -> int:
        """How many of the crowd stand in line."""
        groups = sum(len(group.waiting) for group in self.ledger.groups("default", 10**6))
        return groups + len(self.ledger.line("default", CROWD))


@contextmanager
def system(folder: Path) -> Iterator[Here]:
    environment = {"RINGFENCE_APP": "campaign_jobs:app", "PYTHONPATH": os.pathsep.join([str(APP), str(LIBRARY)])}
    with Dev(ROOT / "template.yaml", emulator="ministack", queues="redis", extra_env=environment, run_folder=folder) as dev:
        worker = WorkerCommand({**dev.environment("WorkerFunction"), **environment}, APP, "-q", "priority", "--threads", "4")
        try:
            here = Here(dev)
            for _ in range(10):
                here.client.wait(here.client.submit("noop", {}, queue="priority").job_id, timeout_seconds=30)
            yield here
            here.client.close()
        finally:
            assert worker.end() == 0


def p(share: float, values: list[float]) -> float:
    return sorted(values)[int(len(values) * share)]


@pytest.mark.timeout(3_600)
def test_the_free_queues_p99_stays_within_twice_its_value_alone(tmp_path: Path, tell: Callable[[str], None]) -> None:
    """In rounds, each with both, and by the median of their ratios: what else the machine does must not decide."""
    rounds = []
    for number in range(ROUNDS):
        folder = tmp_path / f"round-{number}"
        folder.mkdir()
        with system(folder) as here:
            alone = here.latencies_ms([])
            assert here.waiting() == 0
            beside = here.latencies_ms(here.crowd)
            waiting = here.waiting()
        assert waiting > CROWD - 200 - 2 * SECONDS
        for name, latencies in (("alone", alone), ("beside", beside)):
            tell(f"round {number + 1}, {name}: p50 {p(0.5, latencies):.0f} ms, p99 {p(0.99, latencies):.0f} ms")
        rounds.append((p(0.99, alone), p(0.99, beside)))
    ratio = statistics.median(beside / alone for alone, beside in rounds)
    tell(json.dumps({"p99_alone_and_beside_ms": rounds, "ratio": round(ratio, 2)}))
    assert ratio < 2
