"""The live settings of queues, and their lines, in the ledger's table: one item per queue, all in one partition, for they are
few and small and most readers want them all."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from botocore.exceptions import ClientError

from ringfence.aws.dynamo_calls import calling
from ringfence.aws.expressions import Placeholders
from ringfence.aws.failures import code_of
from ringfence.aws.rows import AttributeValue, Item
from ringfence.errors import Unavailable
from ringfence.job import Millis
from ringfence.queue_settings import Line, QueueSettings, QueueState, places

PARTITION = "queue#"
"""No job's id has a ``#``. The limiter's items begin like this, too; template.yaml keeps the worker from writing either."""

SORT_KEY_PREFIX = "queue#"

TRIES = 10
"""How often places are asked for again because the line or the clock moved on in between."""

# Not "c", "da" or "xa": those are the range keys of the indexes. Nor a reserved word, such as "of".
_ATTRIBUTES = {"rate_per_second": "ra", "burst": "bu", "paused": "pa", "high_water_mark": "hw"}
_LAST_PLACE, _WAITING, _OPEN_FROM = "lp", "wt", "lo"


class DynamoSettings:
    """``client`` is boto3's low-level DynamoDB client, ``table`` the ledger's table."""

    def __init__(self, client: Any, table: str) -> None:
        self._client, self._table = client, table

    def read(self, queue: str) -> QueueState:
        """See `ports.SettingsStore.read`."""
        with calling(f"read the settings of queue {queue}"):
            reply = self._client.get_item(TableName=self._table, Key=_key(queue), ConsistentRead=True)
        return _state(reply.get("Item", {}))

    def all(self) -> dict[str, QueueState]:
        """See `ports.SettingsStore.all`."""
        query: dict[str, Any] = {
            "TableName": self._table,
            "KeyConditionExpression": "pk = :queues AND begins_with(sk, :queue)",
            "ExpressionAttributeValues": {":queues": {"S": PARTITION}, ":queue": {"S": SORT_KEY_PREFIX}},
            "ConsistentRead": True,
        }
        found: dict[str, QueueState] = {}
        with calling("read the settings of the queues"):
            while True:
                reply = self._client.query(**query)
                found |= {item["sk"]["S"].removeprefix(SORT_KEY_PREFIX): _state(item) for item in reply["Items"]}
                if "LastEvaluatedKey" not in reply:
                    return found
                query["ExclusiveStartKey"] = reply["LastEvaluatedKey"]

    def change(self, queue: str, changes: Mapping[str, Any]) -> QueueSettings:
        """See `ports.SettingsStore.change`. Each setting is valid or not by itself, so that no read is needed before."""
        QueueSettings().changed(changes)
        if not changes:
            return self.read(queue).settings
        placeholders = Placeholders()
        sets, removes = [], []
        for name, value in changes.items():
            attribute = placeholders.name(_ATTRIBUTES[name])
            if value is None:
                removes.append(attribute)
            else:
                sets.append(f"{attribute} = {placeholders.value(_encoded(value))}")
        parts = [f"{verb} {', '.join(each)}" for verb, each in (("SET", sets), ("REMOVE", removes)) if each]
        with calling(f"change the settings of queue {queue}"):
            return _state(self._update(queue, " ".join(parts), **placeholders.arguments())).settings

    def join_line(self, queue: str, count: int, now: Millis) -> list[Millis]:
        """See `ports.SettingsStore.join_line`. A reply that is lost costs a gap between two places, nothing else."""
        behind_others = f"SET {_LAST_PLACE} = {_LAST_PLACE} + :by, {_WAITING} = :yes", f"{_LAST_PLACE} >= :now", count
        first_for_long = (
            f"SET {_LAST_PLACE} = :by, {_WAITING} = :yes",
            f"attribute_not_exists({_LAST_PLACE}) OR {_LAST_PLACE} < :now",
            now + count - 1,
        )
        for update, condition, by in (behind_others, first_for_long) * TRIES:
            values: Item = {":by": {"N": str(by)}, ":now": {"N": str(now)}, ":yes": {"BOOL": True}}
            item = self._update_if(queue, update, condition, values)
            if item is not None:
                return places(count, int(item[_LAST_PLACE]["N"]))
        raise Unavailable(f"cannot join the line of queue {queue}: too many do at once")

    def open_line(self, queue: str, last_place: Millis | None, open_from: Millis) -> bool:
        """See `ports.SettingsStore.open_line`."""
        condition = f"{_WAITING} = :yes"
        values: Item = {":yes": {"BOOL": True}, ":from": {"N": str(open_from)}}
        if last_place is not None:
            condition += f" AND {_LAST_PLACE} = :last"
            values[":last"] = {"N": str(last_place)}
        return self._update_if(queue, f"SET {_OPEN_FROM} = :from REMOVE {_WAITING}", condition, values) is not None

    def _update_if(self, queue: str, update: str, condition: str, values: Mapping[str, AttributeValue]) -> Item | None:
        """The item afterwards, None if the condition did not hold."""
        with calling(f"move the line of queue {queue}"):
            try:
                return self._update(queue, update, ConditionExpression=condition, ExpressionAttributeValues={**values})
            except ClientError as failure:
                if code_of(failure) != "ConditionalCheckFailedException":
                    raise
        return None

    def _update(self, queue: str, update: str, **arguments: Any) -> Item:
        reply = self._client.update_item(
            TableName=self._table, Key=_key(queue), UpdateExpression=update, ReturnValues="ALL_NEW", **arguments
        )
        item: Item = reply["Attributes"]
        return item


def _key(queue: str) -> Item:
    return {"pk": {"S": PARTITION}, "sk": {"S": SORT_KEY_PREFIX + queue}}


def _encoded(value: bool | float) -> AttributeValue:
    # Through its shortest text: 0.2 is stored as 0.2.
    return {"BOOL": value} if isinstance(value, bool) else {"N": f"{Decimal(repr(value)):f}"}


def _state(item: Item) -> QueueState:
    defaults = QueueSettings()
    rate, mark = item.get(_ATTRIBUTES["rate_per_second"]), item.get(_ATTRIBUTES["high_water_mark"])
    return QueueState(
        settings=QueueSettings(
            rate_per_second=None if rate is None else float(rate["N"]),
            burst=int(item.get(_ATTRIBUTES["burst"], {"N": defaults.burst})["N"]),
            paused=item.get(_ATTRIBUTES["paused"], {"BOOL": defaults.paused})["BOOL"],
            high_water_mark=None if mark is None else int(mark["N"]),
        ),
        line=Line(
            waiting=item.get(_WAITING, {"BOOL": False})["BOOL"],
            last_place=int(item.get(_LAST_PLACE, {"N": 0})["N"]),
            open_from=int(item.get(_OPEN_FROM, {"N": 0})["N"]),
        ),
    )
