"""Standard output that cannot be written: what was done is told all the same, and the exit code is not that of a failure."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from ringfence import App, Context, Dead
from ringfence.cli.exit_codes import OUTPUT_LOST
from ringfence.cli.main import COMMANDS, main
from ringfence.cli.output import Output
from ringfence.cli.standard_streams import OutputLost
from ringfence.memory.keys import MemoryKeys
from ringfence.runtime import Runtime
from ringfence.testing.memory_api import MemoryApi, served
from ringfence.testing.system import MemorySystem

PROGRAM = [sys.executable, "-c", "from ringfence.cli.main import main; main()"]
FULL = "standard output could not be written: No space left on device"


def jobs() -> App:
    app = App()

    @app.job("fail")
    def fail(ctx: Context) -> None:
        raise Dead("no")

    return app


class Shell:
    def __init__(self, api: MemoryApi, url: str) -> None:
        self.api = api
        self.environment = {"RINGFENCE_URL": url, "RINGFENCE_API_KEY": api.key()}

    def __call__(self, *arguments: str, stdin: str | None = None) -> Result:
        return CliRunner().invoke(main, arguments, input=stdin, env=self.environment)

    def program(self, *arguments: str, stdout: Any, **environment: str) -> subprocess.CompletedProcess[str]:
        """The real one, in a process. ``stdout`` None: closed."""
        command = [*PROGRAM, *arguments]
        if stdout is None:
            command = ["sh", "-c", 'exec "$@" >&-', "sh", *command]
        return subprocess.run(
            command,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **self.environment, **environment},
            timeout=60,
            check=False,
        )


@pytest.fixture
def shell() -> Iterator[Shell]:
    api = MemoryApi(MemorySystem(jobs()))
    with served(api.answer) as url:
        yield Shell(api, url)


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard output is a full disk, for the commands of this process."""

    def cannot(*_: object) -> None:
        raise OutputLost(OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))

    for printing in ("json", "line", "table", "fields"):
        monkeypatch.setattr(Output, printing, cannot)


# --- in a process of its own -----------------------------------------------------------------------------------------


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no /dev/full here")
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_job_whose_id_could_not_be_printed_was_accepted_all_the_same(shell: Shell, unbuffered: str) -> None:
    with Path("/dev/full").open("w") as disk:
        ended = shell.program("submit", "fail", stdout=disk, PYTHONUNBUFFERED=unbuffered)
    [job] = shell.api.system.memory_ledger.all_jobs()
    assert (ended.returncode, ended.stderr) == (6, f"ringfence: job {job.job_id} was accepted, but {FULL}\n")


@pytest.mark.parametrize("arguments", [("queues",), ("--version",), ("submit", "--help")])
def test_a_closed_output_is_told_in_one_line(shell: Shell, arguments: tuple[str, ...]) -> None:
    ended = shell.program(*arguments, stdout=None)
    assert (ended.returncode, ended.stderr) == (6, "ringfence: standard output could not be written: Bad file descriptor\n")


def test_the_version_into_a_pipe_that_nobody_reads_ends_quietly(shell: Shell) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "w") as pipe:
        ended = shell.program("--version", stdout=pipe)
    assert (ended.returncode, ended.stderr) == (141, "")


def test_a_note_that_cannot_be_written_fails_no_command(shell: Shell) -> None:
    command = ["sh", "-c", 'exec "$@" 2>&- <&-', "sh", *PROGRAM, "submit", "fail", "--key", "k"]
    codes = [
        subprocess.run(command, stdout=subprocess.PIPE, env={**os.environ, **shell.environment}, check=False).returncode
        for _ in range(2)  # the second would say that the key had been used before
    ]
    assert codes == [0, 0]


def test_what_a_terminals_language_cannot_show_is_written_out(shell: Shell) -> None:
    shell.api.system.submit("fail", '{"to": "世界"}')
    [job] = shell.api.system.memory_ledger.all_jobs()
    ended = shell.program("status", job.job_id, stdout=subprocess.PIPE, PYTHONIOENCODING="latin-1")
    assert ended.returncode == 0
    assert "\\u4e16\\u754c" in ended.stdout


# --- what was done, by command ---------------------------------------------------------------------------------------


@pytest.mark.usefixtures("full")
def test_every_command_that_changes_something_says_what_it_has_done(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    system = shell.api.system
    job_id = system.submit("fail").job_id
    changing = {
        ("cancel", job_id): f"the cancellation of job {job_id} was accepted (it is cancelled)",
        ("queues", "priority", "--pause"): "queue priority was changed",
    }
    for arguments, done in changing.items():
        result = shell(*arguments)
        assert (result.exit_code, result.stderr) == (OUTPUT_LOST, f"ringfence: {done}, but {FULL}\n")
    kept = MemoryKeys()
    monkeypatch.setattr(Runtime, "keys", kept)
    lines = shell("keys", "create", "--table", "T").stderr.splitlines()
    [key] = kept.all()
    assert lines[-1] == f"ringfence: key {key.key_id} was made and its secret is lost (revoke it), but {FULL}"
    dead = system.run_job("fail").job_id
    assert shell("redrive", dead).stderr == f"ringfence: job {dead} was redriven, but {FULL}\n"


@pytest.mark.usefixtures("full")
def test_of_many_jobs_the_ids_that_were_not_printed_are_told(shell: Shell) -> None:
    result = shell("submit", "fail", "--many", "-", stdin="{}\n{}\n{}\n")
    ids = {job.job_id for job in shell.api.system.memory_ledger.all_jobs()}
    said = re.fullmatch(
        rf"ringfence: 3 jobs were accepted, the last of them (.*), and no line after that was sent, but {FULL}\n", result.stderr
    )
    assert said is not None, result.stderr
    assert set(said[1].split()) == ids


@pytest.mark.usefixtures("full")
@pytest.mark.parametrize("command", [("list",), ("queues",), ("quarantine",)])
def test_a_command_that_changes_nothing_says_no_more_than_that(shell: Shell, command: tuple[str, ...]) -> None:
    result = shell(*command)
    assert (result.exit_code, result.stderr) == (OUTPUT_LOST, f"ringfence: {FULL}\n")


@pytest.mark.usefixtures("full")
def test_programs_are_told_in_json(shell: Shell) -> None:
    result = shell("submit", "fail", "--json")
    [job] = shell.api.system.memory_ledger.all_jobs()
    assert json.loads(result.stderr) == {
        "error": {"kind": "OutputLost", "detail": f"job {job.job_id} was accepted, but {FULL}"}
    }


def test_every_command_explains_the_exit_code() -> None:
    for name in COMMANDS:
        command = main.get_command(click.Context(main), name)
        assert command is not None
        assert "6 standard output could not be written" in " ".join((command.epilog or "").split()), name
