"""Each event is one line of JSON, and of the embedded metric format where it counts, whatever its fields hold."""

import ast
import json
import logging
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import ringfence
from ringfence.aws.telemetry import MAX_FIELD_CHARACTERS, PowertoolsTelemetry
from ringfence.event_names import LEVELS, MEASURED, METRICS, NEVER_TOLD

_services = iter(f"service-{number}" for number in range(10_000))


@pytest.fixture
def telemetry() -> PowertoolsTelemetry:
    # A logger of Powertools is set up once per service and process: a service of its own for each test.
    return PowertoolsTelemetry(next(_services), level="DEBUG")


def lines(capsys: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    out = capsys.readouterr().out
    assert out == "" or out.endswith("\n")
    return [json.loads(line) for line in out.splitlines()]


def test_an_event_is_a_line_with_its_name_and_its_fields(
    telemetry: PowertoolsTelemetry, capsys: pytest.CaptureFixture[str]
) -> None:
    telemetry.event("job_claimed", job_id="abc", token=3, queue="default", late=None, ok=True, seconds=1.5)
    (line,) = lines(capsys)
    assert line.pop("timestamp").endswith("+00:00")
    service = line.pop("service")
    assert service.startswith("service-")
    assert line == {
        "level": "INFO",
        "message": "job_claimed",
        "event": "job_claimed",
        "job_id": "abc",
        "token": 3,
        "queue": "default",
        "ok": True,
        "seconds": 1.5,
    }


def test_a_process_that_shares_its_output_says_who_it_is_but_not_over_a_field(capsys: pytest.CaptureFixture[str]) -> None:
    telemetry = PowertoolsTelemetry(next(_services), pid=17)
    telemetry.event("job_claimed", job_id="abc")
    telemetry.event("worker_recycled", pid=18)
    assert [line["pid"] for line in lines(capsys)] == [17, 18]


@pytest.mark.parametrize(
    "text",
    ["a\nb\r\nc", "\x00\x07\x1b[31mred\x1b[0m", "\u2028\u2029\x85", "‮gnirts", "\ud800", '"}\n{"event":"job_dead"', "{}", "🦊"],
)
def test_no_text_breaks_out_of_its_line(telemetry: PowertoolsTelemetry, capsys: pytest.CaptureFixture[str], text: str) -> None:
    telemetry.event("job_retried", reason=text)
    out = capsys.readouterr().out
    assert out.isascii()
    assert [character for character in out[:-1] if not character.isprintable()] == []
    assert json.loads(out)["reason"] == text


@pytest.mark.filterwarnings("ignore:POWERTOOLS_DEV")
@pytest.mark.parametrize("variable", ["POWERTOOLS_DEV", "AWS_SAM_LOCAL"])
def test_it_stays_one_line_in_development_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], variable: str
) -> None:
    monkeypatch.setenv(variable, "true")
    PowertoolsTelemetry(next(_services)).event("job_claimed", job_id="abc")
    assert len(capsys.readouterr().out.splitlines()) == 1


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")])
def test_every_line_is_valid_json(telemetry: PowertoolsTelemetry, capsys: pytest.CaptureFixture[str], number: float) -> None:
    telemetry.event("job_retried", delay_seconds=number, exact=2**60 + 1)

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    line = json.loads(capsys.readouterr().out, parse_constant=refuse)
    assert line["exact"] == 2**60 + 1


@pytest.mark.parametrize("field", sorted(NEVER_TOLD))
def test_payloads_are_withheld(telemetry: PowertoolsTelemetry, capsys: pytest.CaptureFixture[str], field: str) -> None:
    telemetry.event("job_succeeded", **{field: "canary"})
    out = capsys.readouterr().out
    assert "canary" not in out
    assert "[withheld]" in out


def test_a_long_error_is_cut(telemetry: PowertoolsTelemetry, capsys: pytest.CaptureFixture[str]) -> None:
    telemetry.event("job_dead", reason="x" * 1_000_000)
    assert len(lines(capsys)[0]["reason"]) == MAX_FIELD_CHARACTERS


def test_fields_that_log_records_use_themselves_are_told_beside_them(
    telemetry: PowertoolsTelemetry, capsys: pytest.CaptureFixture[str]
) -> None:
    taken = ("message", "args", "module", "level", "service", "timestamp", "exc_info", "process", "event", "_aws", "taskName")
    telemetry.event("job_claimed", **dict.fromkeys(taken, "mine"))
    (line,) = lines(capsys)
    assert {line[f"{field}_"] for field in taken} == {"mine"}
    assert (line["message"], line["event"], line["level"]) == ("job_claimed", "job_claimed", "INFO")
    assert line["service"].startswith("service-")
    assert "_aws" not in line


def test_a_counted_event_is_a_metric_of_service_and_queue_and_nothing_else(
    telemetry: PowertoolsTelemetry, capsys: pytest.CaptureFixture[str]
) -> None:
    telemetry.event("job_dead", job_id="abc", token=3, queue="default")
    (line,) = lines(capsys)
    (directive,) = line["_aws"]["CloudWatchMetrics"]
    assert directive == {
        "Namespace": "Ringfence",
        "Dimensions": [["service"], ["service", "queue"]],
        "Metrics": [{"Name": "DeadJobs", "Unit": "Count"}],
    }
    assert (line["DeadJobs"], line["queue"], line["job_id"], line["level"]) == ([1.0], "default", "abc", "ERROR")
    assert line["_aws"]["Timestamp"] > 1_600_000_000_000


@pytest.mark.parametrize("queue", [None, "", "  "])
def test_without_a_queue_the_service_is_the_only_dimension(
    telemetry: PowertoolsTelemetry, capsys: pytest.CaptureFixture[str], queue: str | None
) -> None:
    telemetry.event("record_quarantined", shard="shardId-0", queue=queue)
    assert lines(capsys)[0]["_aws"]["CloudWatchMetrics"][0]["Dimensions"] == [["service"]]


def test_an_event_about_many_counts_them(telemetry: PowertoolsTelemetry, capsys: pytest.CaptureFixture[str]) -> None:
    telemetry.event("push_failed", queue="default", count=7)
    assert lines(capsys)[0]["FailedPushes"] == [7.0]


def test_a_measured_event_is_several_metrics_of_the_same_dimensions(
    telemetry: PowertoolsTelemetry, capsys: pytest.CaptureFixture[str]
) -> None:
    telemetry.event("queue_depth", queue="default", ready=3, leased=2, delayed=0, oldest_ready_seconds=1.5)
    (line,) = lines(capsys)
    (directive,) = line["_aws"]["CloudWatchMetrics"]
    assert directive["Dimensions"] == [["service"], ["service", "queue"]]
    assert directive["Metrics"] == [
        {"Name": "ReadyTickets", "Unit": "Count"},
        {"Name": "LeasedTickets", "Unit": "Count"},
        {"Name": "DelayedTickets", "Unit": "Count"},
        {"Name": "OldestReadySeconds", "Unit": "Seconds"},
    ]
    assert [line[metric["Name"]] for metric in directive["Metrics"]] == [[3.0], [2.0], [0.0], [1.5]]


def test_a_quieter_log_still_counts(capsys: pytest.CaptureFixture[str]) -> None:
    telemetry = PowertoolsTelemetry(next(_services), level="CRITICAL")
    telemetry.event("job_claimed", job_id="abc")
    telemetry.event("job_accepted", job_id="abc", queue="default")
    telemetry.event("queue_depth", queue="default", ready=3, leased=0, delayed=0, oldest_ready_seconds=0.0)
    line, depth = lines(capsys)
    assert (line["AcceptedJobs"], depth["ReadyTickets"]) == ([1.0], [3.0])
    assert line["_aws"]["CloudWatchMetrics"][0]["Namespace"] == "Ringfence"
    assert "level" not in line


@pytest.mark.parametrize("level", ["DEBUG", "CRITICAL"])
def test_a_line_is_on_its_way_when_it_is_told_and_ends_nothing_where_it_cannot_be_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, level: str
) -> None:
    monkeypatch.setattr(logging, "raiseExceptions", False)
    telemetry = PowertoolsTelemetry(next(_services), level=level)
    file = tmp_path / "output"
    with file.open("w") as output:
        monkeypatch.setattr(sys, "stdout", output)
        telemetry.event("late_write_refused", queue="default")
        assert json.loads(file.read_text())["LateWritesRefused"] == [1]
    telemetry.event("late_write_refused", queue="default")
    assert len(file.read_text().splitlines()) == 1


@pytest.mark.parametrize(
    ("event", "level"), [("job_held", "DEBUG"), ("job_claimed", "INFO"), ("late_write_refused", "WARNING")]
)
def test_events_are_as_loud_as_they_matter(
    telemetry: PowertoolsTelemetry, capsys: pytest.CaptureFixture[str], event: str, level: str
) -> None:
    telemetry.event(event)
    assert lines(capsys)[0]["level"] == level


def test_threads_do_not_mix_their_lines_or_their_dimensions(
    telemetry: PowertoolsTelemetry, capsys: pytest.CaptureFixture[str]
) -> None:
    def tell(queue: str) -> None:
        for number in range(50):
            telemetry.event("job_succeeded", queue=queue, job_id=f"{queue}-{number}")

    threads = [threading.Thread(target=tell, args=(f"queue-{number}",)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    told = lines(capsys)
    assert len({line["job_id"] for line in told}) == len(told) == 400
    assert all(line["job_id"].startswith(line["queue"] + "-") and line["SucceededJobs"] == [1.0] for line in told)


def test_a_log_that_cannot_be_written_does_not_end_the_work(
    telemetry: PowertoolsTelemetry, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Broken:
        def write(self, _text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(logging, "raiseExceptions", False)
    monkeypatch.setattr(sys, "stdout", Broken())
    telemetry.event("job_claimed", job_id="abc")


def test_the_service_is_the_functions(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", next(_services))
    PowertoolsTelemetry().event("job_dead", queue="default")
    (line,) = lines(capsys)
    assert line["service"].startswith("service-")


def test_powertools_is_not_imported_before_it_is_needed() -> None:
    program = "import sys, ringfence.aws.telemetry; sys.exit('aws_lambda_powertools' in sys.modules)"
    environment = {"PYTHONPATH": ":".join(path for path in sys.path if path)}
    assert subprocess.run([sys.executable, "-c", program], env=environment, timeout=60, check=False).returncode == 0


def test_every_event_that_is_known_by_name_is_told_somewhere() -> None:
    told: set[str] = set()
    for file in Path(ringfence.__file__).parent.rglob("*.py"):
        if file.name != "event_names.py":
            constants = (node for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.Constant))
            told |= {node.value for node in constants if isinstance(node.value, str)}
    assert (LEVELS.keys() | METRICS.keys() | MEASURED.keys()) - told == set()
