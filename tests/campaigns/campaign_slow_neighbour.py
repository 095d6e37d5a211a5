"""A queue that keeps a pace of one a second gets ten thousand jobs, beside a free one in the same shard, with real processes:
gateway, relay, timers, Redis and ``ringfence worker`` (must hold 2). `test_slow_neighbour` is the short form.

What is measured: from its acceptance to its end, each job of the free queue, ten a second. Beside: ten thousand slow jobs come
into the log, in one client's largest requests, then a steady stream of more; the relay parks them, and timers call up one a
second. Alone: none come, and the slow queue is paused, so that nobody looks at its line. The two take turns in one system,
alone first and last, and a round's p99 are those of all its jobs: what an emulator answers becomes slower the longer it runs,
and what else the machine does comes and goes. For the same reason the claim compares the medians of the rounds' p99.

What is not: the requests of the slow jobs and the rows that these write. The emulator is one process and the bottleneck of it
all, so that ten thousand requests would tell of it and of nothing else. The rows are there before, and the records come into
the log from here, as the gateway would put them there. Ten thousand at once are the short form's, in virtual time.
"""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from ringfence import Client, transitions
from ringfence.aws.ledger import DynamoLedger
from ringfence.aws.log import KinesisLog
from ringfence.change import Written
from ringfence.clock import SystemClock
from ringfence.ids import RandomIds
from ringfence.job import Job
from ringfence.local.dev import Dev
from ringfence.ports import LogEntry
from ringfence.settings import Settings
from ringfence.testing.given import accepted_record
from ringfence.testing.worker_command import WorkerCommand
from ringfence.wire import JobRecord, encode_records

ROOT = Path(__file__).parents[2]
APP = Path(__file__).with_name("campaign_app")
LIBRARY = ROOT / "layers" / "ringfence" / "python"

ROUNDS = 5
TURN_SECONDS = 15
FREE_PER_SECOND = 10
CROWD = 10_000
CROWD_REQUEST_JOBS, CROWD_REQUEST_SECONDS = 500, 0.55
"""One client's requests, as large as they may be and one after the other: the gateway writes 500 rows for each. Not a multiple
of the pause between two free jobs, or these would always come at the same moment of them."""
STREAM_REQUEST_JOBS, STREAM_REQUEST_SECONDS = 50, 0.512
RELEASED_AT_MOST = 200
"""Of the slow jobs, in all the seconds of a round."""
PACE_KNOWN_SECONDS = 5
REGISTERED_TOGETHER = 25
WARMING_JOBS = 10

Arriving = Sequence[tuple[float, list[LogEntry]]]
"""Requests: after how many seconds each comes into the log, and its records."""


class Here:
    """A running system with the rows of the slow jobs in its ledger."""

    def __init__(self, dev: Dev) -> None:
        settings = Settings.from_environment(dev.environment("WorkerFunction"))
        clock, dynamodb = SystemClock(), dev.endpoint.client("dynamodb")
        self.ids = RandomIds()
        self.client = Client(dev.api_url, timeout_seconds=30)
        self.ledger = DynamoLedger(dynamodb, settings.ledger_table, settings.tables, clock)
        self.log = KinesisLog(dev.endpoint.client("kinesis"), settings.stream, clock)
        self.client.set_queue("default", rate_per_second=1.0, paused=True)
        self.crowd = self._requests(CROWD, CROWD_REQUEST_JOBS, CROWD_REQUEST_SECONDS)
        stream_jobs = int(TURN_SECONDS / STREAM_REQUEST_SECONDS) * STREAM_REQUEST_JOBS
        self.stream = self._requests(stream_jobs, STREAM_REQUEST_JOBS, STREAM_REQUEST_SECONDS)
        self.slow_jobs = CROWD + stream_jobs

    def _requests(self, jobs: int, request_jobs: int, every_seconds: float) -> Arriving:
        """Requests with so many slow jobs, whose rows are there."""
        records = self._registered(jobs)
        requests = (records[start : start + request_jobs] for start in range(0, jobs, request_jobs))
        return [
            (number * every_seconds, [LogEntry(data, self.ids.mark()) for data, _ in encode_records(request)])
            for number, request in enumerate(requests)
        ]

    def _registered(self, count: int) -> list[JobRecord]:
        records = [accepted_record("noop") for _ in range(count)]
        rows = [transitions.accept(record, write_id=self.ids.mark(), due_id="") for record in records]
        slices = [rows[start : start + REGISTERED_TOGETHER] for start in range(0, count, REGISTERED_TOGETHER)]
        with ThreadPoolExecutor(4) as pool:
            for outcomes in pool.map(self.ledger.write_many, slices):
                assert all(isinstance(outcome, Written) for outcome in outcomes)
        return records

    # --- the two that are compared -----------------------------------------------------------------------------------

    def alone_ms(self) -> list[float]:
        self._set_slow_queue(paused=True)
        return self._latencies_ms([])

    def beside_ms(self, arriving: Arriving) -> list[float]:
        self._set_slow_queue(paused=False)
        return self._latencies_ms(arriving)

    def _set_slow_queue(self, *, paused: bool) -> None:
        self.client.set_queue("default", paused=paused)
        time.sleep(PACE_KNOWN_SECONDS)

    def _latencies_ms(self, arriving: Arriving) -> list[float]:
        """From its acceptance to its end, for each job of the free queue."""
        with ThreadPoolExecutor(1) as pool:
            appended = pool.submit(self._append, arriving)
            job_ids = []
            start = time.monotonic()
            for number in range(TURN_SECONDS * FREE_PER_SECOND):
                _sleep_until(start + number / FREE_PER_SECOND)
                job_ids.append(self.client.submit("noop", {}, queue="priority").job_id)
            appended.result()
        return [float((row.finished_at or 0) - row.created_at) for row in map(self._ended, job_ids)]

    def _append(self, arriving: Arriving) -> None:
        start = time.monotonic()
        for after_seconds, entries in arriving:
            _sleep_until(start + after_seconds)
            assert None not in self.log.append(entries)

    def _ended(self, job_id: str) -> Job:
        give_up_at = time.monotonic() + 60
        while (row := self.ledger.get(job_id)) is None or not row.state.terminal:
            assert time.monotonic() < give_up_at, f"job {job_id} of the free queue does not end: {row}"
            time.sleep(0.05)
        return row

    def waiting(self) -> int:
        """How many of the slow jobs stand in line."""
        groups = sum(len(group.waiting) for group in self.ledger.groups("default", 10**6))
        return groups + len(self.ledger.line("default", self.slow_jobs))


def _sleep_until(moment: float) -> None:
    time.sleep(max(0.0, moment - time.monotonic()))


@contextmanager
def system(folder: Path) -> Iterator[Here]:
    environment = {"RINGFENCE_APP": "campaign_jobs:app", "PYTHONPATH": os.pathsep.join([str(APP), str(LIBRARY)])}
    with Dev(ROOT / "template.yaml", emulator="ministack", queues="redis", extra_env=environment, run_folder=folder) as dev:
        worker = WorkerCommand({**dev.environment("WorkerFunction"), **environment}, APP, "-q", "priority", "--threads", "4")
        try:
            here = Here(dev)
            for _ in range(WARMING_JOBS):
                here.client.wait(here.client.submit("noop", {}, queue="priority").job_id, timeout_seconds=30)
            yield here
            here.client.close()
        finally:
            assert worker.end() == 0


def p(share: float, values: list[float]) -> float:
    return sorted(values)[int(len(values) * share)]


@pytest.mark.timeout(3_600)
def test_the_free_queues_p99_stays_within_twice_its_value_alone(
    tmp_path: Path, tell: Callable[[str], None], figure: Callable[[str], None]
) -> None:
    p99_alone, p99_beside = [], []
    for number in range(1, ROUNDS + 1):
        tell(f"round {number} of {ROUNDS}: starting a system, writing the rows of the slow jobs")
        folder = tmp_path / f"round-{number}"
        folder.mkdir()
        alone: list[float] = []
        beside: list[float] = []
        with system(folder) as here:
            turns = (("alone", None), ("beside a crowd", here.crowd), ("beside a stream", here.stream), ("alone", None))
            for name, arriving in turns:
                tell(f"the free queue {name}")
                if arriving is None:
                    alone += here.alone_ms()
                else:
                    beside += here.beside_ms(arriving)
            assert here.slow_jobs - RELEASED_AT_MOST < here.waiting() < here.slow_jobs
        p99_alone.append(p(0.99, alone))
        p99_beside.append(p(0.99, beside))
        figure(f"round {number} of {ROUNDS}: the free queue alone {told(alone)}; beside the slow one {told(beside)}")
    alone_ms, beside_ms = statistics.median(p99_alone), statistics.median(p99_beside)
    ratio = beside_ms / alone_ms
    figure(f"medians of the rounds' p99: alone {alone_ms:.0f} ms, beside {beside_ms:.0f} ms, {ratio:.2f} times as long")
    assert ratio < 2


def told(latencies: list[float]) -> str:
    return f"p50 {p(0.5, latencies):.0f} ms, p99 {p(0.99, latencies):.0f} ms"
