"""Queues on Redis: what a parameter moves there, who is told, and who can reach it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ringfence.local.intrinsics import Filling, references
from ringfence.local.template import BadTemplate, logical_id
from ringfence.redis.address import parse

from .conftest import Stack, rendered

REDIS_URL = "rediss://:secret@redis.example:6379"
QUEUES = dict(rendered(()).queues)


def on_redis(queue: str, url: str = REDIS_URL, **more: str) -> Stack:
    """The stack with this queue, by its logical id, on Redis."""
    return rendered((("RedisUrl", url), (f"{queue}Engine", "redis"), *more.items()))


def told(stack: Stack) -> dict[str, str]:
    """RINGFENCE_QUEUES as the relay reads it; every resource's physical id is its logical one."""
    variable = stack.properties("RelayFunction")["Environment"]["Variables"]["RINGFENCE_QUEUES"]
    values: dict[Any, str] = {(name, attribute): name for name, attribute in references(variable)}
    values |= {(name, None): value for name, value in {**stack.parameters, "AWS::StackName": "shop"}.items()}
    queues: dict[str, str] = json.loads(Filling(values).fill(variable))
    return queues


@pytest.mark.parametrize(("name", "queue"), QUEUES.items())
def test_a_queue_goes_to_redis_alone_and_no_lambda_function_is_called_for_it(name: str, queue: str) -> None:
    stack = on_redis(queue)
    sources = [each["EventSourceArn"] for each in stack.of_type("AWS::Lambda::EventSourceMapping").values()]

    assert told(stack) == {**QUEUES, name: f"{REDIS_URL}/shop-{name}"}
    assert {logical_id(source) for source in sources} == {"LogStream", *(set(QUEUES.values()) - {queue})}


@pytest.mark.parametrize(("name", "queue"), QUEUES.items())
def test_a_queue_on_redis_keeps_what_was_in_its_queue_on_sqs(name: str, queue: str) -> None:
    assert on_redis(queue).resources[queue] == rendered(()).resources[queue]


@pytest.mark.parametrize(("mode", "cluster"), [("server", False), ("cluster", True)])
@pytest.mark.parametrize("url", [REDIS_URL, "redis://10.0.0.7", "rediss://user:%23@h:1", "redis://[::1]:6379"])
def test_the_functions_find_the_redis_that_the_parameters_name(url: str, mode: str, cluster: bool) -> None:
    address, given = parse(told(on_redis("DefaultQueue", url, RedisMode=mode))["default"]), parse(f"{url}/q")

    assert (address.name, address.server.cluster) == ("shop-default", cluster)
    assert (address.server.host, address.server.port, address.server.password) == (
        given.server.host,
        given.server.port,
        given.server.password,
    )


@pytest.mark.parametrize("queue", QUEUES.values())
def test_a_queue_without_a_redis_to_go_to_is_refused(queue: str) -> None:
    with pytest.raises(BadTemplate, match="RedisUrl is empty"):
        on_redis(queue, "")


@pytest.mark.parametrize(
    "url", ["redis://", "http://h", "redis://h?db=1", "redis://h/", "redis://h#1", 'redis://:"@h', "h:6379"]
)
def test_a_url_that_no_queue_could_stand_behind_is_refused_without_being_shown(url: str) -> None:
    with pytest.raises(BadTemplate) as refused:
        on_redis("DefaultQueue", url)
    assert "RedisUrl" in str(refused.value)
    assert f" {url} " not in str(refused.value)


@pytest.mark.parametrize(
    "url",
    [
        "rediss://:{{resolve:secretsmanager:prod/redis:SecretString:password}}@h:6379",
        "rediss://:{{resolve:secretsmanager:arn:aws:secretsmanager:eu-west-1:123456789012:secret:redis-a1B2c3}}@h:6379",
    ],
)
def test_a_password_may_be_secrets_managers(url: str) -> None:
    assert told(on_redis("DefaultQueue", url))["default"] == f"{url}/shop-default"


def test_the_password_is_not_shown(stack: Stack) -> None:
    assert stack.template.declared["RedisUrl"]["NoEcho"] is True
    assert "RedisUrl" not in {name for output in stack.template.outputs.values() for name, _ in references(output["Value"])}


def test_no_function_is_in_a_vpc_unless_asked(stack: Stack) -> None:
    assert not any("VpcConfig" in function for function in stack.of_type("AWS::Lambda::Function").values())
    assert "NetworkPolicy" not in stack.resources


def test_the_functions_that_call_redis_are_in_the_subnets_and_jobs_are_not() -> None:
    stack = rendered((("SubnetIds", "subnet-1,subnet-2"), ("SecurityGroupIds", "sg-1")))
    filling = Filling({(name, None): value for name, value in stack.parameters.items()})
    functions = stack.of_type("AWS::Lambda::Function")
    where = {name: filling.fill(function.get("VpcConfig")) for name, function in functions.items()}

    subnets = {"SubnetIds": ["subnet-1", "subnet-2"], "SecurityGroupIds": ["sg-1"]}
    assert where == {**dict.fromkeys(("GatewayFunction", "RelayFunction", "TimersFunction"), subnets), "WorkerFunction": None}


@pytest.mark.parametrize(
    ("parameter", "value"), [("SubnetIds", "subnet-1"), ("SecurityGroupIds", "sg-1"), ("SubnetIds", "subnet-1, subnet-2")]
)
def test_half_a_network_is_refused(parameter: str, value: str) -> None:
    with pytest.raises(BadTemplate, match=parameter):
        rendered(((parameter, value),))


def test_a_worker_outside_lambda_can_be_given_what_the_function_has(any_stack: Stack) -> None:
    """But for its logs and traces, which are Lambda's."""
    named = {name for name, _ in references(any_stack.template.outputs["WorkerPolicies"]["Value"])}
    carried = {logical_id(arn) for arn in any_stack.properties("WorkerRole")["ManagedPolicyArns"]}
    (own,) = any_stack.properties("WorkerRole")["Policies"]
    (logging,) = own["PolicyDocument"]["Statement"]

    assert named == carried - {"TracingPolicy"}
    assert all(action.startswith("logs:") for action in logging["Action"])
