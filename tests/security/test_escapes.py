"""Nothing that a client, a job or a server says can drive a terminal or forge a line of a log."""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ringfence.aws.telemetry import PowertoolsTelemetry
from ringfence.cli.main import COMMANDS, main
from ringfence.cli.output import Output
from ringfence.memory.clock import ManualClock
from ringfence.memory.keys import MemoryKeys
from ringfence.memory.log import MemoryLog
from ringfence.ports import ApiKey, LogEntry
from ringfence.replay import FailedBatch, Replayer, UnreadableBatch
from ringfence.runtime import Runtime
from ringfence.testing.memory_api import served

HOSTILE = "\x1b[2J\x1b]0;owned\x07\x1b]52;c;cm0gLXJm\x07\x9b31m\x08\x00\x7f \u202egnp.exe\u2066\u200b\u2028\r\nforged\tline"
"""Clears the screen, names the window, fills the clipboard, colours, erases, turns round, hides, ends the line."""

ID = "a" * 26

JOB = {
    **dict.fromkeys(("queue", "name", "created_at", "run_at", "started_at", "finished_at", "expires_at", "error"), HOSTILE),
    "job_id": HOSTILE,
    "state": "dead",
    "token": 1,
    "attempts": 1,
    "max_attempts": 5,
    "payload_sha256": HOSTILE,
    "payload": {HOSTILE: HOSTILE},
    "checkpoint": HOSTILE,
    "result": [HOSTILE],
    "history": [{"token": 1, "started_at": HOSTILE, "ended_at": HOSTILE, "outcome": HOSTILE}],
}
QUEUE = {
    "name": HOSTILE,
    **dict.fromkeys(("ready", "leased", "delayed", "burst"), 1),
    **dict.fromkeys(("rate_per_second", "high_water_mark"), 1),
    "paused": False,
    "parked": False,
}
ANSWERS: Mapping[tuple[str, str], Any] = {
    ("POST", "/v1/jobs"): {**JOB, "repeated": True},
    ("GET", "/v1/jobs"): {"jobs": [JOB]},
    ("GET", "/v1/queues"): {"queues": [QUEUE]},
    ("PATCH", "/v1/queues/q"): QUEUE,
    ("GET", "/v1/quarantine"): {
        "items": [{**dict.fromkeys(("source", "position", "reason", "at", "job_id"), HOSTILE), "bytes": 1}]
    },
}
"""Of a server that means harm, or has believed somebody who does. Every other path is a job."""

REFUSAL = dict.fromkeys(("type", "title", "detail", "pointer"), HOSTILE)

CALLS: Mapping[str, Sequence[str]] = {
    "submit": ("submit", "double"),
    "status": ("status", ID),
    "wait": ("wait", ID, ID),
    "list": ("list",),
    "cancel": ("cancel", ID),
    "redrive": ("redrive", ID),
    "quarantine": ("quarantine",),
    "queues": ("queues",),
}
MORE_CALLS = [("queues", "q", "--rate", "1/s"), ("submit", "double", "--many", "-")]

WITHOUT_THE_API = {"keys", "replay", "reconcile", "worker", "dev", "demo"}
"""What they print is this machine's own, but for the keys and the failed batches, which have tests below."""


def answer(event: Mapping[str, Any]) -> dict[str, Any]:
    asked = event["requestContext"]["http"]["method"], event["rawPath"]
    if b'"jobs":' in b64decode(event["body"] or ""):
        return reply(207, {"jobs": [{"status": 422, "problem": {**REFUSAL, "status": 422}}]})
    return reply(202 if asked == ("POST", "/v1/jobs") else 200, ANSWERS.get(asked, JOB))


def refuse(event: Mapping[str, Any]) -> dict[str, Any]:
    return reply(422, {**REFUSAL, "status": 422})


def reply(status: int, document: Any) -> dict[str, Any]:
    return {"statusCode": status, "headers": {"Content-Type": "application/json"}, "body": json.dumps(document)}


@pytest.fixture(scope="module")
def servers() -> Iterator[Mapping[str, str]]:
    with served(answer) as answering, served(refuse) as refusing:
        yield {"answers": answering, "refuses": refusing}


def run(arguments: Sequence[str], url: str = "") -> Result:
    # So wide that no word is broken.
    environment = {"RINGFENCE_URL": url, "RINGFENCE_API_KEY": "", "COLUMNS": "5000"}
    return CliRunner().invoke(main, arguments, input='{"n": 1}\n', env=environment)


def obeyed(text: str) -> set[str]:
    """What in it is not printable, by Unicode's own classes, but for the ends of lines and tabs."""
    return {character for character in text if not character.isprintable()} - {"\n", "\t"}


def test_every_command_is_called_below() -> None:
    assert set(COMMANDS) == set(CALLS) | WITHOUT_THE_API


@pytest.mark.parametrize("server", ["answers", "refuses"])
@pytest.mark.parametrize("look", ["lines", "terminal", "json"])
@pytest.mark.parametrize("call", [*CALLS.values(), *MORE_CALLS], ids=" ".join)
def test_c38_no_command_prints_what_a_terminal_obeys(
    servers: Mapping[str, str], server: str, look: str, call: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    if look == "terminal":
        monkeypatch.setattr(Output, "for_people", True)
    result = run([*call, "--json"] if look == "json" else call, servers[server])
    assert "forged" in result.output, result.output
    assert not obeyed(result.output)
    assert not [line for line in result.output.splitlines() if line.startswith("forged")]
    if look == "json":
        for line in result.output.splitlines():
            json.loads(line)


@pytest.mark.parametrize("look", ["lines", "terminal", "json"])
def test_the_list_of_keys_prints_none_either(look: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = MemoryKeys()
    kept.add(ApiKey(key_id="k", sha256="0" * 64, tenant=HOSTILE, scopes=frozenset({HOSTILE}), created_at=1, note=HOSTILE))
    monkeypatch.setattr(Runtime, "keys", kept)
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    if look == "terminal":
        monkeypatch.setattr(Output, "for_people", True)
    result = run(["keys", "list", "--table", "T", *(["--json"] if look == "json" else [])])
    assert "forged" in result.output
    assert not obeyed(result.output)


class HostileBatches:
    """What a bucket may hold that somebody else writes to."""

    def names(self) -> list[str]:
        return [HOSTILE, "aws/lambda/other"]

    def read(self, name: str) -> FailedBatch:
        if name == HOSTILE:
            return FailedBatch([LogEntry(HOSTILE.encode(), HOSTILE)], HOSTILE, HOSTILE)
        raise UnreadableBatch(HOSTILE)


@pytest.mark.parametrize("look", ["lines", "terminal", "json"])
def test_the_failed_batches_print_none_either(look: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Runtime, "replayer", Replayer(HostileBatches(), MemoryLog(), ManualClock(), Random(1)))
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    if look == "terminal":
        monkeypatch.setattr(Output, "for_people", True)
    call = ["replay", "--dry-run", "--bucket", "b", "--stream", "s", *(["--json"] if look == "json" else [])]
    result = run(call)
    assert result.output.count("forged") >= 2, result.output
    assert not obeyed(result.output)


@pytest.mark.parametrize(
    "arguments",
    [
        ["status", ID, "--url", f"ftp://{HOSTILE}"],
        ["submit", "double", "--payload", f'{{"{HOSTILE}":1}}'],
        ["submit", "double", "--payload", json.dumps({"a": 1})[:-1] + f', "a{HOSTILE}": 1'],
        ["submit", "double", "--payload", f"@/no/such/{HOSTILE}".replace("\0", "")],
        ["list", "--state", HOSTILE],
        ["list", "--retry", HOSTILE],
        ["queues", "q", "--rate", HOSTILE],
        [HOSTILE],
        ["list", f"--{HOSTILE}"],
    ],
    ids=lambda arguments: ascii(" ".join(arguments))[:40],
)
def test_a_usage_error_quotes_nothing_that_a_terminal_obeys(arguments: list[str]) -> None:
    """Arguments may come from a script that has them from elsewhere."""
    result = run(arguments)
    assert result.exit_code == 2
    assert not obeyed(result.output)


def test_an_event_is_one_line_of_ascii_whatever_its_fields_hold(capsys: pytest.CaptureFixture[str]) -> None:
    """Those that are counted are in the embedded metric format as well."""
    telemetry = PowertoolsTelemetry("escapes", level="DEBUG")
    for name in ("job_dead", "job_claimed", "record_quarantined", "push_failed"):
        telemetry.event(name, job_id=HOSTILE, queue=HOSTILE, job_name=HOSTILE, reason=HOSTILE, count=1)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 4
    for line in lines:
        assert line.isascii()
        assert line.isprintable()
        assert json.loads(line)["reason"] == HOSTILE
