"""The event sources of a template: mappings of queues and streams, schedules, and the routes of its front doors.

Read from the translated template, so that SAM's ``Events``, explicit mappings, routes and URLs are all the same to us.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ringfence.local.intrinsics import references
from ringfence.local.stack import Stack
from ringfence.local.template import BadTemplate, Template, logical_id

MAPPING = "AWS::Lambda::EventSourceMapping"
SCHEDULES = ("AWS::Events::Rule", "AWS::Scheduler::Schedule")
FRONT_DOORS = ("AWS::Lambda::Url", "AWS::ApiGatewayV2::Api", "AWS::ApiGatewayV2::Integration", "AWS::ApiGatewayV2::Route")
_REPORTS = "ReportBatchItemFailures"

_COMMON = {"BatchSize", "Enabled", "EventSourceArn", "FunctionName", "FunctionResponseTypes", "MaximumBatchingWindowInSeconds"}
_WITHOUT_EFFECT = {"KmsKeyArn", "MetricsConfig", "ParallelizationFactor", "Tags"}
"""Properties that change nothing here. One batch per shard at a time keeps every order that a parallelization factor keeps."""
_OF_SQS = _COMMON | _WITHOUT_EFFECT | {"ScalingConfig"}
_OF_KINESIS = (
    _COMMON
    | _WITHOUT_EFFECT
    | {
        "BisectBatchOnFunctionError",
        "DestinationConfig",
        "MaximumRecordAgeInSeconds",
        "MaximumRetryAttempts",
        "StartingPosition",
    }
)

_ANY_METHOD = ("ANY", "X-AMAZON-APIGATEWAY-ANY-METHOD")


@dataclass(frozen=True, slots=True, kw_only=True)
class SqsMapping:
    """https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-configure.html"""

    name: str
    function: str
    arn: str
    batch_size: int = 10
    window_seconds: float = 0.0
    maximum_concurrency: int | None = None
    reports_failures: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class KinesisMapping:
    """https://docs.aws.amazon.com/lambda/latest/dg/services-kinesis-parameters.html"""

    name: str
    function: str
    arn: str
    starting_position: str
    batch_size: int = 100
    window_seconds: float = 0.0
    reports_failures: bool = False
    bisects: bool = False
    maximum_retries: int = -1
    """-1: until the records are too old."""
    maximum_age_seconds: float = -1
    """-1: no record is too old."""
    failed_batches_bucket: str | None = None


@dataclass(frozen=True, slots=True)
class Schedule:
    name: str
    function: str
    expression: str
    input: Any = None
    """What the function is sent instead of a scheduled event, if the template says so."""


@dataclass(frozen=True, slots=True)
class Route:
    """``method`` and ``path`` of a request (``ANY``, ``/{proxy+}``, or ``$default`` for both) → the function that answers."""

    method: str
    path: str
    function: str


def mapping_of(name: str, raw: Mapping[str, Any], stack: Stack) -> SqsMapping | KinesisMapping | None:
    function = _called(raw["FunctionName"], name)
    properties = stack.fill(without_function(raw))
    if str(properties.get("Enabled", True)).lower() == "false":
        return None
    arn = properties.get("EventSourceArn", "")
    service = arn.split(":")[2] if arn.count(":") >= 5 else arn
    known = {"sqs": _OF_SQS, "kinesis": _OF_KINESIS}.get(service)
    if known is None:
        raise BadTemplate(f"{name} reads from {service or 'nothing'}, which ringfence dev cannot imitate yet")
    if unknown := sorted(set(raw) - known):
        raise BadTemplate(f"{name} has {', '.join(unknown)}, which ringfence dev cannot imitate")
    shared: dict[str, Any] = {
        "name": name,
        "function": function,
        "arn": arn,
        "window_seconds": float(properties.get("MaximumBatchingWindowInSeconds", 0)),
        "reports_failures": _REPORTS in properties.get("FunctionResponseTypes", ()),
    }
    if service == "sqs":
        concurrency = properties.get("ScalingConfig", {}).get("MaximumConcurrency")
        return SqsMapping(
            **shared,
            batch_size=int(properties.get("BatchSize", 10)),
            maximum_concurrency=None if concurrency is None else int(concurrency),
        )
    return KinesisMapping(
        **shared,
        batch_size=int(properties.get("BatchSize", 100)),
        starting_position=properties["StartingPosition"],
        bisects=str(properties.get("BisectBatchOnFunctionError", False)).lower() == "true",
        maximum_retries=int(properties.get("MaximumRetryAttempts", -1)),
        maximum_age_seconds=float(properties.get("MaximumRecordAgeInSeconds", -1)),
        failed_batches_bucket=_bucket(name, properties.get("DestinationConfig", {}).get("OnFailure", {}).get("Destination")),
    )


def without_function(properties: Mapping[str, Any]) -> dict[str, Any]:
    """Which function is called is known by its logical id, not by the emulator's."""
    return {key: value for key, value in properties.items() if key not in ("FunctionName", "Targets", "Target")}


def _called(value: Any, name: str) -> str:
    function = logical_id(value)
    if function is None:
        raise BadTemplate(f"{name} calls {value!r}; ringfence dev only knows functions of the same template")
    return function


def _bucket(name: str, destination: str | None) -> str | None:
    if destination is None:
        return None
    if not destination.startswith("arn:aws:s3:::"):
        raise BadTemplate(f"{name} sends failed batches to {destination}; ringfence dev can only put them into S3")
    return destination.removeprefix("arn:aws:s3:::")


def schedules_of(name: str, properties: Mapping[str, Any], stack: Stack) -> list[Schedule]:
    if properties.get("State") == "DISABLED":
        return []
    expression = stack.fill(properties.get("ScheduleExpression"))
    if not expression:
        raise BadTemplate(f"{name} is a rule without a schedule, which ringfence dev cannot imitate")
    targets = properties.get("Targets") or [properties["Target"]]
    return [Schedule(name, _called(target["Arn"], name), expression, target.get("Input")) for target in targets]


def routes_of(template: Template) -> list[Route]:
    """Of function URLs, of routes with their integrations, and of APIs whose body says it all (as SAM writes them)."""
    routes = [
        Route("ANY", "$default", _called(resource["Properties"]["TargetFunctionArn"], name))
        for name, resource in template.of_type("AWS::Lambda::Url").items()
    ]
    integrations = {
        name: _function_in(resource["Properties"].get("IntegrationUri"), template, name)
        for name, resource in template.of_type("AWS::ApiGatewayV2::Integration").items()
    }
    for name, resource in template.of_type("AWS::ApiGatewayV2::Route").items():
        key, target = resource["Properties"]["RouteKey"], resource["Properties"].get("Target")
        found = [each for each, _ in references(target) if each in integrations]
        if len(found) != 1:
            raise BadTemplate(f"{name} leads to no integration of this template: {target!r}")
        method, _, path = key.rpartition(" ")
        routes.append(Route(method or "ANY", path, integrations[found[0]]))
    for name, resource in template.of_type("AWS::ApiGatewayV2::Api").items():
        for path, methods in resource["Properties"].get("Body", {}).get("paths", {}).items():
            for method, body in methods.items():
                uri = body.get("x-amazon-apigateway-integration", {}).get("uri")
                verb = "ANY" if method.upper() in _ANY_METHOD else method.upper()
                routes.append(Route(verb, "$default" if path == "/$default" else path, _function_in(uri, template, name)))
    return routes


def _function_in(uri: Any, template: Template, name: str) -> str:
    """The function that an integration's URI names: its ARN, or the long form that holds it."""
    found = {each for each, _ in references(uri) if each in template.function_ids}
    if len(found) != 1:
        raise BadTemplate(f"{name} calls {uri!r}; ringfence dev only knows functions of the same template")
    return found.pop()
