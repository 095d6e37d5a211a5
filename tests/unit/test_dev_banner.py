"""What `ringfence dev` says once it is ready, beside where everything is."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from ringfence.cli.dev import _tell_ready
from ringfence.cli.output import Output


@pytest.fixture
def system(tmp_path: Path) -> Any:
    run_folder = tmp_path / "my project" / ".ringfence" / "run-1"
    run_folder.mkdir(parents=True)
    return SimpleNamespace(
        run_folder=run_folder,
        environment=lambda: {"RINGFENCE_APP": "jobs:app"},
        endpoint=SimpleNamespace(kind="ministack"),
        endpoint_url="http://127.0.0.1:1",
        api_url="http://127.0.0.1:2",
        logs=run_folder / "logs",
        jobs_folder=tmp_path / "my project" / "functions" / "worker",
    )


def test_with_queues_on_redis_the_worker_that_runs_the_jobs_is_told_to_be_started(
    system: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [".venv/bin/ringfence", "dev"])
    _tell_ready(Output(as_json=False), cast("Any", system), "none", "redis")

    told = capsys.readouterr().out
    project = tmp_path / "my project"
    worker = f"cd '{project}/functions/worker' && {tmp_path}/.venv/bin/ringfence worker"
    assert "no job runs until you start a worker" in told
    assert f"  (. '{project}/.ringfence/latest/environment' && {worker})" in told.splitlines()


def test_with_queues_on_sqs_nothing_more_has_to_be_started(system: Any, capsys: pytest.CaptureFixture[str]) -> None:
    _tell_ready(Output(as_json=False), cast("Any", system), "none", "sqs")
    assert "start a worker" not in capsys.readouterr().out


def test_the_variables_of_another_run_are_told_of_for_the_latest_are_these(
    system: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = system.run_folder.with_name(f"run-{os.getppid()}")
    other.mkdir()
    (other / "environment").touch()
    _tell_ready(Output(as_json=False), cast("Any", system), "none", "sqs")
    assert f"({other / 'environment'}: another `ringfence dev`)" in capsys.readouterr().out


def test_the_job_that_one_is_told_to_try_is_there(system: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def tried() -> str:
        _tell_ready(Output(as_json=False), cast("Any", system), "none", "sqs")
        return capsys.readouterr().out.partition("Try it")[2]

    elsewhere = tried()
    assert f"a job of yours, in {system.jobs_folder}:" in elsewhere
    assert "signup" not in elsewhere
    example = system.jobs_folder / "jobs" / "signup.py"
    example.parent.mkdir(parents=True)
    example.touch()
    assert '{"name": "signup", "payload": {"email": "ada@example.com", "name": "Ada"}}' in tried()
