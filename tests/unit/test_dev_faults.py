"""Faults planned for processes that already run, and gates at which their jobs wait."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ringfence.errors import Unavailable
from ringfence.local.bootstrap import FAULTS_VARIABLE
from ringfence.memory.queue import MemoryQueue
from ringfence.testing.dev_faults import DevFaults
from ringfence.testing.faults import process_faults
from ringfence.testing.gate import Gate, wait_until_open

PROGRAM = """
import os, sys
from ringfence.memory.queue import MemoryQueue
from ringfence.testing.faults import process_faults

queue = process_faults(os.environ["RINGFENCE_DEV_FAULTS"])("queue:default", MemoryQueue("default"))
print("ready", flush=True)
for line in sys.stdin:
    queue.depth()
    print("asked", flush=True)
"""


@pytest.fixture
def faults(tmp_path: Path) -> DevFaults:
    return DevFaults(tmp_path, ["One", "Other"])


@contextmanager
def process(faults: DevFaults) -> Iterator[subprocess.Popen[str]]:
    path = os.pathsep.join(path for path in sys.path if path)
    environment = {**os.environ, **faults.environments["One"], "PYTHONPATH": path}
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment) as started:
        try:
            yield started
        finally:
            started.kill()


def say(running: subprocess.Popen[str]) -> None:
    assert running.stdin is not None
    running.stdin.write("ask\n")
    running.stdin.flush()


def hear(running: subprocess.Popen[str]) -> str:
    assert running.stdout is not None
    return running.stdout.readline().strip()


def test_a_process_that_runs_already_is_stopped_and_thawed(faults: DevFaults) -> None:
    with process(faults) as running:
        assert hear(running) == "ready"
        say(running)
        assert hear(running) == "asked"
        frozen = faults.plan("One", "queue.depth", do="stop", when="before")
        say(running)
        assert frozen.wait_until_struck() == running.pid
        frozen.thaw()
        assert hear(running) == "asked"


def test_clear_leaves_no_process_stopped_and_no_fault_in_wait(faults: DevFaults) -> None:
    with process(faults) as running:
        assert hear(running) == "ready"
        frozen = faults.plan("One", "queue.depth", do="stop")
        say(running)
        frozen.wait_until_struck()
        faults.plan("One", "queue.push", do="kill")
        faults.clear()
        assert hear(running) == "asked"
        assert Path(faults.environments["One"][FAULTS_VARIABLE].removeprefix("@")).read_text() == "{}"


def test_a_process_that_runs_already_is_killed(faults: DevFaults) -> None:
    with process(faults) as running:
        assert hear(running) == "ready"
        killed = faults.plan("One", "queue.depth", do="kill", when="after")
        say(running)
        assert killed.wait_until_struck() == running.pid
        assert running.wait(30) == -signal.SIGKILL


def test_a_fault_that_never_strikes_fails_its_test(faults: DevFaults) -> None:
    planned = faults.plan("One", "queue.push", do="kill")
    with pytest.raises(TimeoutError, match=r"kill after queue\.push did not happen"):
        planned.wait_until_struck(timeout_seconds=0.0)


def test_each_function_has_a_plan_of_its_own(faults: DevFaults) -> None:
    faults.plan("Other", "queue.depth", do="unavailable")
    one, other = (
        process_faults(faults.environments[name][FAULTS_VARIABLE])("queue:default", MemoryQueue("default"))
        for name in ("One", "Other")
    )
    one.depth()
    with pytest.raises(Unavailable):
        other.depth()


def test_a_second_fault_at_the_same_place_is_refused(faults: DevFaults) -> None:
    faults.plan("One", "queue.depth", do="kill")
    with pytest.raises(ValueError, match="already"):
        faults.plan("One", "queue.depth", do="stop")


def test_a_gate_holds_everybody_until_it_is_opened_and_nobody_afterwards(tmp_path: Path) -> None:
    passed = threading.Semaphore(0)

    def come() -> None:
        wait_until_open(gate.path)
        passed.release()

    with Gate(tmp_path / "gate") as gate:
        early = threading.Thread(target=come, daemon=True)
        early.start()
        assert not passed.acquire(timeout=0.05)
        gate.open()
        assert passed.acquire(timeout=30)
        come()


def test_a_gate_whose_test_has_died_holds_nobody(tmp_path: Path) -> None:
    with Gate(tmp_path / "gate") as gate:
        path = gate.path
    wait_until_open(path)
