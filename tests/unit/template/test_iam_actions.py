"""Who may do what: every action of every function, and on which resources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from ringfence.local.intrinsics import intrinsic
from ringfence.local.template import logical_id

from .conftest import Stack

Grants = Mapping[str, set[str]]
"""Action → resources: the logical id, and what follows the resource's ARN."""

QUEUES = {"DefaultQueue", "PriorityQueue"}
EXAMPLE_TABLES = {"UsersTable", "ProfilesTable", "AccountsTable", "ChargesTable", "ModulesTable", "PackageTotalsTable"}
TRACING: Grants = {"xray:PutTelemetryRecords": {"*"}, "xray:PutTraceSegments": {"*"}}

ROLES: Mapping[str, Grants] = {
    "GatewayRole": {
        **TRACING,
        "logs:CreateLogStream": {"GatewayLogs"},
        "logs:PutLogEvents": {"GatewayLogs"},
        "dynamodb:BatchGetItem": {"LedgerTable"},
        "dynamodb:BatchWriteItem": {"LedgerTable"},
        "dynamodb:GetItem": {"LedgerTable"},
        "dynamodb:PutItem": {"LedgerTable"},
        "dynamodb:Query": {"LedgerTable/index/listing"},
        "dynamodb:UpdateItem": {"LedgerTable"},
        "kinesis:PutRecords": {"LogStream"},
        "sqs:GetQueueAttributes": QUEUES,
    },
    "RelayRole": {
        **TRACING,
        "logs:CreateLogStream": {"RelayLogs"},
        "logs:PutLogEvents": {"RelayLogs"},
        "dynamodb:GetItem": {"LedgerTable"},
        "dynamodb:PutItem": {"LedgerTable"},
        "dynamodb:UpdateItem": {"LedgerTable"},
        "kinesis:DescribeStream": {"LogStream"},
        "kinesis:DescribeStreamSummary": {"LogStream"},
        "kinesis:GetRecords": {"LogStream"},
        "kinesis:GetShardIterator": {"LogStream"},
        "kinesis:ListShards": {"LogStream"},
        "s3:ListBucket": {"Bucket"},
        "s3:PutObject": {"Bucket/aws/lambda/*"},
        "sqs:SendMessage": QUEUES,
    },
    "WorkerRole": {
        **TRACING,
        "logs:CreateLogStream": {"WorkerLogs"},
        "logs:PutLogEvents": {"WorkerLogs"},
        "dynamodb:ConditionCheckItem": {"LedgerTable", *EXAMPLE_TABLES},
        "dynamodb:DeleteItem": EXAMPLE_TABLES,
        "dynamodb:GetItem": {"LedgerTable", *EXAMPLE_TABLES},
        "dynamodb:PutItem": {"LedgerTable", *EXAMPLE_TABLES},
        "dynamodb:UpdateItem": {"LedgerTable", *EXAMPLE_TABLES},
        "s3:GetObject": {"Bucket/*"},
        "s3:ListBucket": {"Bucket"},
        "sqs:ChangeMessageVisibility": QUEUES,
        "sqs:DeleteMessage": QUEUES,
        "sqs:GetQueueAttributes": QUEUES,
        "sqs:ReceiveMessage": QUEUES,
    },
    "TimersRole": {
        **TRACING,
        "logs:CreateLogStream": {"TimersLogs"},
        "logs:PutLogEvents": {"TimersLogs"},
        "dynamodb:GetItem": {"LedgerTable"},
        "dynamodb:PutItem": {"LedgerTable"},
        "dynamodb:Query": {"LedgerTable/index/due"},
        "dynamodb:UpdateItem": {"LedgerTable"},
        "sqs:DeleteMessage": {"LastResortQueue"},
        "sqs:ReceiveMessage": {"LastResortQueue"},
        "sqs:SendMessage": QUEUES,
    },
}


@pytest.mark.parametrize("role", ROLES)
def test_a_role_grants_exactly_these_actions_on_exactly_these_resources(any_stack: Stack, role: str) -> None:
    without = EXAMPLE_TABLES if any_stack.parameters["ExampleTables"] == "false" else set()
    expected = {action: resources - without for action, resources in ROLES[role].items()}

    assert granted(any_stack, role) == {action: resources for action, resources in expected.items() if resources}


def test_there_is_one_role_for_each_function_and_no_other(any_stack: Stack) -> None:
    functions = any_stack.of_type("AWS::Lambda::Function")
    roles = {name: logical_id(function["Role"]) for name, function in functions.items()}

    assert roles == {f"{part}Function": f"{part}Role" for part in ("Gateway", "Relay", "Worker", "Timers")}
    assert set(any_stack.of_type("AWS::IAM::Role")) == set(ROLES)
    assert not any_stack.of_type("AWS::IAM::Policy")


def test_only_lambda_may_assume_a_role(any_stack: Stack) -> None:
    allow_lambda = {"Effect": "Allow", "Principal": {"Service": "lambda.amazonaws.com"}, "Action": "sts:AssumeRole"}
    for role in any_stack.of_type("AWS::IAM::Role").values():
        assert role["AssumeRolePolicyDocument"]["Statement"] == [allow_lambda]


def test_a_function_logs_to_the_group_that_its_role_may_write_to(any_stack: Stack) -> None:
    for part in ("Gateway", "Relay", "Worker", "Timers"):
        assert any_stack.properties(f"{part}Function")["LoggingConfig"] == {"LogGroup": {"Ref": f"{part}Logs"}}
        assert any_stack.properties(f"{part}Logs")["RetentionInDays"] == {"Ref": "FunctionLogDays"}


def granted(stack: Stack, role: str) -> dict[str, set[str]]:
    grants: dict[str, set[str]] = {}
    for statement in statements(stack, role):
        assert statement["Effect"] == "Allow"
        assert not statement.keys() - {"Effect", "Action", "Resource"}
        for action in listed(statement["Action"]):
            assert "*" not in action
            resources = {written(stack, resource) for resource in listed(statement["Resource"])}
            assert not resources & grants.get(action, set()), f"{action} is granted twice"
            grants.setdefault(action, set()).update(resources)
    return grants


def statements(stack: Stack, role: str) -> Iterator[Mapping[str, Any]]:
    properties = stack.properties(role)
    for policy in properties["Policies"]:
        yield from policy["PolicyDocument"]["Statement"]
    for managed in properties["ManagedPolicyArns"]:
        # A policy of this very template, not one that AWS manages and may widen.
        yield from stack.properties(str(logical_id(managed)))["PolicyDocument"]["Statement"]


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def written(stack: Stack, resource: Any) -> str:
    match intrinsic(resource):
        case ("Fn::GetAtt", [str(name), "Arn"]):
            beyond = ""
        case ("Fn::Sub", str(text)):
            name, _, beyond = text.removeprefix("${").partition(".Arn}")
        case _:
            assert resource == "*", resource
            return "*"
    assert name in stack.resources
    return name + beyond
