"""The command line: what it prints for people and for programs, and the exit codes that scripts trust."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import click
import pytest
from click.testing import CliRunner, Result

from ringfence import App, Context, Dead
from ringfence.aws import clients
from ringfence.cli import api_command
from ringfence.cli import keys as keys_command
from ringfence.cli.main import COMMANDS, main
from ringfence.cli.output import Output
from ringfence.http.auth import SCOPES
from ringfence.memory.keys import MemoryKeys
from ringfence.ports import SetAside
from ringfence.runtime import Runtime
from ringfence.testing.memory_api import MemoryApi, served
from ringfence.testing.system import MemorySystem

HOSTILE = "\x1b[2J\x1b]0;owned\x07 \u202egnp.exe\r\nforged line"


PROGRAM = [sys.executable, "-c", "from ringfence.cli.main import main; main()"]


def jobs(call: Callable[[], object]) -> App:
    app = App()

    @app.job("call")
    def call_out(ctx: Context) -> None:
        call()

    @app.job("double")
    def double(ctx: Context, n: int = 0) -> dict[str, int]:
        return {"n": n * 2}

    @app.job("fail")
    def fail(ctx: Context, reason: str = "no") -> None:
        raise Dead(reason)

    return app


class Shell:
    """Calls the command line against an API in this process."""

    def __init__(self, api: MemoryApi, url: str) -> None:
        self.api = api
        self.key = api.key()
        self.environment = {"RINGFENCE_URL": url, "RINGFENCE_API_KEY": self.key}
        self.called: Callable[[], object] = lambda: None
        """What the job ``call`` does."""

    def __call__(self, *arguments: str, stdin: str | None = None, **environment: str) -> Result:
        return CliRunner().invoke(main, arguments, input=stdin, env={**self.environment, **environment})

    def run_jobs(self) -> None:
        self.api.system.run_relay()
        while self.api.system.run_worker():
            pass


@pytest.fixture
def shell() -> Iterator[Shell]:
    api = MemoryApi(MemorySystem(jobs(lambda: here.called())))
    with served(api.answer) as url:
        here = Shell(api, url)
        yield here


def lines_of_json(result: Result) -> list[Any]:
    return [json.loads(line) for line in result.stdout.splitlines()]


# --- submit ----------------------------------------------------------------------------------------------------------


def test_submit_prints_the_id_for_a_script_to_take(shell: Shell) -> None:
    result = shell("submit", "double", "--payload", '{"n": 2}')
    assert result.exit_code == 0
    assert shell.api.system.job(result.stdout.strip()).payload == '{"n": 2}'


def test_every_option_reaches_the_job(shell: Shell) -> None:
    result = shell("submit", "double", "--queue", "priority", "--key", "k", "--delay", "2h", "--max-attempts", "9", "--json")
    [document] = lines_of_json(result)
    job = shell.api.system.job(document["job_id"])
    assert (job.queue, job.max_attempts, job.run_at) == ("priority", 9, shell.api.clock.now() + 7_200_000)
    assert document["repeated"] is False
    repeated = shell("submit", "double", "--queue", "priority", "--key", "k", "--json")
    assert lines_of_json(repeated)[0]["repeated"] is True


@pytest.mark.parametrize("written", ["{0:%Y-%m-%dT%H:%M:%S}Z", "{1:%Y-%m-%dT%H:%M:%S}+05:30"])
def test_a_job_is_submitted_for_a_time_anywhere(shell: Shell, written: str) -> None:
    at = datetime.fromtimestamp(shell.api.clock.now() // 1000 + 7200, UTC)
    time = written.format(at, at + timedelta(hours=5, minutes=30))
    one = shell("submit", "double", "--at", time).stdout.split()
    many = shell("submit", "double", "--at", time, "--many", "-", stdin="{}\n{}\n").stdout.split()
    assert len(one + many) == 3
    assert {shell.api.system.job(job_id).run_at for job_id in one + many} == {at.timestamp() * 1000}


def test_a_time_without_an_offset_is_told_what_it_lacks(shell: Shell) -> None:
    said = " ".join(shell("submit", "double", "--at", "2026-12-24T09:00:00").stderr.split())
    assert "'2026-12-24T09:00:00' has no offset from UTC: add one such as +01:00, or Z for UTC itself" in said


def test_a_job_without_a_row_is_submitted_and_a_question_for_it_answered_honestly(shell: Shell) -> None:
    [document] = lines_of_json(shell("submit", "double", "--guarantee", "at-least-once", "--json"))
    assert (document["state"], document["guarantee"]) == ("queued", "at-least-once")
    assert not shell.api.system.memory_ledger.all_jobs()
    for command in ("status", "wait", "cancel"):
        result = shell(command, document["job_id"])
        assert result.exit_code == 1
        assert "submitted at-least-once can be asked for only if" in result.stderr
    many = shell("submit", "double", "--guarantee", "at-least-once", "--many", "-", "--json", stdin='{"n": 1}\n{"n": 2}\n')
    assert [line["guarantee"] for line in lines_of_json(many)] == ["at-least-once"] * 2
    assert not shell.api.system.memory_ledger.all_jobs()


def test_a_payload_comes_from_a_file_or_standard_input_in_its_own_text(shell: Shell, tmp_path: Path) -> None:
    text = '{"n": 1.10, "big": 9007199254740993}'
    file = tmp_path / "payload.json"
    file.write_text(text + "\n", encoding="utf-8")
    for result in (shell("submit", "double", "--payload", f"@{file}"), shell("submit", "double", "--payload", "-", stdin=text)):
        assert shell.api.system.job(result.stdout.strip()).payload == text


@pytest.mark.parametrize(
    "arguments",
    [
        ("--payload", "{"),
        ("--payload", "{NaN}"),
        ("--payload", "@/no/such/file"),
        ("--delay", "soon"),
        ("--at", "tomorrow"),
        ("--at", "2026-12-24T09:00:00"),
        ("--at", "2026-12-24T08:00:00Z", "--delay", "1h"),
        ("--max-attempts", "0"),
        ("--payload", "{}", "--many", "-"),
        ("--guarantee", "exactly-once"),
        ("--guarantee", "at-least-once", "--key", "k"),
        ("--no-such-option",),
        ("--url", "nowhere"),
    ],
)
def test_wrong_usage_is_exit_code_2_and_submits_nothing(shell: Shell, arguments: tuple[str, ...]) -> None:
    assert shell("submit", "double", *arguments, stdin="{}").exit_code == 2
    assert not shell.api.system.memory_log.read()


def test_a_refusal_is_exit_code_1_and_says_where(shell: Shell) -> None:
    result = shell("submit", "no/name")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "/name" in result.stderr
    as_json = shell("submit", "no/name", "--json")
    assert json.loads(as_json.stderr)["error"]["pointer"] == "/name"


def test_nobody_listening_is_exit_code_4(shell: Shell) -> None:
    with served(lambda event: {}) as url:
        pass
    result = shell("submit", "double", "--url", url, "--retry", "0s")
    assert result.exit_code == 4
    assert f"{url.removeprefix('http://')} cannot be reached: Connection refused" in result.stderr
    assert "ringfence dev" not in result.stderr


def test_at_the_default_address_a_silence_is_explained(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(lambda event: {}) as url:
        pass
    monkeypatch.setattr(api_command, "DEFAULT_URL", url)
    assert "is `ringfence dev` running?" in shell("list", "--url", url, "--retry", "0s").stderr


# --- many ------------------------------------------------------------------------------------------------------------


def test_each_line_of_a_file_is_a_job(shell: Shell, tmp_path: Path) -> None:
    file = tmp_path / "many.jsonl"
    file.write_text("".join(f'{{"n": {n}}}\n' for n in range(700)) + "\n", encoding="utf-8")
    result = shell("submit", "double", "--many", str(file))
    assert result.exit_code == 0
    ids = result.stdout.split()
    assert [shell.api.system.job(job_id).payload for job_id in ids] == [f'{{"n": {n}}}' for n in range(700)]
    assert "700 accepted, 0 refused" in result.stderr


def test_a_file_submitted_again_under_its_key_is_the_same_jobs(shell: Shell) -> None:
    first, second = (
        shell("submit", "double", "--many", "-", "--key", "import-7", stdin='{"n":1}\n\n{"n":2}\n') for _ in range(2)
    )
    assert first.stdout == second.stdout
    assert len(set(first.stdout.split())) == 2


def test_refused_lines_are_told_by_their_number(shell: Shell) -> None:
    stdin = '{"n":1}\n\n"' + "x" * 40_000 + '"\n{"n":3}\n'
    result = shell("submit", "double", "--many", "-", "--json", stdin=stdin)
    assert result.exit_code == 1
    told = lines_of_json(result)
    assert [line["line"] for line in told] == [1, 3, 4]
    assert [line.get("error", {}).get("kind") for line in told] == [None, "payload-too-large", None]


def test_a_line_that_is_not_json_is_named(shell: Shell) -> None:
    result = shell("submit", "double", "--many", "-", stdin='{"n":1}\n{"n":\n')
    assert result.exit_code == 2
    assert "line 2" in result.stderr


# --- status, wait, list ----------------------------------------------------------------------------------------------


def test_status_shows_the_job_exactly_for_programs_and_readably_for_people(shell: Shell) -> None:
    job_id = shell("submit", "double", "--payload", '{"n": 9007199254740993}').stdout.strip()
    shell.run_jobs()
    readable = shell("status", job_id)
    assert readable.exit_code == 0
    assert '{"n": 9007199254740993}' in readable.stdout
    assert "succeeded" in readable.stdout
    exact = shell("status", job_id, "--json")
    assert '"payload":{"n": 9007199254740993}' in exact.stdout
    assert exact.stdout.count("\n") == 1


def test_the_status_of_a_waiting_job_says_that_its_queue_is_paused(shell: Shell) -> None:
    shell("queues", "default", "--pause")
    job_id = shell("submit", "double").stdout.strip()
    assert "default (paused)" in shell("status", job_id).stdout
    shell("queues", "default", "--resume")
    assert "paused" not in shell("status", job_id).stdout


def test_an_unknown_job_is_exit_code_1(shell: Shell) -> None:
    assert shell("status", "a" * 26).exit_code == 1


@pytest.mark.parametrize(("name", "code"), [("double", 0), ("fail", 3)])
def test_wait_tells_how_a_job_ended(shell: Shell, name: str, code: int) -> None:
    job_id = shell("submit", name).stdout.strip()
    shell.run_jobs()
    result = shell("wait", job_id)
    assert result.exit_code == code
    assert result.stdout.startswith(job_id)


def test_wait_reads_ids_from_standard_input_and_tells_the_worst(shell: Shell) -> None:
    ids = [shell("submit", name).stdout.strip() for name in ("double", "fail", "double")]
    shell.run_jobs()
    result = shell("wait", "-", "--json", stdin="\n".join(ids) + "\n")
    assert result.exit_code == 3
    assert [line["state"] for line in lines_of_json(result)] == ["succeeded", "dead", "succeeded"]


def test_a_wait_for_the_ids_of_an_empty_standard_input_is_wrong_usage(shell: Shell) -> None:
    result = shell("wait", "-", stdin="\n")
    assert result.exit_code == 2
    assert "standard input had no job ids" in result.stderr


def test_a_wait_whose_time_is_up_is_exit_code_5(shell: Shell) -> None:
    job_id = shell("submit", "double").stdout.strip()
    result = shell("wait", job_id, "--timeout", "0s")
    assert result.exit_code == 5
    assert "queued" in result.stdout


def test_list_prints_one_job_a_line_when_nobody_looks(shell: Shell) -> None:
    ids = {shell("submit", "double").stdout.strip() for _ in range(3)}
    result = shell("list")
    assert {line.split("\t")[0] for line in result.stdout.splitlines()} == ids
    assert len(lines_of_json(shell("list", "--json", "--limit", "2"))) == 2
    assert shell("list", "--state", "dead").stdout == ""


def test_cancel_redrive_and_queues(shell: Shell) -> None:
    dead = shell("submit", "fail").stdout.strip()
    shell.run_jobs()
    assert shell("redrive", dead, "--payload", '{"reason": "again"}').exit_code == 0
    assert shell.api.system.job(dead).payload == '{"reason": "again"}'
    assert shell("cancel", dead).stdout.split("\t")[:2] == [dead, "cancelled"]
    assert shell("redrive", dead).exit_code == 1
    shell("submit", "double")
    shell.api.system.run_relay()
    assert shell("queues").stdout.splitlines()[0] == "default\t1\t0\t0\tnone\t1\tnone\topen"


def test_the_cancel_of_a_running_job_is_a_request(shell: Shell) -> None:
    job_id = shell("submit", "call").stdout.strip()
    told: list[str] = []
    shell.called = lambda: told.append(shell("cancel", job_id).stdout)
    shell.run_jobs()
    assert told == [f"{job_id}\trunning (cancel requested)\t\n"]


@pytest.mark.parametrize(("name", "end"), [("double", "it has already succeeded"), ("fail", "it is already dead")])
def test_a_cancel_that_comes_too_late_says_so(shell: Shell, name: str, end: str) -> None:
    job_id = shell("submit", name).stdout.strip()
    shell.run_jobs()
    result = shell("cancel", job_id)
    assert (result.exit_code, result.stderr) == (1, f"ringfence: job {job_id}: {end}\n")
    as_json = shell("cancel", job_id, "--json")
    assert as_json.exit_code == 1
    assert lines_of_json(as_json)[0]["job_id"] == job_id
    assert json.loads(as_json.stderr) == {"job_id": job_id, "error": {"kind": "RingfenceError", "detail": end}}


def test_a_cancel_may_be_repeated(shell: Shell) -> None:
    job_id = shell("submit", "double").stdout.strip()
    assert [shell("cancel", job_id).exit_code for _ in range(2)] == [0, 0]


def test_the_quarantine_is_listed_without_its_bytes(shell: Shell) -> None:
    reason = f"no JSON {HOSTILE}"
    shell.api.system.quarantine.put(
        SetAside(source="log", position="shard-0/7", data=b"secret", reason=reason, at=1_700_000_000_000)
    )
    operator = {"RINGFENCE_API_KEY": shell.api.key(scopes={"operate", "admin"})}
    [row] = [line.split("\t") for line in shell("quarantine", **operator).stdout.splitlines()]
    assert row[:5] == ["2023-11-14T22:13:20.000Z", "log", "shard-0/7", "6", ""]
    assert row[5].startswith("no JSON \\x1b")
    [document] = lines_of_json(shell("quarantine", "--json", "--limit", "5", **operator))
    assert document["reason"] == reason
    assert "secret" not in shell("quarantine", "--json", **operator).output
    assert shell("quarantine", RINGFENCE_API_KEY=shell.api.key(scopes={"read"})).exit_code == 1


# --- on a terminal ---------------------------------------------------------------------------------------------------


@pytest.fixture
def looking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Output, "for_people", True)


def test_rows_have_headings_where_somebody_looks(shell: Shell, looking: None) -> None:
    job_id = shell("submit", "fail").stdout.strip()
    shell.run_jobs()
    assert shell("wait", job_id).stdout.split() == ["job", "state", "error", job_id, "dead", "no"]
    assert shell("list").stdout.split()[:3] == ["job", "state", "name"]
    assert shell("queues").stdout.split()[:4] == ["queue", "ready", "leased", "delayed"]


def test_a_submitted_job_says_how_to_follow_it(shell: Shell, looking: None) -> None:
    result = shell("submit", "double")
    assert result.stderr.strip() == f"follow with: ringfence wait {result.stdout.strip()}"
    result = shell("submit", "double", "--guarantee", "at-least-once")
    assert "follow" not in result.stderr
    assert "cannot be asked for" in result.stderr


def test_output_that_nobody_reads_ends_the_command_quietly(shell: Shell) -> None:
    for _ in range(3):
        shell("submit", "double")
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [*PROGRAM, "list"],
            stdout=writing,
            stderr=subprocess.PIPE,
            env={**os.environ, **shell.environment},
            check=False,
        )
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (141, b"")


# --- what a job says cannot harm the terminal ------------------------------------------------------------------------


@pytest.mark.parametrize("as_json", [False, True])
def test_c42_control_and_direction_characters_are_written_out(shell: Shell, as_json: bool) -> None:
    payload = json.dumps({"reason": HOSTILE}, ensure_ascii=False)
    job_id = shell("submit", "fail", "--payload", payload).stdout.strip()
    shell.run_jobs()
    flags = ("--json",) if as_json else ()
    for result in (shell("status", job_id, *flags), shell("list", *flags), shell("wait", job_id, *flags)):
        assert "forged line" in result.stdout
        assert not [line for line in result.stdout.splitlines() if line.startswith("forged")]
        assert not set("\x1b\x07\u202e\r") & set(result.stdout)
        if as_json:
            assert lines_of_json(result)[0]["error"] == HOSTILE


MARKUP = [
    "<img src=x onerror=alert(1)>",
    "javascript:alert(1)",
    "</script>",
    "[bold red]x[/]",
    ":smile:",
    "[link=http://x]x[/link]",
]


@pytest.mark.parametrize("for_people", [False, True])
@pytest.mark.parametrize("text", MARKUP)
def test_c38_markup_is_shown_as_it_is(shell: Shell, text: str, for_people: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of whatever language: what a page would run is only text here, and so is what the library would colour."""
    job_id = shell("submit", "fail", "--payload", json.dumps({"reason": text})).stdout.strip()
    shell.run_jobs()
    monkeypatch.setattr(Output, "for_people", for_people)
    for command in (["status", job_id], ["list"], ["wait", job_id]):
        assert text in shell(*command, COLUMNS="300").stdout


def test_c38_a_large_number_is_shown_to_its_last_digit(shell: Shell) -> None:
    job_id = shell("submit", "double", "--payload", json.dumps({"n": 2**60})).stdout.strip()
    shell.run_jobs()
    for flags in ((), ("--json",)):
        shown = shell("status", job_id, *flags).stdout
        assert str(2**60) in shown
        assert str(2**61) in shown


def listed(number: int, **more: Any) -> dict[str, Any]:
    """A job as a server lists it."""
    fixed = {"queue": "default", "name": "double", "state": "succeeded", "token": 1, "attempts": 1, "max_attempts": 5}
    return {"job_id": f"job{number}", "created_at": "2026-11-30T12:00:00.000Z", "payload_sha256": "0" * 64, **fixed, **more}


def test_c38_five_megabytes_are_shortened_for_people_and_whole_for_programs() -> None:
    def answer(_event: Mapping[str, Any]) -> dict[str, Any]:
        body = json.dumps(listed(1, payload={"text": "x" * 5_000_000}))
        return {"statusCode": 200, "headers": {"Content-Type": "application/json"}, "body": body}

    with served(answer) as url:
        readable, exact = (CliRunner().invoke(main, ["status", "job1", "--url", url, *flags]) for flags in ((), ("--json",)))
    assert (readable.exit_code, exact.exit_code) == (0, 0)
    assert len(readable.stdout) < 4_000
    assert "xxx…" in readable.stdout
    assert len(json.loads(exact.stdout)["payload"]["text"]) == 5_000_000


def test_c38_ten_thousand_jobs_are_listed_page_by_page() -> None:
    asked: list[int] = []

    def answer(event: Mapping[str, Any]) -> dict[str, Any]:
        query = {name: values[0] for name, values in parse_qs(event["rawQueryString"]).items()}
        first, size = int(query.get("cursor", 0)), int(query["limit"])
        asked.append(size)
        body = json.dumps({"jobs": [listed(first + n) for n in range(size)], "cursor": str(first + size)})
        return {"statusCode": 200, "headers": {"Content-Type": "application/json"}, "body": body}

    with served(answer) as url:
        result = CliRunner().invoke(main, ["list", "--limit", "10000", "--url", url])
    assert [line.split("\t")[0] for line in result.stdout.splitlines()] == [f"job{n}" for n in range(10_000)]
    assert max(asked) <= 100


def test_whoever_has_no_key_is_told_where_one_goes_and_how_one_is_made(shell: Shell) -> None:
    for key in ("", shell.key[:-1] + "_"):
        refused = shell("list", RINGFENCE_API_KEY=key)
        assert refused.exit_code == 1
        assert "give it in RINGFENCE_API_KEY or with --api-key; `ringfence keys create` makes one" in refused.stderr


def test_c42_the_api_key_is_never_printed(shell: Shell) -> None:
    results = [
        shell("list"),
        shell("list", "--json"),
        shell("status", "x"),
        shell("submit", "--help"),
        shell("list", "--url", "http://queue.example"),
        shell("list", RINGFENCE_API_KEY=shell.key[:-1] + "_"),
    ]
    assert not [result for result in results if shell.key[:-1] in result.output]


# --- keys ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch) -> MemoryKeys:
    kept = MemoryKeys()
    monkeypatch.setattr(Runtime, "keys", kept)
    return kept


def test_a_key_is_made_shown_once_listed_and_revoked(shell: Shell, stored: MemoryKeys) -> None:
    made = shell("keys", "create", "--table", "T", "--tenant", "acme", "--scope", "read", "--note", "for the dashboard")
    secret = made.stdout.strip()
    assert made.exit_code == 0
    [kept] = stored.all()
    assert (kept.tenant, kept.scopes, kept.note) == ("acme", frozenset({"read"}), "for the dashboard")
    shell.api.keys = stored
    assert shell("list", RINGFENCE_API_KEY=secret).exit_code == 0
    listed = shell("keys", "list", "--table", "T")
    assert kept.key_id in listed.stdout
    assert secret not in listed.output
    assert kept.sha256 not in listed.output
    assert shell("keys", "revoke", kept.key_id, "--table", "T").exit_code == 0
    assert shell("keys", "revoke", kept.key_id, "--table", "T").exit_code == 1
    assert stored.all() == []


def test_a_key_is_made_for_programs(shell: Shell, stored: MemoryKeys) -> None:
    [document] = lines_of_json(shell("keys", "create", "--table", "T", "--json"))
    assert document["api_key"].startswith("rf_")
    assert document["scopes"] == ["read", "submit"]


def test_every_scope_of_the_api_can_be_given_to_a_key() -> None:
    assert set(keys_command.scopes.choices) == set(SCOPES)


def test_keys_need_a_table(shell: Shell, stored: MemoryKeys) -> None:
    assert shell("keys", "list").exit_code == 2
    assert shell("keys", "list", RINGFENCE_LEDGER_TABLE="T").exit_code == 0


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment that says nothing of regions, and is put back afterwards."""
    for name in ("AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_ENDPOINT_URL", "LOCALSTACK_HOST"):
        monkeypatch.setenv(name, "")
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    clients.forget()


@pytest.mark.usefixtures("nowhere")
def test_keys_without_a_region_are_told_the_variable(shell: Shell) -> None:
    result = shell("keys", "list", "--table", "T")
    assert result.exit_code == 1
    assert "set AWS_REGION" in result.stderr


@pytest.mark.usefixtures("nowhere")
@pytest.mark.parametrize(("named", "used"), [({}, "us-east-1"), ({"AWS_REGION": "eu-west-1"}, "eu-west-1")])
def test_an_emulator_needs_no_region(shell: Shell, named: dict[str, str], used: str) -> None:
    asked: list[str] = []

    def answer(event: Mapping[str, Any]) -> dict[str, Any]:
        asked.append(event["headers"]["authorization"])
        return {"statusCode": 200, "headers": {"Content-Type": "application/x-amz-json-1.0"}, "body": '{"Items": []}'}

    with served(answer) as url:
        credentials = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test"}
        result = shell("keys", "list", "--table", "T", "--endpoint-url", url, **credentials, **named)
    clients.forget()
    assert result.exit_code == 0, result.output
    assert all(f"/{used}/dynamodb/" in header for header in asked)
    assert asked


def test_missing_credentials_are_told_without_a_traceback(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    from botocore.exceptions import NoCredentialsError

    class Keyless:
        def all(self) -> None:
            raise NoCredentialsError

    monkeypatch.setattr(Runtime, "keys", Keyless())
    result = shell("keys", "list", "--table", "T")
    assert result.exit_code == 1
    assert "credentials" in result.stderr


# --- the program itself ----------------------------------------------------------------------------------------------


def test_help_explains_the_exit_codes_and_names_every_command() -> None:
    result = CliRunner().invoke(main, ["--help"])
    assert result.exit_code == 0
    assert "Exit codes" in result.output
    for name in COMMANDS:
        assert name in result.output


def every_command() -> Iterator[tuple[str, click.Command]]:
    for name in COMMANDS:
        command = main.get_command(click.Context(main), name)
        assert command is not None
        inner = command.commands if isinstance(command, click.Group) else {"": command}
        yield from ((f"{name} {more}".strip(), each) for more, each in inner.items())


def test_every_option_says_what_it_does_and_every_default_is_told_plainly() -> None:
    for name, command in every_command():
        options = [parameter for parameter in command.params if isinstance(parameter, click.Option)]
        assert [option.name for option in options if not option.help] == [], name
        assert "(" not in " ".join(re.findall(r"default: (\S+)", CliRunner().invoke(main, [*name.split(), "--help"]).output))
        assert command.epilog, name


def test_no_command_is_told_two_things_at_once() -> None:
    for name, command in every_command():
        for option in (parameter for parameter in command.params if isinstance(parameter, click.Option)):
            if option.multiple or (option.is_flag and not option.secondary_opts):
                continue
            pair = [option.opts[-1], option.secondary_opts[-1]] if option.secondary_opts else [option.opts[-1], "1"] * 2
            result = CliRunner().invoke(main, [*name.split(), *pair])
            assert result.exit_code == 2, (name, option.name)
            assert ("exclude each other" if option.secondary_opts else "is given twice") in result.stderr, (name, option.name)


def test_a_plain_flag_may_be_repeated_and_a_parameter_of_the_template_may_not(shell: Shell) -> None:
    assert shell("list", "--json", "--json").exit_code == 0
    result = shell("dev", "--parameter", "A=1", "--parameter", "B=1", "--parameter", "A=2", "--template", __file__)
    assert (result.exit_code, "--parameter gives A twice" in result.stderr) == (2, True)


@pytest.mark.parametrize("command", ["dev", "demo"])
def test_without_a_template_it_says_where_to_run(command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = CliRunner().invoke(main, [command])
    assert result.exit_code == 2
    assert "run it in the folder that holds it" in " ".join(result.output.split())


def test_help_loads_neither_the_client_nor_boto3_nor_rich() -> None:
    program = (
        "import sys; from ringfence.cli.main import main\n"
        "try: main(['--help'])\n"
        "except SystemExit: pass\n"
        "print(sorted({'boto3', 'botocore', 'msgspec', 'rich', 'aws_lambda_powertools'} & sys.modules.keys()), file=sys.stderr)"
    )
    paths = {"PYTHONPATH": str(Path(keys_command.__file__).parents[2])}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=paths, check=True)
    assert done.stderr.strip() == "[]"


@pytest.mark.parametrize("command", ["dev", "demo"])
def test_a_missing_optional_dependency_says_what_to_install(monkeypatch: pytest.MonkeyPatch, command: str) -> None:
    monkeypatch.setitem(sys.modules, f"ringfence.cli.{command}", None)  # as if an import in it had failed
    result = CliRunner().invoke(main, [command])
    assert result.exit_code == 1
    assert "pip install 'ringfence[dev]'" in result.output


def test_an_unknown_command_is_wrong_usage() -> None:
    assert CliRunner().invoke(main, ["frobnicate"]).exit_code == 2


def test_the_version_is_told() -> None:
    assert CliRunner().invoke(main, ["--version"]).output.startswith("ringfence ")
