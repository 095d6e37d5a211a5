"""The sharded index as one list. An index promises no order among items of one millisecond, and emulators have one."""

from __future__ import annotations

from typing import Any

from ringfence.aws.newest_first import newest_first
from ringfence.aws.rows import LISTING_INDEX
from ringfence.listing import Position


class Index:
    """Partitions of entries, each served in the order given, ``Limit`` at a time."""

    def __init__(self, **partitions: list[tuple[int, str]]) -> None:
        self._partitions = partitions
        self.queries = 0

    def query(self, **request: Any) -> dict[str, Any]:
        self.queries += 1
        values = request["ExpressionAttributeValues"]
        highest = int(values.get(":before", {"N": "999"})["N"])
        entries = [entry for entry in self._partitions[values[":partition"]["S"]] if entry[0] <= highest]
        start = request.get("ExclusiveStartKey", 0)
        end = start + request["Limit"]
        more = {"LastEvaluatedKey": end} if end < len(entries) else {}
        return {"Items": [{"c": {"N": str(at)}, "pk": {"S": name}} for at, name in entries[start:end]], **more}


def listed(index: Index, *partitions: str, before: Position | None = None, page_items: int = 2) -> list[str]:
    found = newest_first(index, "t", LISTING_INDEX, partitions, before=before, page_items=page_items)
    return [f"{position.at}{position.job_id}" for position in found]


def test_entries_of_one_millisecond_are_put_in_order_though_the_index_is_not() -> None:
    index = Index(a=[(9, "c"), (9, "z"), (9, "a"), (1, "b")], b=[(9, "d"), (9, "x"), (5, "q")])
    assert listed(index, "a", "b") == ["9z", "9x", "9d", "9c", "9a", "5q", "1b"]


def test_a_list_goes_on_after_any_entry_of_a_millisecond() -> None:
    entries = {"a": [(9, "c"), (9, "z"), (9, "a"), (1, "b")], "b": [(9, "d"), (9, "x"), (5, "q")]}
    whole = listed(Index(**entries), "a", "b")
    for done, last in enumerate(whole, start=1):
        before = Position(int(last[0]), last[1])
        assert listed(Index(**entries), "a", "b", before=before) == whole[done:]


def test_a_partition_is_read_on_only_when_the_merge_comes_to_it() -> None:
    index = Index(a=[(9, "a"), (8, "b"), (7, "c")], b=[(3, "d"), (2, "e"), (1, "f")])
    found = newest_first(index, "t", LISTING_INDEX, ["a", "b"], before=None, page_items=1)
    next(found)
    # To know that nothing else is of the first millisecond takes one entry more of the partition it came from.
    assert index.queries <= 4


def test_no_partitions_hold_nothing() -> None:
    assert listed(Index()) == []
