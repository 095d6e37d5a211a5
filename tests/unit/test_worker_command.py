"""What ``ringfence worker`` refuses before it starts a process. At work it is in integration/test_worker_process.py."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from ringfence.aws import clients
from ringfence.cli.worker import _load, worker
from ringfence.settings import Settings
from ringfence.testing import worker_command
from ringfence.testing.worker_command import WorkerCommand

RINGFENCE = Path(sys.executable).parent / "ringfence"
ENVIRONMENT = {
    "RINGFENCE_LEDGER_TABLE": "ledger",
    "RINGFENCE_STREAM": "log",
    "RINGFENCE_QUEUES": '{"default": "redis://127.0.0.1:1/q"}',
    "RINGFENCE_APP": "jobs:app",
}


@pytest.mark.parametrize(
    ("options", "queues", "told"),
    [
        (["-q", "default:1", "-q", "default:2"], None, "named twice"),
        (["-q", "nope"], None, "names no nope; it has default"),
        ([], "", "names no queue"),
        (["--liveness-file", "/nope/alive"], None, "/nope/alive cannot be written"),
    ],
)
def test_what_cannot_be_meant_is_wrong_usage(options: list[str], queues: str | None, told: str) -> None:
    environment = ENVIRONMENT if queues is None else {**ENVIRONMENT, "RINGFENCE_QUEUES": queues}
    ended = CliRunner().invoke(worker, options, env=environment)
    assert ended.exit_code == 2
    assert told in ended.output


def test_jobs_that_cannot_be_imported_are_told_once_and_start_nothing(tmp_path: Path) -> None:
    (tmp_path / "jobs.py").write_text("app = 1 / 0\n")
    ended = subprocess.run(
        [RINGFENCE, "worker", "--processes", "3"],
        cwd=tmp_path,
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert ended.returncode == 1
    assert ended.stderr.splitlines() == [
        f"Error: RINGFENCE_APP=jobs:app cannot be imported: {tmp_path}/jobs.py:1: ZeroDivisionError: division by zero"
    ]


def test_a_process_keeps_connections_for_every_thread_that_it_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    request.addfinalizer(lambda: (clients.make_room(0), clients.forget()))
    (tmp_path / "their_jobs.py").write_text("from ringfence import App\napp = App()\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    clients.forget()
    assert _load(Settings.from_environment({**ENVIRONMENT, "RINGFENCE_APP": "their_jobs:app"}), 1_024) is not None
    assert clients.client("dynamodb").meta.config.max_pool_connections >= 2 * 1_024


def test_whoever_reads_its_events_passes_over_what_its_jobs_print(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    command = tmp_path / "ringfence"
    command.write_text('#!/bin/sh\necho hello; echo 17; echo; echo \'{"event":"job_succeeded"}\'\n')
    command.chmod(0o755)
    monkeypatch.setattr(worker_command, "RINGFENCE", command)
    monkeypatch.setattr(worker_command, "NEXT_SECONDS", 10.0)
    running = WorkerCommand({}, tmp_path)
    assert running.next("job_succeeded") == {"event": "job_succeeded"}
    running.end()
