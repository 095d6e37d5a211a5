"""`ringfence demo` as a user runs it, on a small folder: real processes, a real freeze, a real kill."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Whoever is started in the background of a script ignores SIGINT, and so do all its children.
PROGRAM = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)
from ringfence.cli.main import main
main()
"""
COMMAND = [sys.executable, "-c", PROGRAM, "demo"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three files in two packages, one of them broken."""
    (tmp_path / "inner").mkdir()
    (tmp_path / "a.py").write_text("import os\n\ndef f(): ...\n")
    (tmp_path / "inner" / "b.py").write_text("class C:\n    def g(self): ...\n")
    (tmp_path / "inner" / "broken.py").write_text("def h(:\n")
    return tmp_path


@pytest.fixture
def running(folder: Path, queues: str) -> Iterator[subprocess.Popen[str]]:
    command = [*COMMAND, "--queues", queues, str(folder)]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as demo:
        yield demo
        demo.kill()


@pytest.mark.parametrize("queues", ["sqs"])
@pytest.mark.timeout(240)
def test_a_folder_is_indexed_once_while_one_worker_is_frozen_and_another_killed(running: subprocess.Popen[str]) -> None:
    out, told = running.communicate()
    assert running.returncode == 0, told
    summary = json.loads(out.splitlines()[-1])
    assert list(summary) == [
        "files", "accepted", "succeeded", "dead", "lost", "doubled", "late_writes_refused", "attempts", "seconds",
    ]  # fmt: skip
    assert (summary["files"], summary["accepted"], summary["succeeded"], summary["dead"]) == (6, 6, 2, 4)
    assert (summary["lost"], summary["doubled"]) == (0, 0)
    assert summary["late_writes_refused"] >= 1
    assert summary["attempts"] >= 6 + 2  # a job of the frozen worker and one of the killed one were started again
    assert "every number agrees" in out
    assert "6: 3 found, 3 broken ones of the demo's own" in out
    assert told.count("broken ones of the demo's own") == 1
    assert re.search(r"worker \d+ frozen", told)
    assert re.search(r"worker \d+ killed", told)


@pytest.mark.parametrize("queues", ["sqs", "redis"])
@pytest.mark.timeout(120)
def test_ctrl_c_ends_everything_also_the_frozen_worker(running: subprocess.Popen[str], queues: str) -> None:
    assert running.stderr is not None
    told = ""
    while "frozen" not in told:
        line = running.stderr.readline()
        assert line, told
        told += line
    running.send_signal(signal.SIGINT)
    out, _ = running.communicate()
    assert (running.returncode, out) == (130, "")
    (logs,) = re.findall(r"logs are in (\S+)", told)
    pids = [int(log.stem.rpartition("-")[2]) for log in Path(logs).glob("*-*.log")]
    workers = _processes_of_worker(Path(logs))
    assert len(pids) >= 5
    assert len(workers) >= (3 if queues == "redis" else 0)
    assert not [pid for pid in pids + workers if _is_alive(pid)]
    (port,) = re.findall(r"stack of \S+ on http://127\.0\.0\.1:(\d+)", told)
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", int(port))) != 0


def _processes_of_worker(logs: Path) -> list[int]:
    """The processes that a `ringfence worker` tells to have started."""
    lines = [line for log in logs.glob("RingfenceWorker-*.log") for line in log.read_text().splitlines()]
    return [json.loads(line)["pid"] for line in lines if '"process_started"' in line]


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
