"""A queue is named in fifteen places of the template. The one that is forgotten for a queue of one's own is named here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from ringfence.local.intrinsics import references
from ringfence.local.template import logical_id, read_template

from .conftest import TEMPLATE, Stack
from .policies import Request, allows

LAST_RESORT = {"deadLetterTargetArn": {"Fn::GetAtt": ["LastResortQueue", "Arn"]}, "maxReceiveCount": 1000}

Place = Callable[[Stack, str, str], Any]
"""Given the stack, the queue's name and its logical id: true if the place names the queue."""


def of_queue(stack: Stack, kind: str, attribute: str, queue: str) -> Mapping[str, Any]:
    """The resource of this type whose property ``attribute`` names the queue; empty if there is none."""
    found = [each for each in stack.of_type(kind).values() if queue in {name for name, _ in references(each.get(attribute))}]
    return found[0] if found else {}


def is_there(stack: Stack, name: str, queue: str) -> bool:
    resource = stack.resources.get(queue, {"Type": None, "Properties": {}})
    shape = {key: resource["Properties"].get(key) for key in ("QueueName", "RedrivePolicy", "SqsManagedSseEnabled")}
    wanted = {
        "QueueName": {"Fn::Sub": f"${{AWS::StackName}}-{name}"},
        "RedrivePolicy": LAST_RESORT,
        "SqsManagedSseEnabled": True,
    }
    return resource["Type"] == "AWS::SQS::Queue" and shape == wanted


def is_allowed(role: str, *actions: str) -> Place:
    return lambda stack, _name, queue: all(allows(stack, role, Request(f"sqs:{action}", queue)) for action in actions)


def is_drawn(title: str) -> Place:
    def drawn(stack: Stack, name: str, queue: str) -> bool:
        widget = next((text for text in dashboard(stack).split('"title": ') if text.startswith(f'"{title}"')), "")
        return f"${{{queue}.QueueName}}" in widget and f'"label": "{name}' in widget

    return drawn


def dashboard(stack: Stack) -> str:
    (found,) = stack.of_type("AWS::CloudWatch::Dashboard").values()
    return str(found["DashboardBody"]["Fn::Sub"])


def is_worked_on(stack: Stack, _name: str, queue: str) -> bool:
    mapping = of_queue(stack, "AWS::Lambda::EventSourceMapping", "EventSourceArn", queue)
    maximum = mapping.get("ScalingConfig", {}).get("MaximumConcurrency")
    return (
        bool(mapping)
        and logical_id(mapping["FunctionName"]) == "WorkerFunction"
        and maximum == {"Ref": f"{queue}MaximumConcurrency"}
    )


def is_watched(stack: Stack, _name: str, queue: str) -> bool:
    return bool(
        of_queue(stack, "AWS::CloudWatch::Alarm", "Dimensions", queue).get("MetricName") == "ApproximateAgeOfOldestMessage"
    )


def is_counted_in_flight(stack: Stack, _name: str, queue: str) -> bool:
    metrics = stack.properties("TicketsInFlightNearLimit")["Metrics"]
    watched = [
        dimension for each in metrics for dimension in each.get("MetricStat", {}).get("Metric", {}).get("Dimensions", ())
    ]
    return queue in [logical_id(dimension["Value"]) for dimension in watched]


PLACES: Mapping[str, Place] = {
    "the queue itself, with the last resort behind it": is_there,
    "a parameter <Queue>MaximumConcurrency": lambda stack, _name, queue: f"{queue}MaximumConcurrency" in stack.parameters,
    "a parameter <Queue>Engine": lambda stack, _name, queue: f"{queue}Engine" in stack.parameters,
    "a mapping of WorkerFunction, with its ScalingConfig": is_worked_on,
    "QueuesWantTls": lambda stack, _name, queue: {"Ref": queue} in stack.properties("QueuesWantTls")["Queues"],
    "GatewayRole": is_allowed("GatewayRole", "GetQueueAttributes"),
    "TicketsPolicy": is_allowed("RelayRole", "SendMessage"),
    "WorkerPolicy": is_allowed(
        "WorkerRole", "ReceiveMessage", "ChangeMessageVisibility", "DeleteMessage", "GetQueueAttributes", "GetQueueUrl"
    ),
    "an alarm <Queue>IsOld": is_watched,
    "TicketsInFlightNearLimit": is_counted_in_flight,
    "the dashboard's ages": is_drawn("How far each hop is behind"),
    "the dashboard's tickets waiting": is_drawn("Tickets waiting"),
}
"""The others are RINGFENCE_QUEUES, which the functions go by, and what its engine decides: see `test_redis`."""


def missed(stack: Stack, name: str, queue: str) -> list[str]:
    return [place for place, names in PLACES.items() if not names(stack, name, queue)]


def test_there_are_a_default_queue_and_another(stack: Stack) -> None:
    assert {"default", "priority"} <= stack.queues.keys()


def test_every_queue_is_named_in_every_place(stack: Stack) -> None:
    assert {name: missed(stack, name, queue) for name, queue in stack.queues.items()} == {name: [] for name in stack.queues}


def test_the_timers_send_wherever_the_relay_does(stack: Stack) -> None:
    for queue in stack.queues.values():
        assert allows(stack, "TimersRole", Request("sqs:SendMessage", queue))


# --- what is forgotten is named ------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def with_forgotten_queues(tmp_path_factory: pytest.TempPathFactory) -> Stack:
    """The template with a queue that is only told of, and with one that misses a place here and there."""
    folder = tmp_path_factory.mktemp("template")
    for code in ("functions", "layers"):
        (folder / code).symlink_to(TEMPLATE.parent / code)
    text = TEMPLATE.read_text()
    for there, instead in (
        ('{"default": ', '{"told": "${ToldQueue}", "default": '),
        (", !GetAtt PriorityQueue.Arn", ""),  # the first is the gateway's
        (", !Ref PriorityQueue", ""),
        ('"${PriorityQueue.QueueName}", {"label": "priority"}', '"${DefaultQueue.QueueName}", {"label": "priority"}'),
    ):
        assert there in text
        text = text.replace(there, instead, 1)
    (folder / "template.yaml").write_text(text)
    return Stack(read_template(folder / "template.yaml", {}, "eu-west-1"))


def test_a_queue_that_is_only_told_of_misses_everything_else(with_forgotten_queues: Stack) -> None:
    assert missed(with_forgotten_queues, "told", with_forgotten_queues.queues["told"]) == list(PLACES)


def test_a_place_that_was_forgotten_is_named(with_forgotten_queues: Stack) -> None:
    forgotten = ["QueuesWantTls", "GatewayRole", "the dashboard's tickets waiting"]

    assert missed(with_forgotten_queues, "priority", "PriorityQueue") == forgotten
    assert missed(with_forgotten_queues, "default", "DefaultQueue") == []
