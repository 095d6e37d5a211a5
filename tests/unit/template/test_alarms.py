"""What wakes somebody: the alarms there are, and that each watches a metric which somebody writes."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from ringfence.event_names import MEASURED, METRICS
from ringfence.local.intrinsics import Filling, references
from ringfence.local.template import logical_id
from ringfence.runtime import Runtime
from ringfence.settings import Settings

from .conftest import Stack

ALARMS = {
    "RelayIsBehind", "BatchesAreGivenUp", "LastResortIsUsed", "JobsAreDead",
    "QuarantineIsUsed", "LateWritesAreRefused", "GatewayAnswers5xx", "FunctionsFail", "FunctionsAreThrottled",
    "LedgerThrottles", "PushesFail", "QueueMemoryIsLost", "TicketsInFlightNearLimit",
}  # fmt: skip
FUNCTIONS = {"GatewayFunction", "RelayFunction", "WorkerFunction", "TimersFunction"}

Metric = tuple[str, str, dict[str, Any]]
"""Namespace, name, dimensions."""


def alarms(stack: Stack) -> dict[str, Mapping[str, Any]]:
    return stack.of_type("AWS::CloudWatch::Alarm")


def metrics(alarm: Mapping[str, Any]) -> Iterator[Metric]:
    stats = [each["MetricStat"]["Metric"] for each in alarm.get("Metrics", ()) if "MetricStat" in each]
    for metric in stats or [alarm]:
        dimensions = {dimension["Name"]: dimension["Value"] for dimension in metric["Dimensions"]}
        yield metric["Namespace"], metric["MetricName"], dimensions


def test_alarms_and_dashboard_are_there_exactly_when_asked_for(any_stack: Stack) -> None:
    wanted = any_stack.parameters["Alarms"] == "true"

    of_queues = {f"{queue}IsOld" for queue in any_stack.queues.values()}
    of_redis = {"RedisQueuesAreOld"} if any_stack.parameters["RedisUrl"] else set()
    assert set(alarms(any_stack)) == (ALARMS | of_queues | of_redis if wanted else set())
    assert bool(any_stack.of_type("AWS::CloudWatch::Dashboard")) == wanted


def test_alarms_notify_the_topic_if_there_is_one(any_stack: Stack) -> None:
    actions = [{"Ref": "AlarmTopic"}] if any_stack.parameters["AlarmTopic"] else None

    assert all(alarm.get("AlarmActions") == actions for alarm in alarms(any_stack).values())


def test_silence_is_good_news(any_stack: Stack) -> None:
    for alarm in alarms(any_stack).values():
        assert alarm["TreatMissingData"] == "notBreaching"
        assert alarm["ComparisonOperator"] == "GreaterThanThreshold"


def test_the_relay_may_be_an_hour_behind(stack: Stack) -> None:
    alarm = alarms(stack)["RelayIsBehind"]

    assert list(metrics(alarm)) == [("AWS/Lambda", "IteratorAge", {"FunctionName": {"Ref": "RelayFunction"}})]
    assert (alarm["Statistic"], alarm["Threshold"]) == ("Maximum", 60 * 60 * 1000)


def test_a_batch_that_is_given_up_is_noticed_wherever_it_ends(stack: Stack) -> None:
    """The mapping tells of the batches that it put into the bucket or dropped, the function of those the bucket refused."""
    mapping, function = {"EventSourceMappingUUID": {"Ref": "RelayFunctionLog"}}, {"FunctionName": {"Ref": "RelayFunction"}}

    assert list(metrics(alarms(stack)["BatchesAreGivenUp"])) == [
        ("AWS/Lambda", "OnFailureDestinationDeliveredEventCount", mapping),
        ("AWS/Lambda", "DroppedEventCount", mapping),
        ("AWS/Lambda", "DestinationDeliveryFailures", function),
    ]
    assert alarms(stack)["BatchesAreGivenUp"]["Threshold"] == 0


def test_the_logs_mapping_counts_events_while_an_alarm_asks_for_them(any_stack: Stack) -> None:
    (log,) = (m for m in any_stack.of_type("AWS::Lambda::EventSourceMapping").values() if "StartingPosition" in m)

    assert log.get("MetricsConfig") == ({"Metrics": ["EventCount"]} if alarms(any_stack) else None)


def test_jobs_metrics_are_written_by_the_code_under_this_stacks_name(any_stack: Stack) -> None:
    written = {counted.metric for counted in itertools.chain(METRICS.values(), *MEASURED.values())}
    watched = [metric for alarm in alarms(any_stack).values() for metric in metrics(alarm) if metric[0] == "Ringfence"]
    environments = [any_stack.properties(function)["Environment"]["Variables"] for function in FUNCTIONS]

    assert {environment["POWERTOOLS_METRICS_NAMESPACE"] for environment in environments} == {"Ringfence"}
    for _, name, dimensions in watched:
        assert name in written
        assert all(dimensions == {"service": environment["POWERTOOLS_SERVICE_NAME"]} for environment in environments)
    expected = (
        ["DeadJobs", "FailedPushes", "LateWritesRefused", "Quarantined", "QueueMemoriesLost"] if alarms(any_stack) else []
    )
    of_redis = ["OldestReadySeconds"] if "RedisQueuesAreOld" in alarms(any_stack) else []
    assert sorted(name for _, name, _ in watched) == sorted(expected + of_redis)


def test_a_dead_job_is_counted_where_its_alarm_looks(stack: Stack, capsys: pytest.CaptureFixture[str]) -> None:
    environment = {
        "RINGFENCE_LEDGER_TABLE": "ledger",
        "RINGFENCE_STREAM": "log",
        "POWERTOOLS_SERVICE_NAME": "some-stack",
    }
    ((namespace, name, _),) = metrics(alarms(stack)["JobsAreDead"])

    Runtime(Settings.from_environment(environment)).telemetry.event("job_dead", queue="default")

    line = json.loads(capsys.readouterr().out)
    (told,) = line["_aws"]["CloudWatchMetrics"]
    assert (told["Namespace"], [metric["Name"] for metric in told["Metrics"]]) == (namespace, [name])
    assert ["service"] in told["Dimensions"]
    assert (line["service"], line[name]) == ("some-stack", [1.0])


def test_every_function_is_watched_for_errors_and_throttles(stack: Stack) -> None:
    for alarm, metric in (("FunctionsFail", "Errors"), ("FunctionsAreThrottled", "Throttles")):
        watched = list(metrics(alarms(stack)[alarm]))
        assert {(namespace, name) for namespace, name, _ in watched} == {("AWS/Lambda", metric)}
        assert {logical_id(dimensions["FunctionName"]) for *_, dimensions in watched} == FUNCTIONS


def test_server_errors_are_counted_where_the_front_door_counts_them(stack: Stack, function_url_stack: Stack) -> None:
    http_api, function_url = (alarms(each)["GatewayAnswers5xx"] for each in (stack, function_url_stack))

    assert list(metrics(http_api)) == [("AWS/ApiGateway", "5xx", {"ApiId": {"Ref": "HttpApi"}})]
    assert list(metrics(function_url)) == [("AWS/Lambda", "Url5xxCount", {"FunctionName": {"Ref": "GatewayFunction"}})]


def test_the_ledger_and_each_of_its_indexes_are_watched_for_throttles(stack: Stack) -> None:
    indexes = {index["IndexName"] for index in stack.properties("LedgerTable")["GlobalSecondaryIndexes"]}
    watched = list(metrics(alarms(stack)["LedgerThrottles"]))

    assert {dimensions.get("GlobalSecondaryIndexName") for *_, dimensions in watched} == {None, *indexes}
    assert all(logical_id(dimensions["TableName"]) == "LedgerTable" for *_, dimensions in watched)
    assert {name for _, name, _ in watched} == {"ReadThrottleEvents", "WriteThrottleEvents"}


def test_c48_a_queue_near_the_most_that_sqs_keeps_in_flight_is_told_apart_from_an_empty_one(stack: Stack) -> None:
    alarm = alarms(stack)["TicketsInFlightNearLimit"]
    watched = list(metrics(alarm))

    assert {(namespace, name) for namespace, name, _ in watched} == {("AWS/SQS", "ApproximateNumberOfMessagesNotVisible")}
    assert sorted(logical_id(dimensions["QueueName"]) for *_, dimensions in watched) == sorted(stack.queues.values())
    assert 60_000 < alarm["Threshold"] < 120_000
    (most,) = (metric["Expression"] for metric in alarm["Metrics"] if metric["ReturnData"])
    assert most == "MAX(METRICS())", "the limit is each queue's own"


def test_every_metric_of_an_alarm_with_several_counts_towards_it(stack: Stack) -> None:
    several = [alarm["Metrics"] for alarm in alarms(stack).values() if "Metrics" in alarm]

    assert len(several) == 5
    for each in several:
        (combined,) = (metric for metric in each if metric["ReturnData"])
        assert (combined["Id"], combined["Expression"]) in {("total", "SUM(METRICS())"), ("most", "MAX(METRICS())")}


def test_the_dashboard_is_json_that_cloudwatch_can_draw(stack: Stack) -> None:
    (dashboard,) = stack.of_type("AWS::CloudWatch::Dashboard").values()
    body = dashboard["DashboardBody"]
    drawn = json.loads(Filling(dict.fromkeys(references(body), "X")).fill(body))

    assert len(drawn["widgets"]) == 4
    own = {
        metric[1] for widget in drawn["widgets"] for metric in widget["properties"]["metrics"][:1] if metric[0] == "Ringfence"
    }
    assert own <= {counted.metric for counted in METRICS.values()}
    assert own
