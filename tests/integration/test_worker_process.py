"""``ringfence worker`` at work on a Redis queue behind the real gateway, log and relay: killed, drained, recycled; and on a
cluster, killed by its own jobs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from ringfence import Client, transitions
from ringfence.aws import clients
from ringfence.client import JobRequest
from ringfence.ids import RandomIds
from ringfence.job import Job, State
from ringfence.local.dev import Dev
from ringfence.runtime import Runtime
from ringfence.settings import Settings
from ringfence.testing.given import accepted_record
from ringfence.testing.redis_server import RedisServer
from ringfence.testing.worker_command import RINGFENCE, WorkerCommand
from ringfence.wire import new_ticket

ROOT = Path(__file__).parents[2]
JOBS = ROOT / "functions/worker"
PILLS = Path(__file__).with_name("pill_app")


@pytest.fixture
def environment(redis_dev: Dev) -> dict[str, str]:
    """Of a worker for the system."""
    return {**redis_dev.environment("WorkerFunction"), "RINGFENCE_LEASE_SECONDS": "2"}


def submit(client: Client, count: int) -> list[str]:
    requests = [
        JobRequest(name="signup", payload={"email": f"{uuid.uuid4().hex}@example.com", "name": "R"}) for _ in range(count)
    ]
    outcomes = client.submit_many(requests)
    return [outcome.job_id for outcome in outcomes if not isinstance(outcome, Exception)]


def test_jobs_run_from_redis_with_one_process_killed_and_the_rest_drained(redis_dev: Dev, environment: dict[str, str]) -> None:
    process = WorkerCommand(environment, JOBS, "-q", "default", "--processes", "2", "--threads", "4", "--grace", "10s")
    try:
        first = process.next("process_started")["pid"]
        with Client(redis_dev.api_url) as client:
            job_ids = submit(client, 60)
            assert len(job_ids) == 60
            os.kill(first, signal.SIGKILL)
            assert process.next("process_ended") == {"event": "process_ended", "pid": first, "detail": "signal 9"}
            assert process.next("process_started")["pid"] != first
            ended = [client.wait(job_id, timeout_seconds=60) for job_id in job_ids]
        assert {job.state for job in ended} == {"succeeded"}
    finally:
        code = process.end()
    assert code == 0


def test_a_process_is_replaced_after_so_many_jobs_and_shows_that_it_lives(
    redis_dev: Dev, environment: dict[str, str], tmp_path: Path
) -> None:
    alive = tmp_path / "alive"
    process = WorkerCommand(
        environment, JOBS, "-q", "default:1", "--threads", "2", "--max-jobs", "5", "--liveness-file", str(alive)
    )
    try:
        first = process.next("process_started")["pid"]
        with Client(redis_dev.api_url) as client:
            job_ids = submit(client, 12)
            assert process.next("process_ended") == {"event": "process_ended", "pid": first, "detail": "exit code 0"}
            assert {client.wait(job_id, timeout_seconds=60).state for job_id in job_ids} == {"succeeded"}
        assert alive.exists()
    finally:
        code = process.end()
    assert code == 0


ENDED_SECONDS = 60.0


class Pills:
    """A worker whose two queues are on a Redis Cluster, and the jobs that it is given."""

    def __init__(self, environment: Mapping[str, str], node: RedisServer) -> None:
        urls = {name: f"{node.url(f'{uuid.uuid4().hex}-{name}')}?cluster=1" for name in ("default", "priority")}
        self.environment = {
            **environment,
            "RINGFENCE_APP": "pills:app",
            "RINGFENCE_QUEUES": json.dumps(urls),
            "RINGFENCE_LEASE_SECONDS": "1",
        }
        self.here = Runtime(Settings.from_environment(self.environment))
        self.job_ids: list[str] = []

    def submit(self, name: str, queue: str, max_attempts: int = 5) -> str:
        record = accepted_record(name, queue=queue, max_attempts=max_attempts)
        assert self.here.ledger.register(transitions.accept(record, write_id=RandomIds().mark(), due_id="")) is None
        assert self.here.queues[queue].push([new_ticket(RandomIds().mark(), record)]) == []
        self.job_ids.append(record.job_id)
        return record.job_id

    def row(self, job_id: str) -> Job:
        row = self.here.ledger.get(job_id)
        assert row is not None
        return row

    def wait_ended(self) -> None:
        give_up_at = time.monotonic() + ENDED_SECONDS
        while left := [row for job_id in self.job_ids if not (row := self.row(job_id)).state.terminal]:
            assert time.monotonic() < give_up_at, left
            time.sleep(0.05)


@pytest.fixture
def pills(redis_dev: Dev, redis_nodes: Sequence[RedisServer], monkeypatch: pytest.MonkeyPatch) -> Iterator[Pills]:
    environment = redis_dev.environment("WorkerFunction")
    for name, value in environment.items():
        if name.startswith("AWS_"):
            monkeypatch.setenv(name, value)
    clients.forget()
    yield Pills(environment, redis_nodes[0])
    clients.forget()


@pytest.mark.skipif(sys.platform != "linux", reason="no other system limits a process's memory so")
def test_c25_c18_jobs_that_kill_their_process_die_after_their_attempts_and_whoever_shared_it_succeeds(pills: Pills) -> None:
    process = WorkerCommand(pills.environment, PILLS, "-q", "default", "-q", "priority", "--threads", "8")
    try:
        killed = pills.submit("killed", "default", max_attempts=2)
        neighbours = [pills.submit("innocent", queue) for queue in ("default", "priority") * 3]
        deaths = [process.next("process_ended")["detail"] for _ in range(2)]
        starved = pills.submit("starved", "priority", max_attempts=1)
        hungry = pills.submit("hungry", "default")
        neighbours += [pills.submit("innocent", queue) for queue in ("default", "priority") * 3]
        deaths.append(process.next("process_ended")["detail"])
        pills.wait_ended()
    finally:
        code = process.end()
    assert {pills.row(job_id).state for job_id in neighbours} == {State.SUCCEEDED}
    lost = "attempts are used up; the last one: the worker was lost"
    for job_id, attempts in ((killed, 2), (starved, 1)):
        row = pills.row(job_id)
        assert (row.state, row.attempts, row.error) == (State.DEAD, attempts, f"all {attempts} {lost}")
    assert pills.row(hungry).state is State.DEAD
    assert "MemoryError" in str(pills.row(hungry).error)
    assert deaths == ["signal 9", "signal 9", "signal 11"]
    assert [event["detail"] for event in drained(process) if event["event"] == "process_ended"] == ["exit code 0"]
    assert code == 0


def drained(process: WorkerCommand) -> Iterator[dict[str, Any]]:
    while not process.events.empty():
        yield process.events.get()


def test_an_unknown_queue_is_a_usage_error_that_names_the_known_ones(environment: dict[str, str]) -> None:
    done = subprocess.run(
        [RINGFENCE, "worker", "-q", "nope"],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert "default, priority" in done.stderr
