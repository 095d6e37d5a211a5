"""What a call of boto3 asks IAM for: the actions and resources behind its operation, as `policies.Request` writes them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from .policies import LEADING_KEYS, Request

OF_TRANSACTION = {
    "Put": "PutItem",
    "Update": "UpdateItem",
    "Delete": "DeleteItem",
    "ConditionCheck": "ConditionCheckItem",
}
"""https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/transaction-apis-iam.html"""

_PARTITION_KEY = re.compile(r"^\w+ = (:\w+)\b")


def requests_of(service: str, operation: str, parameters: Mapping[str, Any]) -> Iterator[Request]:
    """Resources carry the names that they have in the template. Raises `AssertionError` for what is not known here."""
    match service, operation:
        case "dynamodb", "Query":
            beyond = f"/index/{parameters['IndexName']}" if "IndexName" in parameters else ""
            named = _PARTITION_KEY.match(parameters["KeyConditionExpression"])
            assert named is not None, parameters
            value = parameters["ExpressionAttributeValues"][named[1]]
            yield Request("dynamodb:Query", parameters["TableName"] + beyond, {LEADING_KEYS: [_text(value)]})
        case "dynamodb", "Scan":
            # It names no partition keys, so a condition on them does not hold.
            yield Request("dynamodb:Scan", parameters["TableName"])
        case "dynamodb", "BatchGetItem":
            for table, wanted in parameters["RequestItems"].items():
                yield _on_items(operation, table, *wanted["Keys"])
        case "dynamodb", "BatchWriteItem":
            for table, writes in parameters["RequestItems"].items():
                yield _on_items(operation, table, *(write["PutRequest"]["Item"] for write in writes))
        case "dynamodb", "TransactWriteItems":
            for action in parameters["TransactItems"]:
                ((kind, arguments),) = action.items()
                yield _on_items(OF_TRANSACTION[kind], arguments["TableName"], arguments.get("Key") or arguments["Item"])
        case "dynamodb", "GetItem" | "PutItem" | "UpdateItem" | "DeleteItem":
            yield _on_items(operation, parameters["TableName"], parameters.get("Key") or parameters["Item"])
        case "sqs", "GetQueueUrl":
            yield Request("sqs:GetQueueUrl", parameters["QueueName"])
        case "sqs", _:
            # A batch asks for what each of its entries asks for.
            # https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazonsqs.html
            yield Request(f"sqs:{operation.removesuffix('Batch')}", parameters["QueueUrl"].rpartition("/")[2])
        case "kinesis", "PutRecords":
            yield Request("kinesis:PutRecords", parameters["StreamName"])
        case "s3", "GetObject":
            yield Request("s3:GetObject", f"{parameters['Bucket']}/{parameters['Key']}")
        case _:
            raise AssertionError(f"no part of Ringfence was known to call {service}:{operation}")


def _on_items(operation: str, table: str, *items: Mapping[str, Any]) -> Request:
    """A user's table has one key attribute, and no statement of ours looks at it."""
    keys = [_text(item["pk"]) for item in items if "pk" in item]
    return Request(f"dynamodb:{operation}", table, {LEADING_KEYS: keys})


def _text(value: Mapping[str, Any]) -> str:
    return str(value["S"])
