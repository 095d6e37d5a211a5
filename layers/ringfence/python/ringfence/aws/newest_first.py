"""Reading a sharded index of jobs as one list, newest first."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any

from ringfence.aws.rows import Item, ListIndex
from ringfence.listing import Position


def newest_first(
    client: Any, table: str, index: ListIndex, partitions: Sequence[str], *, before: Position | None, page_items: int
) -> Iterator[Position]:
    """The positions in these partitions of the index, merged, from the one after ``before`` on.

    Reads ``page_items`` of each partition at first and more only where the merge asks for more. The index knows no order among
    items of one millisecond, so those are sorted here: a page can end between any two of them.
    """
    lists = [_partition(client, table, index, partition, before, page_items) for partition in partitions]
    return heapq.merge(*lists, reverse=True)


def _partition(
    client: Any, table: str, index: ListIndex, partition: str, before: Position | None, page_items: int
) -> Iterator[Position]:
    entries = _entries(client, table, index, partition, before, page_items)
    for _, together in groupby(entries, key=lambda entry: entry.at):
        for position in sorted(together, reverse=True):
            if before is None or position < before:
                yield position


def _entries(
    client: Any, table: str, index: ListIndex, partition: str, before: Position | None, page_items: int
) -> Iterator[Position]:
    condition, values = f"{index.partition} = :partition", {":partition": {"S": partition}}
    if before is not None:
        # Not "<": those of the same millisecond may be still to come.
        condition += f" AND {index.at} <= :before"
        values[":before"] = {"N": str(before.at)}
    query: dict[str, Any] = {
        "TableName": table,
        "IndexName": index.name,
        "KeyConditionExpression": condition,
        "ExpressionAttributeValues": values,
        "ScanIndexForward": False,
        "Limit": page_items,
    }
    while True:
        reply = client.query(**query)
        yield from (_position(entry, index) for entry in reply["Items"])
        if "LastEvaluatedKey" not in reply:
            return
        query["ExclusiveStartKey"] = reply["LastEvaluatedKey"]


def _position(entry: Item, index: ListIndex) -> Position:
    return Position(int(entry[index.at]["N"]), entry["pk"]["S"])
