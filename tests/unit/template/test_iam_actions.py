"""Who may do what: every action of every function, and on which resources."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from ringfence.aws import queue_settings
from ringfence.aws.keys import DynamoKeys
from ringfence.aws.quarantine import DynamoQuarantine
from ringfence.ids import RandomIds
from ringfence.local.demo import sources
from ringfence.local.template import logical_id
from ringfence.ports import ApiKey, SetAside

from .conftest import Stack, rendered
from .policies import LEADING_KEYS, PREFIX, SOURCE_FUNCTION, Request, allows, listed, statements, written

Grants = Mapping[str, set[str]]
"""Action → resources: the logical id, and what follows the resource's ARN."""

QUEUES = {"every queue"}
TABLES = {"every table of the jobs"}
TRACING: Grants = {"xray:PutTelemetryRecords": {"*"}, "xray:PutTraceSegments": {"*"}}

INTERFACES = {"arn:${AWS::Partition}:ec2:${AWS::Region}:*:*/*"}
NETWORK: Grants = {
    "ec2:AssignPrivateIpAddresses": INTERFACES,
    "ec2:CreateNetworkInterface": INTERFACES,
    "ec2:DeleteNetworkInterface": INTERFACES,
    "ec2:DescribeNetworkInterfaces": {"*"},
    "ec2:DescribeSubnets": {"*"},
    "ec2:UnassignPrivateIpAddresses": INTERFACES,
}
IN_SUBNETS = {"GatewayRole", "RelayRole", "TimersRole"}
"""The roles of the functions that call Redis."""

ROLES: Mapping[str, Grants] = {
    "GatewayRole": {
        **TRACING,
        "logs:CreateLogStream": {"GatewayLogs"},
        "logs:PutLogEvents": {"GatewayLogs"},
        "dynamodb:BatchGetItem": {"LedgerTable"},
        "dynamodb:GetItem": {"LedgerTable"},
        "dynamodb:PutItem": {"LedgerTable"},
        "dynamodb:Query": {"LedgerTable/index/listing", "LedgerTable/index/dead"},
        "dynamodb:UpdateItem": {"LedgerTable"},
        "kinesis:PutRecords": {"LogStream"},
        "sqs:GetQueueAttributes": QUEUES,
    },
    "RelayRole": {
        **TRACING,
        "logs:CreateLogStream": {"RelayLogs"},
        "logs:PutLogEvents": {"RelayLogs"},
        "dynamodb:BatchGetItem": {"LedgerTable"},
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
        "sqs:GetQueueAttributes": QUEUES,
        "sqs:SendMessage": QUEUES,
    },
    "WorkerRole": {
        **TRACING,
        "logs:CreateLogStream": {"WorkerLogs"},
        "logs:PutLogEvents": {"WorkerLogs"},
        "dynamodb:BatchGetItem": {"LedgerTable"},
        "dynamodb:ConditionCheckItem": {"LedgerTable", *TABLES},
        "dynamodb:DeleteItem": TABLES,
        "dynamodb:GetItem": {"LedgerTable", *TABLES},
        "dynamodb:PutItem": {"LedgerTable", *TABLES},
        "dynamodb:UpdateItem": {"LedgerTable", *TABLES},
        "s3:GetObject": {"Bucket/modules/*"},
        "s3:ListBucket": {"Bucket"},
        "sqs:ChangeMessageVisibility": QUEUES,
        "sqs:DeleteMessage": QUEUES,
        "sqs:GetQueueAttributes": QUEUES,
        "sqs:GetQueueUrl": QUEUES,
        "sqs:ReceiveMessage": QUEUES,
        "sqs:SendMessage": QUEUES,
    },
    "TimersRole": {
        **TRACING,
        "logs:CreateLogStream": {"TimersLogs"},
        "logs:PutLogEvents": {"TimersLogs"},
        "dynamodb:BatchGetItem": {"LedgerTable"},
        "dynamodb:DeleteItem": {"LedgerTable"},
        "dynamodb:GetItem": {"LedgerTable"},
        "dynamodb:PutItem": {"LedgerTable"},
        "dynamodb:Query": {"LedgerTable", "LedgerTable/index/due"},
        "dynamodb:Scan": {"LedgerTable"},
        "dynamodb:UpdateItem": {"LedgerTable"},
        "sqs:DeleteMessage": {"LastResortQueue"},
        "sqs:GetQueueAttributes": QUEUES,
        "sqs:ReceiveMessage": {"LastResortQueue"},
        "sqs:SendMessage": QUEUES,
    },
}


@pytest.mark.parametrize("role", ROLES)
def test_a_role_grants_exactly_these_actions_on_exactly_these_resources(any_stack: Stack, role: str) -> None:
    meant = {**dict.fromkeys(QUEUES, any_stack.queues), **dict.fromkeys(TABLES, any_stack.tables)}
    network = NETWORK if role in IN_SUBNETS and any_stack.parameters["SubnetIds"] else {}
    expected = {
        action: resources - meant.keys() | {each for name in resources & meant.keys() for each in meant[name].values()}
        for action, resources in {**ROLES[role], **network}.items()
    }

    assert granted(any_stack, role) == {action: resources for action, resources in expected.items() if resources}


def test_there_is_one_role_for_each_function_and_no_other(any_stack: Stack) -> None:
    functions = any_stack.of_type("AWS::Lambda::Function")
    roles = {name: logical_id(function["Role"]) for name, function in functions.items()}

    assert roles == {f"{part}Function": f"{part}Role" for part in ("Gateway", "Relay", "Worker", "Timers")}
    assert set(any_stack.of_type("AWS::IAM::Role")) == set(ROLES)
    assert not any_stack.of_type("AWS::IAM::Policy")


@pytest.mark.parametrize("role", ROLES)
def test_a_role_denies_what_is_said_below_and_only_two_grants_have_a_condition(stack: Stack, role: str) -> None:
    denials = [statement for statement in statements(stack, role) if statement["Effect"] == "Deny"]
    conditions = [each["Condition"] for each in statements(stack, role) if each["Effect"] == "Allow" and "Condition" in each]

    assert len(denials) == (2 if role == "WorkerRole" else 1)
    assert conditions == {
        "TimersRole": [{"ForAllValues:StringLike": {LEADING_KEYS: "queue#*"}}],
        "WorkerRole": [{"StringLike": {PREFIX: "modules/*"}}],
    }.get(role, [])


# --- API keys ------------------------------------------------------------------------------------------------------------

DYNAMODB_ACTIONS = sorted({action for grants in ROLES.values() for action in grants if action.startswith("dynamodb:")})


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("action", [*DYNAMODB_ACTIONS, "dynamodb:PartiQLInsert"])
def test_of_the_api_keys_the_gateway_reads_one_and_nobody_does_anything_else(stack: Stack, role: str, action: str) -> None:
    reads_one = (role, action) == ("GatewayRole", "dynamodb:GetItem")

    for partition_key in partition_keys_of_api_keys():
        assert allows(stack, role, on_ledger(action, partition_key)) == reads_one


@pytest.mark.parametrize("role", ROLES)
def test_only_the_timers_who_run_no_code_of_a_job_may_read_without_saying_what(stack: Stack, role: str) -> None:
    everything = Request("dynamodb:Scan", "LedgerTable")
    assert allows(stack, role, everything) == (role == "TimersRole")


@pytest.mark.parametrize("role", ROLES)
def test_a_batch_with_one_api_key_in_it_is_denied_as_a_whole(stack: Stack, role: str) -> None:
    job_id, partition_key = RandomIds().job(), min(partition_keys_of_api_keys())

    for action in ("dynamodb:BatchGetItem", "dynamodb:PutItem"):
        assert not allows(stack, role, on_ledger(action, job_id, partition_key))


@pytest.mark.parametrize("partition_key", [queue_settings.PARTITION, "queue#default"])
def test_a_job_cannot_change_the_pace_of_a_queue(stack: Stack, partition_key: str) -> None:
    for action in ("dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:DeleteItem"):
        assert not allows(stack, "WorkerRole", on_ledger(action, partition_key))
    assert allows(stack, "WorkerRole", on_ledger("dynamodb:GetItem", partition_key))
    assert allows(stack, "RelayRole", on_ledger("dynamodb:UpdateItem", partition_key))


@pytest.mark.parametrize("role", ROLES)
def test_nobody_deletes_a_job_and_timers_only_what_has_left_a_line(stack: Stack, role: str) -> None:
    for partition_key in (RandomIds().job(), partition_key_of_quarantine()):
        assert not allows(stack, role, on_ledger("dynamodb:DeleteItem", partition_key))
    assert allows(stack, role, on_ledger("dynamodb:DeleteItem", "queue#default")) == (role == "TimersRole")


@pytest.mark.parametrize("role", ROLES)
def test_jobs_and_the_quarantine_are_not_denied(stack: Stack, role: str) -> None:
    for partition_key in (RandomIds().job(), partition_key_of_quarantine()):
        for action in ("dynamodb:GetItem", "dynamodb:PutItem", "dynamodb:UpdateItem"):
            assert allows(stack, role, on_ledger(action, partition_key))


# --- the network ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize("action", NETWORK)
def test_lambda_makes_network_interfaces_and_the_code_of_a_function_does_not(role: str, action: str) -> None:
    stack = rendered((("SubnetIds", "subnet-1"), ("SecurityGroupIds", "sg-1")))
    interface = "arn:${AWS::Partition}:ec2:${AWS::Region}:123456789012:network-interface/eni-1"
    by_code = {SOURCE_FUNCTION: ["arn:aws:lambda:eu-west-1:123456789012:function:f"]}

    assert allows(stack, role, Request(action, interface)) == (role in IN_SUBNETS)
    assert not allows(stack, role, Request(action, interface, by_code))


# --- the bucket ----------------------------------------------------------------------------------------------------------


def test_a_job_reads_what_the_demo_uploads_and_no_failed_batch(any_stack: Stack) -> None:
    def reads(key: str) -> bool:
        return allows(any_stack, "WorkerRole", Request("s3:GetObject", f"Bucket/{key}"))

    def lists(prefix: str) -> bool:
        return allows(any_stack, "WorkerRole", Request("s3:ListBucket", "Bucket", {PREFIX: [prefix]}))

    uploaded = sources.PREFIX + "/"
    assert (reads(uploaded + "os.py"), lists(uploaded)) == (True, True)
    assert (reads("aws/lambda/some-mapping/shardId-0/2026/11/05/batch"), lists("aws/lambda/"), lists("")) == (False,) * 3
    assert not allows(any_stack, "WorkerRole", Request("s3:ListBucket", "Bucket"))


def test_the_relay_writes_failed_batches_and_nothing_that_a_job_reads(any_stack: Stack) -> None:
    def puts(key: str) -> bool:
        return allows(any_stack, "RelayRole", Request("s3:PutObject", f"Bucket/{key}"))

    assert puts("aws/lambda/some-mapping/shardId-0/2026/11/05/batch")
    assert not puts("modules/os.py")


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
        if statement["Effect"] == "Deny":
            continue
        assert not statement.keys() - {"Effect", "Action", "Resource", "Condition"}
        for action in listed(statement["Action"]):
            assert "*" not in action
            resources = {written(stack, resource) for resource in listed(statement["Resource"])}
            assert not resources & grants.get(action, set()), f"{action} is granted twice"
            grants.setdefault(action, set()).update(resources)
    return grants


def on_ledger(action: str, *partition_keys: str) -> Request:
    return Request(action, "LedgerTable", {LEADING_KEYS: partition_keys})


class Recorder:
    """In the place of boto3's client: notes the partition keys of every request."""

    def __init__(self) -> None:
        self.partition_keys: set[str] = set()

    def get_item(self, *, Key: Mapping[str, Any], **_: Any) -> dict[str, Any]:
        self.partition_keys.add(Key["pk"]["S"])
        return {}

    def put_item(self, *, Item: Mapping[str, Any], **_: Any) -> dict[str, Any]:
        return self.get_item(Key=Item)

    def transact_write_items(self, *, TransactItems: list[dict[str, Any]], **_: Any) -> None:
        for action in TransactItems:
            self.get_item(Key=action["Put"]["Item"])

    def query(self, *, ExpressionAttributeValues: Mapping[str, Any], **_: Any) -> dict[str, Any]:
        self.partition_keys.update(value["S"] for value in ExpressionAttributeValues.values())
        return {"Items": []}


def partition_keys_of_api_keys() -> set[str]:
    recorder = Recorder()
    keys = DynamoKeys(recorder, "ledger")
    keys.add(ApiKey(key_id="k1", sha256="5" * 64, tenant="acme", scopes=frozenset({"read"}), created_at=1))
    keys.all()
    assert len(recorder.partition_keys) == 2
    return recorder.partition_keys


def partition_key_of_quarantine() -> str:
    recorder = Recorder()
    DynamoQuarantine(recorder, "ledger").put(SetAside(source="log:0", position="1", reason="poison", data=b"x", at=1))
    (partition_key,) = recorder.partition_keys
    return partition_key
