"""What the created stack would run: functions with their environment, and the event sources that call them.

Of the event sources see `event_sources`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ringfence.local.endpoint import Kind
from ringfence.local.event_sources import (
    FRONT_DOORS,
    MAPPING,
    SCHEDULES,
    KinesisMapping,
    Route,
    Schedule,
    SqsMapping,
    mapping_of,
    routes_of,
    schedules_of,
    without_function,
)
from ringfence.local.intrinsics import references
from ringfence.local.left_out import reason
from ringfence.local.stack import Stack
from ringfence.local.template import Template, logical_id


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionPlan:
    """A function as the template has it."""

    name: str
    physical_name: str
    arn: str
    handler: str
    folder: Path
    layers: Sequence[Path]
    timeout_seconds: float
    memory_megabytes: int
    reserved_concurrency: int | None
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Deployment:
    """All of it."""

    functions: Mapping[str, FunctionPlan]
    queues: Sequence[SqsMapping]
    streams: Sequence[KinesisMapping]
    schedules: Sequence[Schedule]
    routes: Sequence[Route]
    front_doors: frozenset[str] = field(default_factory=frozenset)
    """Logical ids of what would be the API's address on AWS."""


def wanted_of(template: Template, emulator: Kind) -> list[Any]:
    """The parts of the template that `plan` will fill; `stack.create_stack` asks the emulator about them."""
    functions = [
        {
            key: properties[key]
            for key in ("Environment", "Timeout", "MemorySize", "ReservedConcurrentExecutions")
            if key in properties
        }
        for resource in template.of_type("AWS::Lambda::Function").values()
        for properties in (resource["Properties"],)
    ]
    ids = [{"Ref": name} for name in template.function_ids] + [{"Fn::GetAtt": [name, "Arn"]} for name in template.function_ids]
    outputs = [output["Value"] for output in template.outputs.values() if not _names_left_out(output, template, emulator)]
    mappings = [without_function(each["Properties"]) for each in template.of_type(MAPPING, *SCHEDULES).values()]
    return [*functions, *ids, *mappings, *outputs]


def _names_left_out(value: Any, template: Template, emulator: Kind) -> bool:
    named = [template.resources[each] for each, _ in references(value) if each in template.resources]
    return any(reason(resource["Type"], emulator) is not None for resource in named)


def outputs_of(template: Template, stack: Stack, deployment: Deployment, api_url: str) -> dict[str, str]:
    """The stack's outputs. Those that name the front door name ours; those that name something else left out are absent."""
    outputs = {}
    for name, output in template.outputs.items():
        named = {each for each, _ in references(output["Value"])}
        if named & deployment.front_doors:
            outputs[name] = api_url
        elif named <= set(stack.resources) | {each for each, _ in stack.filling.values}:
            outputs[name] = str(stack.fill(output["Value"]))
    return outputs


def plan(template: Template, stack: Stack) -> Deployment:
    """Everything that is to run. Raises `BadTemplate` for an event source that cannot be imitated."""
    functions = {
        name: _function(name, resource["Properties"], template, stack)
        for name, resource in template.of_type("AWS::Lambda::Function").items()
    }
    queues: list[SqsMapping] = []
    streams: list[KinesisMapping] = []
    for name, resource in template.of_type(MAPPING).items():
        mapping = mapping_of(name, resource["Properties"], stack)
        if isinstance(mapping, SqsMapping):
            queues.append(mapping)
        elif mapping is not None:
            streams.append(mapping)
    schedules = [
        schedule
        for name, resource in template.of_type(*SCHEDULES).items()
        for schedule in schedules_of(name, resource["Properties"], stack)
    ]
    doors = frozenset(template.of_type(*FRONT_DOORS))
    return Deployment(functions, queues, streams, schedules, routes_of(template), doors)


def _function(name: str, properties: Mapping[str, Any], template: Template, stack: Stack) -> FunctionPlan:
    layers = [
        template.code[layer] for each in properties.get("Layers", ()) if (layer := logical_id(each) or "") in template.code
    ]
    variables = stack.fill(properties.get("Environment", {}).get("Variables", {}))
    reserved = stack.fill(properties.get("ReservedConcurrentExecutions"))
    return FunctionPlan(
        name=name,
        physical_name=stack.fill({"Ref": name}),
        arn=stack.fill({"Fn::GetAtt": [name, "Arn"]}),
        handler=properties["Handler"],
        folder=template.code[name],
        layers=layers,
        # The defaults of Lambda itself.
        timeout_seconds=float(stack.fill(properties.get("Timeout", 3))),
        memory_megabytes=int(stack.fill(properties.get("MemorySize", 128))),
        reserved_concurrency=None if reserved is None else int(reserved),
        environment={key: str(value) for key, value in variables.items()},
    )
