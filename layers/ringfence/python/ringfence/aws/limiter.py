"""The limiter on DynamoDB: one item per queue, written by compare-and-set.

Time is the caller's. What is stored says how far others have come, so a clock that lags makes its owner's tickets wait longer
and never lets them leave before their time in the schedule; one that runs ahead takes the schedule along, and the others wait.
"""

from __future__ import annotations

import random
from typing import Any

from botocore.exceptions import ClientError

from ringfence import rate as gcra
from ringfence.aws.dynamo_calls import calling
from ringfence.aws.failures import code_of
from ringfence.aws.rows import Item
from ringfence.errors import Unavailable
from ringfence.ids import Ids, RandomIds
from ringfence.job import Millis
from ringfence.ports import Clock
from ringfence.rate import Rate, Reserved
from ringfence.retry import Backoff, Pauses

SORT_KEY = "pace"

TRIES = 20
"""How often a reservation is made again because another was faster. With a relay for each shard they rarely meet twice."""

BACKOFF = Backoff(base_seconds=0.01, cap_seconds=0.2)


class DynamoLimiter:
    """``client`` is boto3's low-level DynamoDB client, ``table`` the ledger's table.

    A reservation costs one write unit; one more if another process has reserved in this queue since this one last did.
    """

    def __init__(self, client: Any, table: str, clock: Clock, ids: Ids | None = None) -> None:
        self._client, self._table, self._clock = client, table, clock
        self._ids: Ids = ids or RandomIds()
        self._random = random.Random()
        self._seen: dict[str, Item] = {}
        """The items as last seen. One that is out of date is refused as a condition, and its successor comes back with that."""

    def reserve(self, queue: str, count: int, rate: Rate, within: Millis | None = None) -> list[Millis]:
        """See `ports.Limiter.reserve`."""
        within_micros = None if within is None else within * 1_000
        pauses = Pauses(BACKOFF, self._clock, self._random, tries=TRIES)
        while True:
            seen = self._seen.get(queue)
            before = None if seen is None else _reserved(seen)
            after, waits = gcra.reserve(before, rate, count, self._clock.now() * 1_000, within_micros)
            if after is None or not waits:
                return waits  # others can only have reserved more since
            if self._replace(queue, seen, _item(queue, after, self._ids.mark())):
                return waits
            if not pauses.another_try():
                raise Unavailable(f"cannot reserve in queue {queue}: too many do at once")

    def _replace(self, queue: str, seen: Item | None, item: Item) -> bool:
        unchanged: dict[str, Any] = (
            {"ConditionExpression": "attribute_not_exists(pk)"}
            if seen is None
            else {"ConditionExpression": "w = :seen", "ExpressionAttributeValues": {":seen": seen["w"]}}
        )
        with calling(f"reserve in queue {queue}"):
            try:
                self._client.put_item(
                    TableName=self._table, Item=item, ReturnValuesOnConditionCheckFailure="ALL_OLD", **unchanged
                )
            except ClientError as failure:
                if code_of(failure) != "ConditionalCheckFailedException":
                    raise
                self._remember(queue, failure.response.get("Item"))
                # Our own write, applied before its reply was lost?
                return self._seen.get(queue, {}).get("w") == item["w"]
        self._seen[queue] = item
        return True

    def _remember(self, queue: str, item: Item | None) -> None:
        if item:
            self._seen[queue] = item
        else:
            self._seen.pop(queue, None)


def _item(queue: str, reserved: Reserved, write_id: str) -> Item:
    return {
        "pk": {"S": f"queue#{queue}"},
        "sk": {"S": SORT_KEY},
        "ar": {"N": str(reserved.arrival)},
        "la": {"N": str(reserved.latest)},
        "iv": {"N": str(reserved.interval_nanos)},
        "w": {"S": write_id},
    }


def _reserved(item: Item) -> Reserved:
    return Reserved(int(item["ar"]["N"]), int(item["la"]["N"]), int(item["iv"]["N"]))
