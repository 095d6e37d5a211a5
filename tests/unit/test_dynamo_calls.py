"""Batches are sent again, only what is left of them, a bounded number of times, with pauses between."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from ringfence.aws.dynamo_calls import BACKOFF, FRUITLESS_ROUNDS, get_all
from ringfence.aws.rows import Item, row_key
from ringfence.errors import Unavailable
from ringfence.memory.clock import ManualClock


class Table:
    """A table that takes only some of each batch; a negative number throttles the whole call."""

    def __init__(self, *takes: int) -> None:
        self._takes = list(takes)
        self.asked: list[list[str]] = []

    def batch_get_item(self, RequestItems: dict[str, Any]) -> dict[str, Any]:
        keys = RequestItems["t"]["Keys"]
        taken = self._taken(keys)
        left = {"t": {"Keys": keys[taken:]}} if keys[taken:] else {}
        return {"Responses": {"t": keys[:taken]}, "UnprocessedKeys": left}

    def batch_write_item(self, RequestItems: dict[str, Any]) -> dict[str, Any]:
        requests = RequestItems["t"]
        taken = self._taken([request["PutRequest"]["Item"] for request in requests])
        return {"UnprocessedItems": {"t": requests[taken:]} if requests[taken:] else {}}

    def _taken(self, items: list[Item]) -> int:
        self.asked.append([item["pk"]["S"] for item in items])
        taken = self._takes.pop(0) if self._takes else len(items)
        if taken < 0:
            reply = {"Error": {"Code": "ThrottlingException"}, "ResponseMetadata": {"HTTPStatusCode": 400}}
            raise ClientError(reply, "Batch")
        return taken


def items(*names: str) -> list[Item]:
    return [row_key(name) for name in names]


def test_what_was_not_processed_is_asked_for_again() -> None:
    table = Table(1, 0, 2)
    assert get_all(table, "t", items("a", "b", "c"), ManualClock()) == items("a", "b", "c")
    assert table.asked == [["a", "b", "c"], ["b", "c"], ["b", "c"]]


def test_reading_gives_up_after_so_many_rounds_that_brought_nothing() -> None:
    table, clock = Table(*[0] * 99), ManualClock()
    with pytest.raises(Unavailable):
        get_all(table, "t", items("a"), clock)
    assert len(table.asked) == FRUITLESS_ROUNDS
    assert 0 < clock.monotonic() < FRUITLESS_ROUNDS * BACKOFF.cap_seconds


def test_a_batch_that_gets_on_is_never_given_up() -> None:
    """A reply of 16 MB leaves keys over without any throttle."""
    names = [f"item{n}" for n in range(30)]
    assert get_all(Table(*[1] * 29), "t", items(*names), ManualClock()) == items(*names)


def test_reading_splits_at_a_hundred_keys() -> None:
    table = Table()
    get_all(table, "t", items(*(f"item{n}" for n in range(250))), ManualClock())
    assert [len(asked) for asked in table.asked] == [100, 100, 50]


def test_nothing_to_read_asks_nothing() -> None:
    table = Table()
    assert get_all(table, "t", [], ManualClock()) == []
    assert table.asked == []


def test_a_mistake_of_ours_is_not_taken_for_a_throttle() -> None:
    class Denied:
        def batch_get_item(self, **_: Any) -> dict[str, Any]:
            raise ClientError({"Error": {"Code": "AccessDeniedException"}}, "BatchGetItem")

    with pytest.raises(ClientError):
        get_all(Denied(), "t", items("a"), ManualClock())
