"""``ringfence worker`` at work on a Redis queue behind the real gateway, log and relay: killed, drained, recycled."""

from __future__ import annotations

import os
import signal
import subprocess
import uuid
from pathlib import Path

import pytest

from ringfence import Client
from ringfence.client import JobRequest
from ringfence.local.dev import Dev
from ringfence.testing.worker_command import RINGFENCE, WorkerCommand

ROOT = Path(__file__).parents[2]
JOBS = ROOT / "functions/worker"


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
