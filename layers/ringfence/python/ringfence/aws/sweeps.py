"""The notes of reconciling in the ledger's table: one item, beside the live settings of the queues and guarded as they are."""

from __future__ import annotations

from typing import Any

import msgspec
from botocore.exceptions import ClientError

from ringfence.aws.dynamo_calls import calling
from ringfence.aws.failures import code_of
from ringfence.aws.queue_settings import PARTITION
from ringfence.sweep import Notes

KEY = {"pk": {"S": PARTITION}, "sk": {"S": "sweeps"}}
"""No queue's settings lie there: their sort keys begin with ``queue#``."""

_VERSION, _NOTES = "v", "no"


class DynamoSweeps:
    """``client`` is boto3's low-level DynamoDB client, ``table`` the ledger's table."""

    def __init__(self, client: Any, table: str) -> None:
        self._client, self._table = client, table

    def read(self) -> Notes:
        """See `ports.SweepStore.read`."""
        with calling("read the notes of reconciling"):
            item = self._client.get_item(TableName=self._table, Key=KEY, ConsistentRead=True).get("Item")
        if item is None:
            return Notes()
        notes = msgspec.json.decode(item[_NOTES]["S"], type=Notes)
        return notes.of_version(int(item[_VERSION]["N"]))

    def replace(self, seen: Notes, notes: Notes) -> bool:
        """See `ports.SweepStore.replace`."""
        unseen = "attribute_not_exists(pk)" if seen.version == 0 else f"{_VERSION} = :seen"
        values = {} if seen.version == 0 else {"ExpressionAttributeValues": {":seen": {"N": str(seen.version)}}}
        text = msgspec.json.encode(notes).decode()
        with calling("keep the notes of reconciling"):
            try:
                self._client.put_item(
                    TableName=self._table,
                    Item={**KEY, _VERSION: {"N": str(seen.version + 1)}, _NOTES: {"S": text}},
                    ConditionExpression=unseen,
                    **values,
                )
            except ClientError as failure:
                if code_of(failure) != "ConditionalCheckFailedException":
                    raise
                return False
        return True
