"""The stack is the template's, and the emulator under it is one that experiments about concurrency can rest on."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ringfence.local.dev import Dev
from ringfence.local.emulator import Emulator
from ringfence.local.stack import StackFailed, create_stack
from ringfence.local.template import read_template
from ringfence.testing.emulator_kinds import USUAL, startable

from .conftest import TEMPLATE, App, eventually

WRITERS = 8


def test_resources_are_those_of_the_template_without_what_is_left_out(app: App) -> None:
    resources = app.dev.resources
    assert {"Table", "Stream", "Queue", "SlowQueue", "LastResort", "Bucket", "Role", "DoorLogs"} <= set(resources)
    assert {"HttpApi", "HttpApiMayCall", "SlowAlarm", "ReaderFunctionLog", "TickFunctionEachMinute", "DoorFunction"}.isdisjoint(
        resources
    )
    table = app.dev.endpoint.client("dynamodb").describe_table(TableName=resources["Table"])["Table"]
    assert table["KeySchema"] == [{"AttributeName": "pk", "KeyType": "HASH"}]


def test_outputs_name_what_there_is_and_the_api_on_this_machine(app: App) -> None:
    assert app.dev.outputs == {
        "ApiUrl": app.dev.api_url,
        "TableName": app.environment["TABLE"],
        "QueueUrl": app.queue_url,
    }
    assert app.dev.api_url.startswith("http://127.0.0.1:")


def test_a_queue_keeps_what_the_template_says_of_it(app: App) -> None:
    attributes = app.sqs.get_queue_attributes(QueueUrl=app.queue_url, AttributeNames=["All"])["Attributes"]
    assert attributes["VisibilityTimeout"] == "2"
    assert int(json.loads(attributes["RedrivePolicy"])["maxReceiveCount"]) == 1000


def test_schedules_fire_and_say_who_they_are(app: App) -> None:
    assert app.history("tick") or app.dev.invoke("TickFunction", b'{"source": "aws.events"}').error is None
    assert {line["source"] for line in app.history("tick")} == {"aws.events"}


def test_of_writers_at_once_exactly_one_wins_a_put_if_absent(app: App) -> None:
    """Else every experiment about fencing would blame the queue for its bed."""
    dynamodb, table = app.dev.endpoint.client("dynamodb"), app.environment["TABLE"]

    def wins(key: str) -> bool:
        try:
            dynamodb.put_item(TableName=table, Item={"pk": {"S": key}}, ConditionExpression="attribute_not_exists(pk)")
        except dynamodb.exceptions.ConditionalCheckFailedException:
            return False
        return True

    with ThreadPoolExecutor(WRITERS) as writers:
        for _ in range(10):
            key = app.name()
            assert sum(writers.map(wins, [key] * WRITERS)) == 1


def test_a_restart_gives_a_function_other_variables(app: App) -> None:
    before = app.dev.pids("DoorFunction")
    app.dev.restart("DoorFunction", {"EXTRA": "here"})
    assert app.json("/environment")["EXTRA"] == "here"
    assert set(before).isdisjoint(app.dev.pids("DoorFunction"))
    app.dev.restart("DoorFunction")
    assert "EXTRA" not in app.json("/environment")


def test_parameters_change_the_stack(tmp_path: Path) -> None:
    parameters = {"FrontDoor": "function-url", "Colour": "blue", "Reserved": "1"}
    with Dev(
        TEMPLATE,
        emulator=startable(USUAL),
        run_folder=tmp_path,
        parameters=parameters,
        extra_env={"TRACE": str(tmp_path / "t")},
    ) as dev:
        assert dev.outputs["ApiUrl"] == dev.api_url
        assert dev.environment("DoorFunction")["COLOUR"] == "blue"
        assert len(dev.pids("DoorFunction")) == 1


def test_an_emulator_that_runs_already_is_used_and_left_as_it_was(tmp_path: Path, no_emulator_given: None) -> None:
    emulator = Emulator("ministack", "us-east-1", tmp_path / "log", lambda _: None, lambda _: None)
    emulator.start()
    try:
        emulator.wait_ready()
        dynamodb, s3 = emulator.endpoint.client("dynamodb"), emulator.endpoint.client("s3")
        environment = {"TRACE": str(tmp_path / "trace")}
        with Dev(TEMPLATE, endpoint_url=emulator.endpoint.url, run_folder=tmp_path, extra_env=environment) as dev:
            assert dev.endpoint_url == emulator.endpoint.url
            assert dynamodb.list_tables()["TableNames"] == [dev.resources["Table"]]
            s3.put_object(Bucket=dev.resources["Bucket"], Key="key", Body=b"so that it is not empty")
        eventually(lambda: dynamodb.list_tables()["TableNames"] == [], "the end of the stack")
        assert s3.list_buckets()["Buckets"] == []
    finally:
        emulator.stop()


def test_a_resource_that_the_emulator_does_not_create_fails_the_stack(app: App, tmp_path: Path) -> None:
    """moto says CREATE_COMPLETE and has skipped it; others refuse it."""
    template = tmp_path / "template.yaml"
    template.write_text(
        "Transform: AWS::Serverless-2016-10-31\n"
        "Resources:\n"
        "  Q: {Type: AWS::SQS::Queue}\n"
        "  Nobody: {Type: AWS::GroundStation::Config, Properties: {Name: n, ConfigData: {}}}\n"
    )
    with pytest.raises(StackFailed, match=r"Nobody|AWS::GroundStation::Config"):
        create_stack(app.dev.endpoint, read_template(template, {}, app.dev.endpoint.region), f"lacking-{app.name()}", [])
