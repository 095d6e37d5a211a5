"""What the README prints works as printed, against the running system."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ringfence.local.dev import Dev
from ringfence.local.run_folder import write_environment

ROOT = Path(__file__).parents[3]
README = (ROOT / "README.md").read_text()
RINGFENCE = Path(sys.executable).parent / "ringfence"
PRINTED_API = "http://127.0.0.1:8080"


def block(info: str, having: str) -> str:
    """The one fenced block with this info string that contains ``having``."""
    (found,) = [text for text in re.findall(rf"```{re.escape(info)}\n(.*?)```", README, re.DOTALL) if having in text]
    return str(found)


def run(command: list[str], dev: Dev, text: str | None = None) -> str:
    environment = {**os.environ, "API": dev.api_url, "RINGFENCE_URL": dev.api_url}
    done = subprocess.run(command, input=text, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=90)
    assert done.returncode == 0, done.stderr + done.stdout
    return done.stdout


def test_the_curl_lines_answer_what_their_comments_say(dev: Dev) -> None:
    told = run(["bash", "-euo", "pipefail"], dev, block("sh try", "curl -si $API/v1/jobs"))
    statuses = [int(status) for status in re.findall(r"HTTP/1\.1 (\d+)", told)]
    assert statuses == [202, 202, 202, 422, 422, 200, 404, 200, 200, 200, 200]
    assert re.search(r"location: /v1/jobs/[a-z2-7]{26}\n", told, re.IGNORECASE)
    assert '"pointer":"/max_attempts"' in told.replace(" ", "")
    assert '"state":"succeeded"' in told.replace(" ", "")
    first, repeated = re.findall(r'"job_id": ?"([a-z2-7]{26})"', told)[1:3]
    assert first == repeated


@pytest.mark.parametrize(
    "having", ["ringfence submit signup --payload", "ringfence submit greet --guarantee", "ringfence queues priority --rate"]
)
def test_the_command_lines_work_as_printed(dev: Dev, having: str) -> None:
    for line in block("sh", having).strip().splitlines():
        printed = line.replace(".venv/bin/ringfence", str(RINGFENCE))
        assert run(["bash", "-c", printed], dev)


def test_the_pace_of_a_queue_is_changed_as_printed(dev: Dev) -> None:
    told = run(["bash", "-euo", "pipefail"], dev, block("sh pace", "rate_per_second"))
    assert [int(status) for status in re.findall(r"HTTP/1\.1 (\d+)", told)] == [200, 200, 200, 200, 200, 202]
    shown = [(each["rate_per_second"], each["burst"], each["high_water_mark"], each["paused"]) for each in queues_in(told)]
    assert shown == [(1.0, 3, None, False), (1.0, 3, 5000, False), (1.0, 3, 5000, True), (None, 1, None, False)]
    assert '"state":"succeeded"' in told.replace(" ", "")
    assert '"state":"scheduled"' in told.replace(" ", "")


def queues_in(told: str) -> list[dict[str, Any]]:
    """The documents of queues among some answers."""
    return [json.loads(document) for document in re.findall(r'\{"name": ?"priority".*?"parked": ?\w+\}', told)]


def test_a_dead_job_is_mended_as_printed(dev: Dev, tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    variables = write_environment(tmp_path / "run", dev.environment())
    printed = block("sh", "ringfence redrive").replace(".venv/bin/ringfence", str(RINGFENCE))
    printed = printed.replace(".venv/bin/python", sys.executable).replace(".ringfence/latest/environment", str(variables))
    told = run(["bash", "-euo", "pipefail"], dev, printed)
    assert [word for word in re.split(r"\s+", told) if word in ("dead", "scheduled", "succeeded", "cancelled")] == [
        "dead", "dead", "scheduled", "succeeded", "cancelled",
    ]  # fmt: skip
    assert "exit code 3" in told
    assert "there is no account acme" in told


def test_the_job_that_one_is_told_to_write_is_found_and_runs(tmp_path: Path) -> None:
    jobs = shutil.copytree(ROOT / "functions/worker/jobs", tmp_path / "jobs")
    (jobs / "greet.py").write_text(block("python", '@app.job("greet")'))
    documented = ast.get_docstring(ast.parse((jobs / "__init__.py").read_text()))
    (jobs / "__init__.py").write_text(f'"""{documented}"""\n\n{block("python", "from jobs import charge, greet")}')
    program = (
        "from ringfence.app_import import load_app; from ringfence.testing.system import MemorySystem\n"
        "here = MemorySystem(load_app('jobs:app')); job = here.submit('greet', '{\"name\": \"Ada\"}')\n"
        "here.run_relay(); here.run_worker(); print(here.job(job.job_id).result)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60)
    assert done.stdout.splitlines() == ["attempt 1", '"Hello, Ada!"']


def test_the_python_lines_work_as_printed(dev: Dev) -> None:
    code = block("python", "from ringfence import Client").replace(PRINTED_API, dev.api_url)
    assert run([sys.executable, "-c", code], dev).strip() == "succeeded"


@pytest.mark.parametrize("name", ["signup"])
def test_the_job_printed_is_the_job_that_is_there(name: str) -> None:
    printed = re.findall(r"ctx\.effects\.\w+\(\"\w+\"", block("python", f'@app.job("{name}"'))
    there = (ROOT / "functions/worker/jobs" / f"{name}.py").read_text()
    assert printed
    assert all(call in there for call in printed)
