"""The command: what it prints, how it ends, and that nothing is left of it."""

from __future__ import annotations

import json
import logging
import os
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from ringfence.cli.main import main

from .conftest import TEMPLATE, eventually, is_alive


class Command:
    """A running ``ringfence dev --json``, once it has said that it is ready."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.ready = self.line()

    def line(self) -> dict[str, Any]:
        assert self.process.stdout is not None
        text = self.process.stdout.readline()
        assert text, self.process.stderr and self.process.stderr.read()
        line: dict[str, Any] = json.loads(text)
        return line

    def children(self) -> list[int]:
        """All processes it has started, the emulator with them."""
        listed = subprocess.run(["ps", "-A", "-o", "pid=,ppid="], capture_output=True, text=True, check=True).stdout
        pairs = [line.split() for line in listed.splitlines()]
        return [int(pid) for pid, parent in pairs if int(parent) == self.process.pid]


def arguments(*more: str) -> list[str]:
    usual = {"--port": "0", "--template": str(TEMPLATE)}
    missing = [word for option, value in usual.items() if option not in more for word in (option, value)]
    return [sys.executable, "-m", "ringfence.cli.main", "dev", "--json", *missing, *more]


@contextmanager
def command(folder: Path, *more: str) -> Iterator[Command]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AWS_", "LOCALSTACK_"))}
    program = f"import os, sys; os.environ['TRACE'] = 'x'; from ringfence.cli.main import main; main({arguments(*more)[3:]!r})"
    process = subprocess.Popen(
        [sys.executable, "-c", program], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=kept, cwd=folder
    )
    try:
        yield Command(process)
    finally:
        process.kill()
        process.communicate()


def test_it_says_how_to_reach_everything_and_ends_with_all_its_processes(tmp_path: Path) -> None:
    with command(tmp_path) as dev:
        ready = dev.ready
        assert ready["event"] == "ready"
        assert urllib.request.urlopen(f"{ready['api']}/x").status == 200
        assert ready["outputs"]["ApiUrl"] == ready["api"]
        assert (ready["emulator"], ready["region"]) == ("ministack", "us-east-1")
        assert ready["environment"]["AWS_ENDPOINT_URL"] == ready["endpoint_url"]
        assert ready["environment"]["TABLE"] == ready["outputs"]["TableName"]
        pids = [pid for each in ready["functions"].values() for pid in each]
        assert set(ready["functions"]) == {"DoorFunction", "ReaderFunction", "TakerFunction", "TickFunction"}
        assert all(is_alive(pid) for pid in pids)
        children = dev.children()
        assert set(pids) < set(children)
        os.kill(ready["functions"]["TakerFunction"][0], signal.SIGSTOP)
        dev.process.send_signal(signal.SIGTERM)
        assert dev.process.wait(30) == 0
        assert not any(is_alive(pid) for pid in children)


def test_it_tells_of_a_process_that_was_replaced(tmp_path: Path) -> None:
    with command(tmp_path) as dev:
        victim = dev.ready["functions"]["TakerFunction"][1]
        os.kill(victim, signal.SIGKILL)
        told = dev.line()
        assert is_alive(told.pop("new_pid"))
        assert told == {"event": "replaced", "function": "TakerFunction", "old_pid": victim, "reason": "signal 9"}
        dev.process.send_signal(signal.SIGINT)
        assert dev.process.wait(30) == 0


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere a frozen process cannot look for its parent")
def test_when_it_is_killed_nothing_is_left_not_even_the_emulator_or_a_frozen_process(tmp_path: Path) -> None:
    with command(tmp_path) as dev:
        children = dev.children()
        os.kill(dev.ready["functions"]["DoorFunction"][0], signal.SIGSTOP)
        dev.process.kill()
        eventually(lambda: not any(is_alive(pid) for pid in children), "the end of all of them")


def test_it_fails_when_the_emulator_ends(tmp_path: Path) -> None:
    with command(tmp_path) as dev:
        functions = {pid for pids in dev.ready["functions"].values() for pid in pids}
        (emulator,) = set(dev.children()) - functions
        os.kill(emulator, signal.SIGKILL)
        assert dev.process.wait(30) == 1
        assert dev.process.stderr is not None
        assert "ministack ended" in dev.process.stderr.read()
        assert not any(is_alive(pid) for pid in functions)


def refused(*more: str) -> tuple[int, str]:
    """Exit code and standard error of a command that cannot start. In this process: a new one would load all of boto3."""
    ours = logging.getLogger("ringfence")
    with pytest.MonkeyPatch.context() as patch:
        # The command is told to log to its own standard error, for good.
        for attribute, value in {"handlers": [], "level": ours.level, "propagate": ours.propagate}.items():
            patch.setattr(ours, attribute, value)
        done = CliRunner().invoke(main, arguments(*more)[3:])
    assert done.stdout == ""
    return done.exit_code, done.stderr


def test_a_taken_port_is_said_before_anything_is_started() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        code, said = refused("--port", str(port))
    assert code == 1
    assert f"cannot listen on 127.0.0.1:{port}" in json.loads(said)["error"]["detail"]


@pytest.mark.parametrize(
    ("more", "exit_code", "message"),
    [
        (["--parameter", "Nonsense=1"], 1, "no parameter Nonsense"),
        (["--parameter", "FrontDoor=window"], 1, "FrontDoor=window is none of"),
        (["--endpoint-url", "https://sqs.us-east-1.amazonaws.com"], 1, "is AWS itself"),
        (["--endpoint-url", "http://127.0.0.1:1", "--emulator", "moto"], 2, "give one of them"),
        (["--parameter", "nonsense"], 2, "is not NAME=VALUE"),
    ],
)
def test_what_it_cannot_do_it_refuses(more: list[str], exit_code: int, message: str) -> None:
    code, said = refused(*more)
    assert code == exit_code
    assert message in said


def test_jobs_that_cannot_be_imported_end_the_start_with_their_line(tmp_path: Path) -> None:
    root = Path(__file__).parents[2]
    for folder in ("layers", "functions/gateway", "functions/relay", "functions/timers"):
        (tmp_path / folder).parent.mkdir(exist_ok=True)
        (tmp_path / folder).symlink_to(root / folder)
    for path in ("template.yaml", "functions/worker"):
        copy = shutil.copytree if (root / path).is_dir() else shutil.copy
        copy(root / path, tmp_path / path)
    jobs = tmp_path / "functions/worker/jobs"
    (jobs / "mine.py").write_text("from jobs.registry import app\n\n\n@app.jobb('mine')\ndef mine(ctx): ...\n")
    with (jobs / "__init__.py").open("a") as init:
        init.write("from jobs import mine\n")
    code, said = refused("--template", str(tmp_path / "template.yaml"))
    assert code == 1
    detail = json.loads(said)["error"]["detail"]
    assert detail.startswith(
        "WorkerFunction could not load its handler: Misconfigured: RINGFENCE_APP=jobs:app cannot be imported"
    )
    assert f"{jobs / 'mine.py'}:4: AttributeError: 'App' object has no attribute 'jobb'" in detail
