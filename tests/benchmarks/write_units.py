"""Write units as DynamoDB reckons them, counted from what each call changes: emulators answer any number they like.

Of an item the larger of before and after counts, in whole KB; a condition that fails costs as much; in a transaction all of it
twice. An index costs a unit for each KB of an entry that is put or removed, both if its key changes, nothing if it stays.
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/read-write-operations.html
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/GSI.html#GSI.ThroughputConsiderations.Writes
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ringfence.aws.itemsize import item_bytes

UNIT_BYTES = 1024

Item = Mapping[str, Mapping[str, Any]]


class Metered:
    """A low-level DynamoDB client, one call at a time, that counts its calls and the write units of one table.

    The indexes of that table project keys only, as the ledger's do.
    """

    def __init__(self, client: Any, table: str) -> None:
        self._client, self._table = client, table
        description = client.describe_table(TableName=table)["Table"]
        self._key = _attributes(description["KeySchema"])
        self._indexes = {
            index["IndexName"]: (*self._key, *_attributes(index["KeySchema"]))
            for index in description.get("GlobalSecondaryIndexes", [])
        }
        self._one_at_a_time = threading.Lock()
        self.calls: Counter[str] = Counter()
        self.units: Counter[str] = Counter()
        """By what was written: ``row``, or the name of an index."""

    @property
    def exceptions(self) -> Any:
        return self._client.exceptions

    @property
    def meta(self) -> Any:
        return self._client.meta

    def __getattr__(self, operation: str) -> Any:
        def call(**request: Any) -> Any:
            with self._one_at_a_time:
                self.calls[operation] += 1
                keys, times = self._touched(operation, request)
                before = [self._item(key) for key in keys]
                try:
                    return getattr(self._client, operation)(**request)
                finally:
                    for key, item in zip(keys, before, strict=True):
                        self._count(item, self._item(key), times)

        return call

    def _touched(self, operation: str, request: Mapping[str, Any]) -> tuple[list[Item], int]:
        """The keys that a call may write in this table, and how often each write counts."""
        if operation in ("put_item", "update_item", "delete_item"):
            return [self._key_of(request.get("Key") or request["Item"])] if request["TableName"] == self._table else [], 1
        if operation == "batch_write_item":
            requests = request["RequestItems"].get(self._table, ())
            puts = [each["PutRequest"]["Item"] for each in requests if "PutRequest" in each]
            deletes = [each["DeleteRequest"]["Key"] for each in requests if "DeleteRequest" in each]
            return [self._key_of(each) for each in (*puts, *deletes)], 1
        if operation == "transact_write_items":
            actions = [action for each in request["TransactItems"] for action in each.values()]
            return [
                self._key_of(action.get("Key") or action["Item"]) for action in actions if action["TableName"] == self._table
            ], 2
        return [], 0

    def _key_of(self, item: Item) -> Item:
        return {name: item[name] for name in self._key}

    def _item(self, key: Item) -> Item:
        found: Item = self._client.get_item(TableName=self._table, Key=key, ConsistentRead=True).get("Item", {})
        return found

    def _count(self, before: Item, after: Item, times: int) -> None:
        self.units["row"] += times * max(_units(before), _units(after), 1)
        for name, attributes in self._indexes.items():
            was, is_now = _entry(before, attributes), _entry(after, attributes)
            if was != is_now:
                self.units[name] += _units(was) + _units(is_now)


def _attributes(schema: Sequence[Mapping[str, str]]) -> tuple[str, ...]:
    return tuple(element["AttributeName"] for element in schema)


def _entry(item: Item, attributes: Sequence[str]) -> Item:
    """What an index of keys only holds of an item: nothing if a key is missing."""
    return {name: item[name] for name in attributes} if all(name in item for name in attributes) else {}


def _units(item: Item) -> int:
    return -(-item_bytes(item) // UNIT_BYTES)
