"""Commands that take many jobs: which they are, what is told of each, and how far they came when something stops them."""

from __future__ import annotations

import errno
import json
import os
import re
import sys
from collections.abc import Iterator
from io import BytesIO, TextIOWrapper
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ringfence import App, Context, Dead
from ringfence.cli.exit_codes import OUTPUT_LOST
from ringfence.cli.main import main
from ringfence.cli.output import Output
from ringfence.cli.standard_streams import OutputLost
from ringfence.client import Client, JobSnapshot, client
from ringfence.errors import Unavailable
from ringfence.job import State
from ringfence.testing.memory_api import Event, MemoryApi, served
from ringfence.testing.system import MemorySystem

UNKNOWN = "a" * 26


def jobs() -> App:
    app = App()

    @app.job("succeed")
    def succeed(ctx: Context) -> None: ...

    @app.job("fail")
    def fail(ctx: Context) -> None:
        raise Dead("no")

    @app.job("break")
    def break_down(ctx: Context) -> None:
        raise Dead("broken")

    return app


class Shell:
    """Calls the command line against an API in this process, and keeps what the API was asked."""

    def __init__(self) -> None:
        self.system = MemorySystem(jobs())
        self.api = MemoryApi(self.system)
        self.url = ""
        self.asked: list[tuple[str, str]] = []
        self.die_again = False
        """Let a job live to its next end before its redrive is answered."""

    def answer(self, event: Event) -> Event:
        method, path = event["requestContext"]["http"]["method"], event["rawPath"]
        self.asked.append((method, path))
        answer = self.api.answer(event)
        if path.endswith("/redrive") and self.die_again:
            self.system.drain()
        return answer

    def __call__(self, *arguments: str, stdin: str | bytes | None = None, **environment: str) -> Result:
        self.asked.clear()
        variables = {"RINGFENCE_URL": self.url, "RINGFENCE_API_KEY": self.api.key(), **environment}
        return CliRunner().invoke(main, arguments, input=stdin, env=variables)

    def dead(self, count: int, name: str = "fail", **more: Any) -> list[str]:
        """Dead jobs, the oldest first, each of a time of its own."""
        ids = []
        for _ in range(count):
            self.system.clock.sleep(1.0)
            ids.append(self.system.run_job(name, **more).job_id)
        return ids

    @property
    def redriven(self) -> list[str]:
        """The jobs whose redrive was asked for, in order."""
        return [path.split("/")[3] for _, path in self.asked if path.endswith("/redrive")]

    def states(self, ids: list[str]) -> list[State]:
        return [self.system.job(job_id).state for job_id in ids]


@pytest.fixture
def shell() -> Iterator[Shell]:
    here = Shell()
    with served(here.answer) as here.url:
        yield here


def ids_told(result: Result) -> list[str]:
    return [line.split("\t")[0] for line in result.stdout.splitlines()]


# --- named jobs ------------------------------------------------------------------------------------------------------


def test_many_jobs_are_redriven_and_each_is_told_once(shell: Shell) -> None:
    ids = shell.dead(3)
    result = shell("redrive", *ids, ids[0])
    assert (result.exit_code, result.stderr) == (0, "redriven 3 of 3\n")
    assert [line.split("\t")[:2] for line in result.stdout.splitlines()] == [[job_id, "scheduled"] for job_id in ids]
    assert shell.redriven == ids


def test_a_lone_job_is_told_in_its_line_and_no_sum(shell: Shell) -> None:
    [job_id] = shell.dead(1)
    result = shell("redrive", job_id)
    assert (result.exit_code, ids_told(result), result.stderr) == (0, [job_id], "")


@pytest.mark.parametrize("command", ["redrive", "cancel"])
def test_the_jobs_may_come_from_standard_input(shell: Shell, command: str) -> None:
    if command == "redrive":
        ids, then = shell.dead(2), State.SCHEDULED
    else:
        ids, then = [shell.system.submit("succeed").job_id for _ in range(2)], State.CANCELLED
    result = shell(command, "-", "--json", stdin="\n".join(ids) + "\n\n")
    assert result.exit_code == 0
    assert [json.loads(line)["job_id"] for line in result.stdout.splitlines()] == ids
    assert result.stderr == ""
    assert shell.states(ids) == [then] * 2


@pytest.mark.parametrize("command", ["wait", "cancel", "redrive"])
@pytest.mark.parametrize(("stdin", "said"), [(b"\n", "had no job ids"), (b"\xff\n", "is not UTF-8")])
def test_a_standard_input_without_job_ids_is_wrong_usage(shell: Shell, command: str, stdin: bytes, said: str) -> None:
    result = shell(command, "-", stdin=stdin)
    assert (result.exit_code, shell.asked) == (2, [])
    assert f"standard input {said}" in result.stderr


@pytest.mark.parametrize("as_json", [False, True])
def test_a_job_that_cannot_be_redriven_is_told_and_the_rest_are_redriven(shell: Shell, as_json: bool) -> None:
    first, last = shell.dead(2)
    done = shell.system.run_job("succeed").job_id
    result = shell("redrive", first, done, UNKNOWN, "no/id", last, *(["--json"] if as_json else []))
    assert result.exit_code == 1
    assert shell.states([first, done, last]) == [State.SCHEDULED, State.SUCCEEDED, State.SCHEDULED]
    if as_json:
        refused = [json.loads(line) for line in result.stderr.splitlines()]
        assert [(line["job_id"], line["error"]["status"]) for line in refused] == [(done, 409), (UNKNOWN, 404), ("no/id", 404)]
        assert [json.loads(line)["job_id"] for line in result.stdout.splitlines()] == [first, last]
    else:
        *refused_lines, sum_up = result.stderr.splitlines()
        assert refused_lines[0] == f"ringfence: job {done}: the job is succeeded, not dead"
        assert [line.split(": ")[1] for line in refused_lines] == [f"job {done}", f"job {UNKNOWN}", "job no/id"]
        assert sum_up == "redriven 2 of 5"
        assert ids_told(result) == [first, last]


def test_of_many_cancelled_jobs_those_that_had_ended_are_told(shell: Shell) -> None:
    [dead] = shell.dead(1)
    waiting = [shell.system.submit("succeed").job_id for _ in range(2)]
    result = shell("cancel", waiting[0], dead, UNKNOWN, waiting[1])
    assert result.exit_code == 1
    assert [line.split("\t")[:2] for line in result.stdout.splitlines()] == [
        [waiting[0], "cancelled"],
        [dead, "dead"],
        [waiting[1], "cancelled"],
    ]
    assert result.stderr.splitlines()[0] == f"ringfence: job {dead}: it is already dead"
    assert result.stderr.splitlines()[-1] == "cancelled, or asked to stop, 2 of 4"


# --- every dead job --------------------------------------------------------------------------------------------------


@pytest.fixture
def short_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "PAGE_JOBS", 2)


@pytest.mark.usefixtures("short_pages")
def test_every_dead_job_is_redriven_the_newest_first_and_a_page_at_a_time(shell: Shell) -> None:
    ids = shell.dead(5)
    other = shell.system.run_job("succeed").job_id
    result = shell("redrive", "--dead")
    assert (result.exit_code, result.stderr) == (0, "redriven 5 of 5\n")
    assert ids_told(result) == ids[::-1]
    assert [method for method, _ in shell.asked] == ["GET", "POST", "POST", "GET", "POST", "POST", "GET", "POST"]
    assert shell.states([other]) == [State.SUCCEEDED]


@pytest.mark.usefixtures("short_pages")
def test_a_job_that_dies_again_meanwhile_is_not_redriven_again(shell: Shell) -> None:
    ids = shell.dead(5)
    shell.die_again = True
    assert shell("redrive", "--dead").stderr == "redriven 5 of 5\n"
    assert shell.redriven == ids[::-1]
    assert shell.states(ids) == [State.DEAD] * 5
    assert [shell.system.job(job_id).token for job_id in ids] == [2] * 5


@pytest.mark.usefixtures("short_pages")
def test_dead_jobs_are_chosen_by_queue_name_and_number(shell: Shell) -> None:
    failed = shell.dead(2) + shell.dead(1, queue="priority")
    broken = shell.dead(3, "break")
    assert ids_told(shell("redrive", "--dead", "--name", "fail", "--limit", "2")) == [failed[2], failed[1]]
    assert ids_told(shell("redrive", "--dead", "--queue", "default", "--limit", "1")) == [broken[2]]
    assert ids_told(shell("redrive", "--dead", "--queue", "default", "--name", "fail")) == [failed[0]]
    assert shell.states(broken) == [State.DEAD, State.DEAD, State.SCHEDULED]


def test_no_dead_job_that_fits_is_no_failure_and_an_unknown_queue_is_one(shell: Shell) -> None:
    shell.dead(1)
    result = shell("redrive", "--dead", "--name", "succeed")
    assert (result.exit_code, result.output) == (0, "no dead job fits\n")
    assert shell("redrive", "--dead", "--name", "succeed", "--json").output == ""
    unknown = shell("redrive", "--dead", "--queue", "typo")
    assert (unknown.exit_code, unknown.stderr) == (1, "ringfence: there is no such queue; there are: default, priority\n")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "name a JOB_ID"),
        (["--dead", UNKNOWN], "exclude each other"),
        (["--dead", "-"], "exclude each other"),
        (["--queue", "default", UNKNOWN], "need --dead"),
        (["--name", "", UNKNOWN], "need --dead"),
        (["--limit", "1", UNKNOWN], "need --dead"),
        (["--dead", "--limit", "0"], "--limit"),
        (["--dead", "--payload", "{}"], "for one JOB_ID"),
        ([UNKNOWN, ""], "is empty"),
        ([UNKNOWN, "-"], "name none beside it"),
        ([UNKNOWN, UNKNOWN, "--payload", "{}"], "for one JOB_ID"),
        (["-", "--payload", "{}"], "for one JOB_ID"),
        ([UNKNOWN, "--payload", "{"], "--payload"),
    ],
)
def test_a_redrive_that_is_told_wrong_things_does_nothing(shell: Shell, arguments: list[str], said: str) -> None:
    result = shell("redrive", *arguments, stdin=UNKNOWN)
    assert (result.exit_code, shell.asked) == (2, [])
    assert said in " ".join(result.stderr.split())


# --- stopped in the middle -------------------------------------------------------------------------------------------


def stop_at(job_id: str, fault: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    """The client meets this fault when it redrives that job."""
    redrive = Client.redrive

    def until_then(self: Client, job: str, payload: Any = None) -> JobSnapshot:
        if job == job_id:
            raise fault
        return redrive(self, job, payload)

    monkeypatch.setattr(Client, "redrive", until_then)


def test_an_api_that_goes_away_stops_it_with_what_was_done(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = shell.dead(3)
    stop_at(ids[1], Unavailable("gone"), monkeypatch)
    result = shell("redrive", *ids)
    assert result.exit_code == 4
    assert result.stderr == f"redriven 1 of 3, and perhaps {ids[1]}\nringfence: gone\n"
    assert ids_told(result) == [ids[0]]
    assert shell.states(ids) == [State.SCHEDULED, State.DEAD, State.DEAD]


def test_a_key_that_may_not_stops_it_and_leaves_no_doubt(shell: Shell) -> None:
    ids = shell.dead(2)
    result = shell("redrive", "--dead", RINGFENCE_API_KEY=shell.api.key(scopes={"read"}))
    assert result.exit_code == 1
    assert result.stderr == "redriven 0 of 1\nringfence: this API key may not operate\n"
    assert shell.redriven == ids[1:]


def test_an_interrupted_redrive_says_how_far_it_came(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = shell.dead(3)
    stop_at(ids[1], KeyboardInterrupt(), monkeypatch)
    result = shell("redrive", "--dead")
    assert result.exit_code == 1
    assert result.stderr.split("\n")[0] == f"redriven 1 of 2, and perhaps {ids[1]}"
    assert "Aborted!" in result.stderr


@pytest.mark.parametrize(("number", "code"), [(errno.ENOSPC, OUTPUT_LOST), (errno.EPIPE, 141)])
def test_a_lost_output_stops_it(shell: Shell, monkeypatch: pytest.MonkeyPatch, number: int, code: int) -> None:
    ids = shell.dead(3)
    printed: list[str] = []

    def line(_: Output, *columns: str) -> None:
        if printed:
            raise OutputLost(OSError(number, os.strerror(number)))
        printed.append(columns[0])

    monkeypatch.setattr(Output, "line", line)
    result = shell("redrive", *ids)
    lost = (
        f"ringfence: job {ids[1]} was redriven, the last of 2, but standard output could not be written: {os.strerror(number)}"
    )
    assert (result.exit_code, result.stderr) == (code, "" if code == 141 else lost + "\n")
    assert shell.states(ids) == [State.SCHEDULED, State.SCHEDULED, State.DEAD]


# --- on a terminal ---------------------------------------------------------------------------------------------------


def test_people_are_told_what_was_refused_and_the_sum(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Output, "for_people", True)
    [dead] = shell.dead(1)
    result = shell("redrive", dead, UNKNOWN)
    assert result.stdout == ""
    assert result.stderr.splitlines()[0].startswith(f"ringfence: job {UNKNOWN}: there is no such job")
    assert result.stderr.splitlines()[1:] == ["redriven 1 of 2"]
    [dead] = shell.dead(1)
    assert ids_told(shell("redrive", dead)) == [dead]


class Terminal(TextIOWrapper):
    def isatty(self) -> bool:
        return True


def test_a_note_stands_on_a_line_of_its_own_above_the_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    shown = BytesIO()
    monkeypatch.setattr(sys, "stderr", Terminal(shown, encoding="utf-8"))
    monkeypatch.setenv("TERM", "xterm")
    output = Output(as_json=False)
    with output.progress("Redriving", None) as progress:
        progress.advance()
        output.note("[bold]one\x1b[2J")
    output.note("two")
    sys.stderr.flush()
    text = shown.getvalue().decode()
    assert "Redriving" in text
    assert re.search(r"\r\x1b\[2K\[bold\]one\\x1b\[2J\n", text), text
    assert text.endswith("two\n")
