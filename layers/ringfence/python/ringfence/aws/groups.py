"""Jobs that stand in line together: one item for each group, in the order of their places, beside the pace of their queue."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import ClientError

from ringfence.aws.dynamo_calls import calling
from ringfence.aws.failures import code_of
from ringfence.aws.rows import Item
from ringfence.job import Millis
from ringfence.ports import Group

SORT_KEY_PREFIX = "line#"
PLACE_DIGITS = 15
"""Of a place, which is a time in milliseconds, so that keys sort as places do."""

# Not "c", "da" or "xa": those are the range keys of the indexes.
_JOB_IDS, _LEFT = "jo", "lf"
_BETWEEN = "#"
"""No job's id has one."""


class Groups:
    """The groups in one ledger table. A hundred ids of 26 characters are three write units, and three again at the end."""

    def __init__(self, client: Any, table: str) -> None:
        self._client, self._table = client, table

    def put(self, group: Group) -> None:
        """See `ports.Ledger.join_line`. Put only where there is none: the same group again must not bring back who has left."""
        item: Item = {**_key(group.queue, group.first_place), _JOB_IDS: {"S": _BETWEEN.join(group.job_ids)}}
        self._if(
            f"join the line of queue {group.queue}",
            lambda: self._client.put_item(TableName=self._table, Item=item, ConditionExpression="attribute_not_exists(pk)"),
        )

    def first(self, queue: str, limit: int) -> list[Group]:
        """See `ports.Ledger.groups`."""
        query: dict[str, Any] = {
            "TableName": self._table,
            "KeyConditionExpression": "pk = :queue AND begins_with(sk, :line)",
            "ExpressionAttributeValues": {":queue": {"S": _partition(queue)}, ":line": {"S": SORT_KEY_PREFIX}},
            "ConsistentRead": True,
        }
        found: list[Group] = []
        while len(found) < limit:
            with calling(f"read the line of queue {queue}"):
                reply = self._client.query(**query, Limit=limit - len(found))
            found += [_group(queue, item) for item in reply["Items"]]
            if "LastEvaluatedKey" not in reply:
                break
            query["ExclusiveStartKey"] = reply["LastEvaluatedKey"]
        return found

    def leave(self, group: Group, left: int) -> None:
        """See `ports.Ledger.leave_line`."""
        key = _key(group.queue, group.first_place)
        if left >= len(group.job_ids):
            with calling(f"leave the line of queue {group.queue}"):
                self._client.delete_item(TableName=self._table, Key=key)
            return
        behind = f"attribute_exists(pk) AND (attribute_not_exists({_LEFT}) OR {_LEFT} < :left)"
        self._if(
            f"leave the line of queue {group.queue}",
            lambda: self._client.update_item(
                TableName=self._table,
                Key=key,
                UpdateExpression=f"SET {_LEFT} = :left",
                ConditionExpression=behind,
                ExpressionAttributeValues={":left": {"N": str(left)}},
            ),
        )

    def _if(self, doing: str, write: Any) -> None:
        """Write, unless the condition says that there is nothing to write."""
        with calling(doing):
            try:
                write()
            except ClientError as failure:
                if code_of(failure) != "ConditionalCheckFailedException":
                    raise


def _partition(queue: str) -> str:
    return f"queue#{queue}"


def _group(queue: str, item: Item) -> Group:
    place = int(item["sk"]["S"].removeprefix(SORT_KEY_PREFIX))
    return Group(queue, place, item[_JOB_IDS]["S"].split(_BETWEEN), int(item.get(_LEFT, {"N": "0"})["N"]))


def _key(queue: str, place: Millis) -> Item:
    return {"pk": {"S": _partition(queue)}, "sk": {"S": f"{SORT_KEY_PREFIX}{place:0{PLACE_DIGITS}}"}}
