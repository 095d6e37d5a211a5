"""What `ringfence dev` reads from a template, and what it refuses to read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from ringfence.local import left_out
from ringfence.local.event_sources import KinesisMapping, Route, Schedule, SqsMapping, mapping_of, routes_of, schedules_of
from ringfence.local.intrinsics import Filling
from ringfence.local.stack import Stack
from ringfence.local.template import BadTemplate, Template, read_template

HEAD = "Transform: AWS::Serverless-2016-10-31\n"
FUNCTION = """
  F:
    Type: AWS::Serverless::Function
    Properties: {CodeUri: code, Handler: app.handler, Runtime: python3.13, Role: "arn:aws:iam::1:role/r"}
"""
Read = Callable[..., Template]


@pytest.fixture
def read(tmp_path: Path) -> Read:
    """Reads ``resources`` (YAML, indented by two) as a template beside a folder ``code``."""
    (tmp_path / "code").mkdir()

    def reading(resources: str, rest: str = "", **parameters: str) -> Template:
        path = tmp_path / "template.yaml"
        path.write_text(f"{HEAD}{rest}\nResources:\n{resources}")
        return read_template(path, parameters, "eu-west-1")

    return reading


def stack(**values: str) -> Stack:
    return Stack("s", {}, [], Filling({(name, None): value for name, value in values.items()}))


def event(kind: str, properties: str) -> str:
    """`FUNCTION` with an event source ``E``."""
    return FUNCTION.rstrip().removesuffix("}") + f", Events: {{E: {{Type: {kind}, Properties: {{{properties}}}}}}}}}\n"


# --- functions and parameters ---------------------------------------------------------------------------------------------


def test_a_functions_code_is_the_folder_beside_the_template(read: Read, tmp_path: Path) -> None:
    template = read(FUNCTION)
    assert template.function_ids == ("F",)
    assert template.code["F"] == tmp_path / "code"


def test_globals_hold_for_every_function(read: Read) -> None:
    template = read(FUNCTION, "Globals: {Function: {Timeout: 17}}")
    assert template.resources["F"]["Properties"]["Timeout"] == 17


def test_conditions_are_decided_and_leave_no_trace(read: Read) -> None:
    rest = "Parameters: {P: {Type: String, Default: a}}\nConditions: {IsA: !Equals [!Ref P, a], IsB: !Equals [!Ref P, b]}"
    resources = """
  A: {Type: AWS::SQS::Queue, Condition: IsA, DependsOn: [B, C]}
  B: {Type: AWS::SQS::Queue, Condition: IsB}
  C: {Type: AWS::SQS::Queue, DependsOn: B}
"""
    template = read(resources, rest)
    assert set(template.resources) == {"A", "C"}
    assert template.resources["A"] == {"Type": "AWS::SQS::Queue", "DependsOn": ["C"]}
    assert "DependsOn" not in template.resources["C"]
    assert set(read(resources, rest, P="b").resources) == {"B", "C"}


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"Q": "1", "R": "x"}, "no parameter Q"),
        ({}, "R has no default"),
        ({"R": "x", "P": "c"}, "P=c is none of a, b"),
    ],
)
def test_parameters_are_checked(read: Read, parameters: dict[str, str], message: str) -> None:
    rest = "Parameters: {P: {Type: String, Default: a, AllowedValues: [a, b]}, R: {Type: String}}"
    with pytest.raises(BadTemplate, match=message):
        read("  Q: {Type: AWS::SQS::Queue}\n", rest, **parameters)


@pytest.mark.parametrize("given", ["x", "0", "12 ", "1\n"])
def test_a_value_that_its_pattern_refuses_is_not_shown(read: Read, given: str) -> None:
    with pytest.raises(BadTemplate) as refused:
        read("  Q: {Type: AWS::SQS::Queue}\n", "Parameters: {P: {Type: String, AllowedPattern: '^[1-9]+$'}}", P=given)
    assert str(refused.value) == "the value of P does not match ^[1-9]+$"


def test_the_rules_of_a_template_are_kept(read: Read) -> None:
    rest = """
Parameters: {P: {Type: String, Default: a}, Q: {Type: String, Default: a}}
Rules:
  Together:
    RuleCondition: !Equals [!Ref P, b]
    Assertions: [{Assert: !Not [!Equals [!Ref Q, a]], AssertDescription: P is b and Q is a}]
  Always: {Assertions: [{Assert: !Not [!Equals [!Ref Q, c]]}]}
"""
    queue = "  Q: {Type: AWS::SQS::Queue}\n"
    for parameters in ({}, {"P": "b", "Q": "b"}):
        assert read(queue, rest, **parameters).resources
    with pytest.raises(BadTemplate, match="P is b and Q is a"):
        read(queue, rest, P="b")
    with pytest.raises(BadTemplate, match="the rule Always"):
        read(queue, rest, Q="c")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Resources: [", "is not YAML"),
        ("Description: nothing", "has no Resources"),
        (f"{HEAD}Resources:{FUNCTION.replace('code', 'elsewhere')}", "CodeUri of F is not a folder"),
        (f"{HEAD}Resources:{FUNCTION.replace('Handler: app.handler, ', '')}", "Handler"),
    ],
)
def test_a_template_that_cannot_be_used_says_why(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "template.yaml").write_text(text)
    with pytest.raises(BadTemplate, match=message):
        read_template(tmp_path / "template.yaml", {}, "eu-west-1")


def test_a_template_that_is_not_there_says_so(tmp_path: Path) -> None:
    with pytest.raises(BadTemplate, match="cannot read the template"):
        read_template(tmp_path / "no.yaml", {}, "eu-west-1")


# --- event sources --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["SNS", "DynamoDB", "S3", "Api"])
def test_an_event_source_that_cannot_be_imitated_is_refused_by_name(read: Read, kind: str) -> None:
    with pytest.raises(BadTemplate, match=f"F has an event source E of type {kind}"):
        read(event(kind, "Topic: x"))


def test_a_queue_mapping_is_read_with_all_it_says(read: Read) -> None:
    queue = "Queue: 'arn:aws:sqs:eu-west-1:1:q', BatchSize: !Ref Size, MaximumBatchingWindowInSeconds: 2"
    more = "ScalingConfig: {MaximumConcurrency: 5}, FunctionResponseTypes: [ReportBatchItemFailures]"
    template = read(event("SQS", f"{queue}, {more}"), "Parameters: {Size: {Type: Number, Default: 7}}")
    mapping = mapping_of("FE", template.resources["FE"]["Properties"], stack(Size="7"))
    assert mapping == SqsMapping(
        name="FE",
        function="F",
        arn="arn:aws:sqs:eu-west-1:1:q",
        batch_size=7,
        window_seconds=2,
        maximum_concurrency=5,
        reports_failures=True,
    )


def test_a_stream_mapping_is_read_with_all_it_says(read: Read) -> None:
    stream = "Stream: 'arn:aws:kinesis:eu-west-1:1:stream/s', StartingPosition: TRIM_HORIZON, BatchSize: 5"
    failure = "MaximumRetryAttempts: 3, MaximumRecordAgeInSeconds: 600, BisectBatchOnFunctionError: true"
    destination = "DestinationConfig: {OnFailure: {Type: S3, Destination: 'arn:aws:s3:::b'}}"
    template = read(event("Kinesis", f"{stream}, {failure}, {destination}"))
    mapping = mapping_of("FE", template.resources["FE"]["Properties"], stack())
    assert mapping == KinesisMapping(
        name="FE",
        function="F",
        arn="arn:aws:kinesis:eu-west-1:1:stream/s",
        starting_position="TRIM_HORIZON",
        batch_size=5,
        maximum_retries=3,
        maximum_age_seconds=600,
        bisects=True,
        failed_batches_bucket="b",
    )


def test_a_mapping_that_is_switched_off_is_none(read: Read) -> None:
    template = read(event("SQS", "Queue: 'arn:aws:sqs:eu-west-1:1:q', Enabled: false"))
    assert mapping_of("FE", template.resources["FE"]["Properties"], stack()) is None


@pytest.mark.parametrize(
    ("kind", "properties", "message"),
    [
        ("SQS", "Queue: 'arn:aws:sqs:eu-west-1:1:q', FilterCriteria: {Filters: [{Pattern: '{}'}]}", "FilterCriteria"),
        ("SQS", "Queue: 'arn:aws:kafka:eu-west-1:1:q'", "reads from kafka"),
        (
            "Kinesis",
            "Stream: 'arn:aws:kinesis:eu-west-1:1:stream/s', StartingPosition: LATEST, "
            "DestinationConfig: {OnFailure: {Destination: 'arn:aws:sqs:eu-west-1:1:q'}}",
            "only put them into S3",
        ),
    ],
)
def test_what_a_mapping_asks_for_and_cannot_have_is_refused(read: Read, kind: str, properties: str, message: str) -> None:
    template = read(event(kind, properties))
    with pytest.raises(BadTemplate, match=message):
        mapping_of("FE", template.resources["FE"]["Properties"], stack())


@pytest.mark.parametrize("kind", ["Schedule", "ScheduleV2"])
def test_schedules_of_both_kinds_are_read(read: Read, kind: str) -> None:
    schedule = "Schedule: rate(1 minute)" if kind == "Schedule" else "ScheduleExpression: rate(1 minute)"
    template = read(event(kind, f"{schedule}, Input: '{{}}'"))
    ((name, resource),) = template.of_type("AWS::Events::Rule", "AWS::Scheduler::Schedule").items()
    assert schedules_of(name, resource["Properties"], stack()) == [Schedule("FE", "F", "rate(1 minute)", "{}")]


def test_routes_are_read_from_sam_events(read: Read) -> None:
    template = read(event("HttpApi", "Path: '/v1/{proxy+}', Method: post"))
    assert routes_of(template) == [Route("POST", "/v1/{proxy+}", "F")]


def test_routes_are_read_from_routes_and_their_integrations(read: Read) -> None:
    template = read(
        FUNCTION
        + """
  Api: {Type: AWS::ApiGatewayV2::Api, Properties: {Name: n, ProtocolType: HTTP}}
  Integration:
    Type: AWS::ApiGatewayV2::Integration
    Properties:
      IntegrationUri: !Sub "arn:aws:apigateway:${AWS::Region}:lambda:path/2015-03-31/functions/${F.Arn}/invocations"
  Default: {Type: AWS::ApiGatewayV2::Route, Properties: {RouteKey: $default, Target: !Sub "integrations/${Integration}"}}
  Get: {Type: AWS::ApiGatewayV2::Route, Properties: {RouteKey: "GET /x", Target: !Join [/, [integrations, !Ref Integration]]}}
"""
    )
    assert routes_of(template) == [Route("ANY", "$default", "F"), Route("GET", "/x", "F")]


def test_a_function_url_is_a_route_for_everything(read: Read) -> None:
    template = read(
        FUNCTION + "  Url: {Type: AWS::Lambda::Url, Properties: {AuthType: NONE, TargetFunctionArn: !GetAtt F.Arn}}\n"
    )
    assert routes_of(template) == [Route("ANY", "$default", "F")]


# --- what an emulator is not given ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("emulator", ["ministack", "moto", "other"])
def test_functions_event_sources_alarms_and_policies_are_left_out_and_the_rest_is_kept(read: Read, emulator: str) -> None:
    template = read(
        event("Schedule", "Schedule: rate(1 minute)")
        + """
  Queue: {Type: AWS::SQS::Queue, DependsOn: [Alarm, Table], DeletionPolicy: Retain, UpdateReplacePolicy: Retain}
  Table: {Type: AWS::DynamoDB::Table}
  Alarm: {Type: AWS::CloudWatch::Alarm, Properties: {Dimensions: [{Name: QueueName, Value: !Ref Queue}]}}
  Policy: {Type: AWS::SQS::QueuePolicy, Properties: {Queues: [!Ref Queue]}}
"""
    )
    kept = left_out.keep(template.resources, emulator)  # type: ignore[arg-type]
    assert set(kept) == {"Queue", "Table"}
    assert kept["Queue"] == {"Type": "AWS::SQS::Queue", "DependsOn": ["Table"]}


def test_a_kept_resource_that_needs_one_left_out_is_refused(read: Read) -> None:
    template = read(
        "  Alarm: {Type: AWS::CloudWatch::Alarm}\n  Queue: {Type: AWS::SQS::Queue, Properties: {QueueName: !Ref Alarm}}\n"
    )
    with pytest.raises(BadTemplate, match="Queue refers to Alarm, which moto is not given: no metrics"):
        left_out.keep(template.resources, "moto")


def test_a_type_that_begins_alike_is_not_left_out() -> None:
    assert left_out.reason("AWS::EventSchemas::Registry", "moto") is None
    assert left_out.reason("AWS::Events::Rule", "moto") is not None
