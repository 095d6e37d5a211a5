"""The quarantine in the ledger's table: what nobody could read, with its bytes and the reason.

Its items lie under partition keys that no job id can be. They enter the listing index in partitions of their own, sharded like
the jobs': a flood of poison must not throttle the table.
"""

from __future__ import annotations

import hashlib
from itertools import islice
from typing import Any

from botocore.exceptions import ClientError

from ringfence.aws import rows
from ringfence.aws.dynamo_calls import calling, get_all
from ringfence.aws.failures import code_of
from ringfence.aws.newest_first import newest_first
from ringfence.aws.rows import AttributeValue, Item
from ringfence.clock import SystemClock
from ringfence.ports import DUE_SHARDS, Clock, SetAside

MAX_DATA_BYTES = 300_000
"""Bytes kept of what was set aside, below the 400 KB of an item. Nothing Ringfence writes to its log or queues is so large.
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html"""

MAX_TEXT_CHARACTERS = 4_000
"""Kept of a reason, which may quote what was read, and of a job id, which may be anything."""

KEPT_SECONDS = 400 * 24 * 3600
SORT_KEY = "q"


class DynamoQuarantine:
    """``client`` is boto3's low-level DynamoDB client, ``table`` the ledger's table."""

    def __init__(self, client: Any, table: str, clock: Clock | None = None) -> None:
        self._client, self._table, self._clock = client, table, clock or SystemClock()

    def put(self, item: SetAside) -> None:
        """Keep it. See `ports.Quarantine.put`. What exceeds `MAX_DATA_BYTES` is cut off, and the reason says so."""
        with calling("put into the quarantine"):
            try:
                self._client.put_item(
                    TableName=self._table, Item=_to_item(item), ConditionExpression="attribute_not_exists(pk)"
                )
            except ClientError as failure:
                if code_of(failure) != "ConditionalCheckFailedException":
                    raise

    def items(self, limit: int = 100) -> list[SetAside]:
        """The newest first; what was put a moment ago may be missing."""
        partitions = [_partition(shard) for shard in range(DUE_SHARDS)]
        with calling("list the quarantine"):
            entries = newest_first(
                self._client, self._table, rows.LISTING_INDEX, partitions, before=None, page_items=max(1, limit)
            )
            order = [entry.job_id for entry in islice(entries, limit)]
            found = get_all(self._client, self._table, [_key(partition_key) for partition_key in order], self._clock)
        by_key = {item["pk"]["S"]: _from_item(item) for item in found}
        return [by_key[key] for key in order if key in by_key]


def _to_item(item: SetAside) -> Item:
    partition_key = _partition_key(item.source, item.position)
    kept, reason = item.data[:MAX_DATA_BYTES], item.reason[:MAX_TEXT_CHARACTERS]
    if len(kept) < len(item.data):
        reason += f" (only the first {len(kept)} of {len(item.data)} bytes are kept)"
    stored: Item = {
        **_key(partition_key),
        "so": {"S": item.source},
        "po": {"S": item.position},
        "re": {"S": _storable(reason)},
        "x": {"B": kept},
        "c": {"N": str(item.at)},
        "lk": {"S": _partition(rows.shard(partition_key))},
        rows.TTL: {"N": str(item.at // 1000 + KEPT_SECONDS)},
    }
    if item.job_id is not None:
        stored["id"] = {"S": _storable(item.job_id[:MAX_TEXT_CHARACTERS])}
    return stored


def _from_item(stored: Item) -> SetAside:
    job_id: AttributeValue | None = stored.get("id")
    return SetAside(
        source=stored["so"]["S"],
        position=stored["po"]["S"],
        reason=stored["re"]["S"],
        data=bytes(stored["x"]["B"]),
        at=int(stored["c"]["N"]),
        job_id=None if job_id is None else job_id["S"],
    )


def _storable(text: str) -> str:
    """Lone surrogates, which foreign text may hold and DynamoDB refuses, become question marks."""
    return text.encode(errors="replace").decode()


def _partition_key(*origin: str) -> str:
    named = "".join(f"{len(part)}:{part}" for part in origin)
    return "q#" + hashlib.sha256(named.encode(errors="surrogatepass")).hexdigest()[:32]


def _key(partition_key: str) -> Item:
    return {"pk": {"S": partition_key}, "sk": {"S": SORT_KEY}}


def _partition(shard: int) -> str:
    """One ``#`` where the jobs' partitions have two: no tenant's jobs can lie here."""
    return f"q#{shard}"
