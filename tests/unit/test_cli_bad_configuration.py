"""Options and variables that cannot be right: one line that names the fault, and no traceback."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import boto3
import pytest
from botocore.exceptions import EndpointConnectionError
from botocore.parsers import ResponseParserError
from click.testing import CliRunner, Result

from ringfence.aws import clients
from ringfence.aws.dynamo_calls import calling
from ringfence.aws.queue_url import queue_url
from ringfence.cli import outside_faults
from ringfence.cli.main import main
from ringfence.durations import seconds_of
from ringfence.errors import RingfenceError, Unavailable
from ringfence.local.run_folder import NoRunFolder, make_run_folder
from ringfence.local.template import BadTemplate, read_template
from ringfence.settings import Misconfigured, Settings

NINES = "9" * 5_000
HERE = {"RINGFENCE_LEDGER_TABLE": "T", "RINGFENCE_STREAM": "S"}
ONE_QUEUE = {"RINGFENCE_QUEUES": '{"default": "redis://127.0.0.1:1/q"}', "RINGFENCE_APP": "jobs:app"}


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Neither what this machine says of AWS, nor what a command makes of its environment, outlives a test."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "LOCALSTACK_", "POWERTOOLS_", "LOG_LEVEL"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ENDPOINT_URL", "")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    monkeypatch.setenv("AWS_CONFIG_FILE", os.devnull)
    clients.forget()
    yield
    clients.forget()


def called(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(main, arguments, env=environment)


def told_in_one_line(result: Result, code: int, fault: str) -> None:
    assert isinstance(result.exception, SystemExit), result.exception
    assert result.exit_code == code, result.output
    assert fault in result.stderr.splitlines()[-1]
    assert code == 2 or len(result.stderr.splitlines()) == 1  # usage errors show the usage first


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (("keys", "create", "--table", "T", "--endpoint-url", "nonsense"), "'nonsense' is not a URL"),
        (("reconcile", "--table", "T", "--endpoint-url", "http://h:99999"), "'http://h:99999' is not a URL"),
        (("dev", "--endpoint-url", "nonsense", "--template", __file__), "'nonsense' is not a URL"),
        (("queues", "q", "--high-water", NINES), "is not a whole number"),
        (("queues", "q", "--rate", NINES), "is more than any queue takes"),
        (("submit", "j", "--delay", NINES), "is not a duration"),
        (("worker", "-q", "default:²"), "is not a queue's name with a weight"),
        (("worker", "-q", f"default:{NINES}"), "is not a queue's name with a weight"),
        (("list", "--url", "http://ä..b"), "not an http(s) URL"),
        (("list", "--url", "http://127.0.0.1:1/a b"), "not an http(s) URL"),
        (("status", "\udcff", "--url", "http://127.0.0.1:1", "--retry", "0s"), "an argument is not UTF-8"),
        (("submit", "\udcff", "--url", "http://127.0.0.1:1", "--retry", "0s"), "an argument is not UTF-8"),
    ],
)
def test_an_option_that_cannot_be_right_is_wrong_usage(arguments: tuple[str, ...], fault: str) -> None:
    told_in_one_line(called(*arguments), 2, fault)


@pytest.mark.parametrize("file", ["", "/"])
def test_a_liveness_file_that_is_a_folder_is_wrong_usage(file: str) -> None:
    result = called("worker", "--liveness-file", file, **HERE, **ONE_QUEUE)
    assert (result.exit_code, "Invalid value for" in result.stderr) == (2, True)


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("AWS_ENDPOINT_URL", "nonsense"),
        ("AWS_ENDPOINT_URL_DYNAMODB", "127.0.0.1:4566"),
        ("LOCALSTACK_HOST", "::"),
        ("POWERTOOLS_LOG_LEVEL", "FOO"),
        ("LOG_LEVEL", "10"),
        ("RINGFENCE_LEASE_SECONDS", "long"),
    ],
)
def test_a_worker_names_the_variable_at_fault(variable: str, value: str) -> None:
    result = called("worker", **HERE, **ONE_QUEUE, **{variable: value})
    told_in_one_line(result, 1, variable)
    assert value in result.stderr


@pytest.mark.parametrize(
    ("variable", "value", "fault"),
    [
        ("AWS_ENDPOINT_URL_DYNAMODB", "nonsense", "AWS_ENDPOINT_URL_DYNAMODB is not a URL"),
        ("LOCALSTACK_HOST", "::", "LOCALSTACK_HOST is not host"),
        ("AWS_PROFILE", "nope", "nope"),
        ("AWS_DEFAULT_REGION", "no region!", "no region!"),
    ],
)
def test_so_does_a_command_without_the_api(variable: str, value: str, fault: str) -> None:
    told_in_one_line(called("keys", "list", "--table", "T", **{variable: value}), 1, fault)


def test_the_legacy_name_of_the_log_level_counts_only_alone() -> None:
    told = Settings.from_environment({**HERE, "POWERTOOLS_LOG_LEVEL": "info", "LOG_LEVEL": "nonsense"})
    assert told.ledger_table == "T"


def test_a_queue_without_a_host_is_told_before_a_worker_starts() -> None:
    with pytest.raises(Misconfigured, match="a queue is at"):
        queue_url(None, "https://")


def test_a_duration_has_an_end() -> None:
    with pytest.raises(ValueError, match="it has no end"):
        seconds_of("9" * 400)


def _nobody_listens() -> None:
    raise ConnectionRefusedError(111, "Connection refused")


def _nothing_to_parse() -> None:
    raise ResponseParserError("not XML")


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (lambda: boto3.session.Session(profile_name="nope"), "nope"),
        (
            lambda: boto3.session.Session().client("sqs", region_name="us-east-1", endpoint_url="nonsense"),
            "Invalid endpoint: nonsense",
        ),
        (lambda: Path("/proc/nope").mkdir(), "/proc/nope: "),
        (_nobody_listens, "Connection refused"),
        (_nothing_to_parse, "not AWS, nor an emulator"),
    ],
)
def test_faults_from_outside_are_the_commands_own(call: Callable[[], object], told: str) -> None:
    with pytest.raises(RingfenceError, match=told), outside_faults.named():
        call()


def test_what_is_unavailable_is_told_with_its_address() -> None:
    told = r"cannot look through the ledger: EndpointConnectionError \(.*http://127.0.0.1:9/"
    with pytest.raises(Unavailable, match=told), outside_faults.named(), calling("look through the ledger"):
        raise EndpointConnectionError(endpoint_url="http://127.0.0.1:9/")


def test_a_bug_stays_one() -> None:
    with pytest.raises(ValueError, match="a bug"), outside_faults.named():
        raise ValueError("a bug")


# --- ringfence dev ---------------------------------------------------------------------------------------------------


def test_an_emulator_that_does_not_answer_is_told(tmp_path: Path) -> None:
    template = tmp_path / "template.yaml"
    template.write_text("Resources: {}")
    result = called("dev", "--endpoint-url", "http://127.0.0.1:1", "--port", "0", "--template", str(template))
    told_in_one_line(result, 1, "no emulator answers at http://127.0.0.1:1: Connection refused")


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        (b"a: \xff", "is not UTF-8"),
        (b"Resources: {A: 5}", "the resource A has no Type"),
        (b"Resources: {A: {Type: [1]}}", "the resource A has no Type"),
        (b"Resources: {A: {Type: X, Properties: 7}}", "the Properties of A are not a mapping"),
        (b"{Resources: {}, Parameters: [a]}", "Parameters is not a mapping"),
        (b"{Resources: {}, Parameters: {A: 5}}", "A of Parameters is not a mapping"),
        (b"{Resources: {}, Outputs: {A: 5}}", "A of Outputs is not a mapping"),
    ],
)
def test_a_template_that_is_none_is_told(text: bytes, fault: str, tmp_path: Path) -> None:
    template = tmp_path / "template.yaml"
    template.write_bytes(text)
    with pytest.raises(BadTemplate, match=fault):
        read_template(template, {}, "us-east-1")


def test_a_file_where_the_logs_belong_is_told(tmp_path: Path) -> None:
    (tmp_path / ".ringfence").touch()
    with pytest.raises(NoRunFolder, match=r"\.ringfence is in the way"):
        make_run_folder(tmp_path)
