"""The template's tables, when DynamoDB answers elsewhere than the emulator that is given the stack.

LocalStack needs Java for its DynamoDB; without it, ``AWS_ENDPOINT_URL_DYNAMODB`` names another one, in which the emulator's
CloudFormation cannot create anything.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from ringfence.errors import RingfenceError
from ringfence.local.endpoint import Endpoint
from ringfence.local.intrinsics import Filling, Reference

_TABLE = "AWS::DynamoDB::Table"

_CREATED_WITH = (
    "AttributeDefinitions",
    "BillingMode",
    "GlobalSecondaryIndexes",
    "KeySchema",
    "LocalSecondaryIndexes",
    "ProvisionedThroughput",
)
"""The properties that CreateTable takes as CloudFormation does. Backups, encryption and expiry mean nothing on an emulator.

https://docs.aws.amazon.com/AWSCloudFormation/latest/TemplateReference/aws-resource-dynamodb-table.html
"""


class NoDynamoDb(RingfenceError):
    """The emulator has no DynamoDB that works."""


def require_dynamodb(endpoint: Endpoint, resources: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise `NoDynamoDb` if there are tables to create and nothing answers: LocalStack would say `in progress` for ever."""
    if not any(resource["Type"] == _TABLE for resource in resources.values()):
        return
    try:
        endpoint.client("dynamodb").list_tables(Limit=1)
    except (ClientError, BotoCoreError) as fault:
        raise NoDynamoDb(
            f"no DynamoDB works at {endpoint.services.get('dynamodb', endpoint.url)} (LocalStack's needs Java): {fault}. "
            "AWS_ENDPOINT_URL_DYNAMODB names another one, which is then used beside the emulator"
        ) from None


def tables_elsewhere(endpoint: Endpoint, stack: str, resources: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Logical id → name of the tables that the emulator's CloudFormation is not to create: all of them, or none."""
    if "dynamodb" not in endpoint.services:
        return {}
    return {logical: f"{stack}-{logical}" for logical, resource in resources.items() if resource["Type"] == _TABLE}


def create_tables(
    endpoint: Endpoint, names: Mapping[str, str], resources: Mapping[str, Mapping[str, Any]], filling: Filling
) -> dict[Reference, str]:
    """Create the named ones of ``resources``, and wait for them. Returns their names and ARNs."""
    if not names:
        return {}
    dynamodb = endpoint.client("dynamodb")
    told: dict[Reference, str] = {}
    for logical, name in names.items():
        creation = _creation_of(filling.fill(resources[logical]["Properties"]))
        created = dynamodb.create_table(TableName=name, **creation)["TableDescription"]
        told |= {(logical, None): name, (logical, "Arn"): created["TableArn"]}
        if "LatestStreamArn" in created:
            told[logical, "StreamArn"] = created["LatestStreamArn"]
    for name in names.values():
        dynamodb.get_waiter("table_exists").wait(TableName=name)
    return told


def delete_tables(endpoint: Endpoint, names: Iterable[str]) -> None:
    """Delete those that are there."""
    for name in names:
        with suppress(ClientError, BotoCoreError):
            endpoint.client("dynamodb").delete_table(TableName=name)


def _creation_of(properties: Mapping[str, Any]) -> dict[str, Any]:
    creation = {key: properties[key] for key in _CREATED_WITH if key in properties}
    if stream := properties.get("StreamSpecification"):
        creation["StreamSpecification"] = {"StreamEnabled": True, "StreamViewType": stream["StreamViewType"]}
    return creation
