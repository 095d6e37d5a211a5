"""template.yaml as CloudFormation would see it, for every combination of parameters that decides something."""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import pytest

from ringfence.local.intrinsics import Filling, Reference
from ringfence.local.template import Template, logical_id, read_template

OURS = Path(__file__).parents[3] / "template.yaml"
TEMPLATE = Path(os.environ.get("TEMPLATE_UNDER_TEST", OURS))
"""`test_recipes` has a copy with additions looked at in the place of ours."""

DECIDING: Mapping[str, tuple[str, ...]] = {
    "FrontDoor": ("http-api", "function-url"),
    "LogMode": ("PROVISIONED", "ON_DEMAND"),
    "ExampleTables": ("true", "false"),
    "Alarms": ("true", "false"),
}
"""Resources come and go with these."""

ALONGSIDE: Mapping[str, tuple[str, ...]] = {
    "LogRetentionHours": ("24", "48", "72", "120"),
    "WorkerTimeoutSeconds": ("900", "60"),
    "Architecture": ("arm64", "x86_64"),
    "PointInTimeRecovery": ("true", "false"),
    "EndpointUrl": ("", "http://127.0.0.1:4566"),
    "AlarmTopic": ("", "arn:aws:sns:eu-west-1:123456789012:alarms"),
    "GatewayReservedConcurrency": ("-1", "5"),
    "RelayReservedConcurrency": ("-1", "5"),
    "WorkerReservedConcurrency": ("-1", "5"),
    "TimersReservedConcurrency": ("-1", "5"),
    "DefaultQueueEngine": ("sqs", "redis"),
    "PriorityQueueEngine": ("sqs", "redis"),
    "RedisUrl": ("rediss://:some%20secret@redis.example:6379", "redis://10.0.0.7"),
    "RedisMode": ("server", "cluster"),
    "SubnetIds": ("", "subnet-0a1b,subnet-2c3d"),
}
"""These decide one value each: every one of theirs occurs."""


@dataclass(frozen=True)
class Stack:
    """The template with its conditions decided."""

    template: Template

    @property
    def parameters(self) -> Mapping[str, str]:
        return self.template.parameters

    @property
    def resources(self) -> Mapping[str, Mapping[str, Any]]:
        return self.template.resources

    def properties(self, logical_id: str) -> Mapping[str, Any]:
        properties: Mapping[str, Any] = self.resources[logical_id]["Properties"]
        return properties

    def of_type(self, *types: str) -> dict[str, Mapping[str, Any]]:
        """Logical id → properties."""
        return {name: resource["Properties"] for name, resource in self.template.of_type(*types).items()}

    @cached_property
    def queues(self) -> Mapping[str, str]:
        """Name → logical id on SQS (it is there even while it is on Redis), of every queue that the functions are told of."""
        return {name: logical_id(where) or f"{name.capitalize()}Queue" for name, where in self._told.items()}

    @cached_property
    def queues_on_sqs(self) -> Mapping[str, str]:
        """Those of `queues` that are on SQS."""
        return {name: queue for name, queue in self.queues.items() if logical_id(self._told[name])}

    @cached_property
    def _told(self) -> Mapping[str, Any]:
        """Name → a reference to the queue, or its URL on Redis."""
        text, values = self.properties("RelayFunction")["Environment"]["Variables"]["RINGFENCE_QUEUES"]["Fn::Sub"]
        named = {name: value.removeprefix("${").removesuffix("}") for name, value in json.loads(text).items()}
        return {name: values.get(key, {"Ref": key}) for name, key in named.items()}

    @cached_property
    def tables(self) -> Mapping[str, str]:
        """What jobs call it → logical id, of every table that the worker is told of."""
        told = self.properties("WorkerFunction")["Environment"]["Variables"]["RINGFENCE_TABLES"]
        named = json.loads(told if isinstance(told, str) else told["Fn::Sub"])
        return {name: value.removeprefix("${").removesuffix("}") for name, value in named.items()}

    def number(self, value: Any) -> int:
        """A property that may be the value of a parameter."""
        given: dict[Reference, str] = {(name, None): value for name, value in self.parameters.items()}
        return int(Filling(given).fill(value))


@cache
def rendered(parameters: tuple[tuple[str, str], ...]) -> Stack:
    return Stack(read_template(TEMPLATE, dict(parameters), "eu-west-1"))


def combinations() -> Iterator[tuple[tuple[str, str], ...]]:
    """Eight of the sixteen: whichever three of `DECIDING` are looked at, all their combinations occur, the fourth being decided
    by the others. The values of `ALONGSIDE` change with each, or with every second or fourth."""
    *free, last = DECIDING.values()
    for count, places in enumerate(itertools.product(range(2), repeat=len(free))):
        values = [options[place] for options, place in zip(free, places, strict=True)] + [last[sum(places) % 2]]
        alongside = {
            name: options[(count if len(options) > 2 else count >> place % 3) % len(options)]
            for place, (name, options) in enumerate(ALONGSIDE.items())
        }
        alongside["SecurityGroupIds"] = "sg-0a1b,sg-2c3d" if alongside["SubnetIds"] else ""
        yield tuple({**dict(zip(DECIDING, values, strict=True)), **alongside}.items())


TRIED = list(combinations()) if TEMPLATE == OURS else [*combinations()][::7]
"""Of a copy the first and the last: each option of `DECIDING` and its opposite."""


@pytest.fixture(params=TRIED, ids=lambda parameters: "-".join(value for _, value in parameters[: len(DECIDING)]))
def any_stack(request: pytest.FixtureRequest) -> Stack:
    """The stack of one combination of parameters after another."""
    return rendered(request.param)


@pytest.fixture
def stack() -> Stack:
    """The stack when no parameter is given."""
    return rendered(())


@pytest.fixture
def function_url_stack() -> Stack:
    return rendered((("FrontDoor", "function-url"),))
