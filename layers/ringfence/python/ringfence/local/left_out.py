"""What of a template is not given to an emulator, and why. What is left must all be created, or the stack has failed."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from ringfence.local.endpoint import Kind
from ringfence.local.intrinsics import references
from ringfence.local.template import BadTemplate

ALL: Collection[Kind] = ("ministack", "moto", "other")


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A type of resource, or all types that begin so, which some emulators are not given."""

    type: str
    why: str
    emulators: Collection[Kind] = ALL

    def covers(self, resource_type: str, emulator: Kind) -> bool:
        return emulator in self.emulators and (resource_type == self.type or resource_type.startswith(f"{self.type}::"))


TABLE = (
    # The functions and their event sources are ours, so that they are the same on every emulator.
    LeftOut(
        "AWS::Lambda::EventSourceMapping",
        "moto's fire inside SendMessage and may delete a message that no code saw; MiniStack's drops Kinesis records that the "
        "function reported as failed; LocalStack's do not bisect",
    ),
    LeftOut("AWS::Events", "schedules are ours: MiniStack would run the function too"),
    LeftOut("AWS::Scheduler", "schedules are ours; moto skips them silently"),
    LeftOut(
        "AWS::ApiGatewayV2",
        "the HTTP server is ours: moto skips it silently, MiniStack and LocalStack create it without routes",
    ),
    LeftOut("AWS::Lambda", "functions and layers run here, from their folders: LocalStack would need Docker for them"),
    # Policies that refuse plain HTTP would lock us out, where an emulator enforces them.
    LeftOut("AWS::SQS::QueuePolicy", "it asks for TLS, which no emulator on loopback has; moto skips it silently"),
    LeftOut("AWS::S3::BucketPolicy", "it asks for TLS, which no emulator on loopback has"),
    LeftOut("AWS::CloudWatch", "no metrics are kept that an alarm or dashboard could show; moto skips them silently"),
    LeftOut("AWS::ApplicationInsights", "no emulator has it"),
)


def reason(resource_type: str, emulator: Kind) -> str | None:
    """Why the emulator is not given resources of this type; None if it is."""
    return next((row.why for row in TABLE if row.covers(resource_type, emulator)), None)


def keep(resources: Mapping[str, Mapping[str, Any]], emulator: Kind) -> dict[str, Mapping[str, Any]]:
    """The resources that the emulator is given, with no ``DependsOn`` on one that it is not, and none that outlives its stack.

    Raises `BadTemplate` when one of them refers to one that is left out: the emulator could not know it.
    """
    kept = {name: resource for name, resource in resources.items() if reason(resource["Type"], emulator) is None}
    for name, resource in kept.items():
        for missing in {target for target, _ in references(resource)} & (set(resources) - set(kept)):
            why = reason(resources[missing]["Type"], emulator)
            raise BadTemplate(f"{name} refers to {missing}, which {emulator} is not given: {why}")
    return {name: _given(resource, kept) for name, resource in kept.items()}


def _given(resource: Mapping[str, Any], kept: Collection[str]) -> Mapping[str, Any]:
    given = {key: part for key, part in resource.items() if key not in ("DeletionPolicy", "UpdateReplacePolicy")}
    if "DependsOn" in given:
        given["DependsOn"] = [name for name in given["DependsOn"] if name in kept]
    return given
