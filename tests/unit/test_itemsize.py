"""DynamoDB's rules for the size of an item, on values worked out by hand."""

from __future__ import annotations

from typing import Any

import pytest

from ringfence.aws.itemsize import item_bytes


@pytest.mark.parametrize(
    ("value", "size_bytes"),
    [
        ({"S": ""}, 0),
        ({"S": "abc"}, 3),
        ({"S": "é🐎"}, 6),
        ({"B": b"\x00\xff"}, 2),
        ({"BOOL": True}, 1),
        ({"NULL": True}, 1),
        ({"N": "0"}, 1),
        ({"N": "7"}, 2),
        ({"N": "42"}, 2),
        ({"N": "123"}, 3),
        ({"N": "1000"}, 2),
        ({"N": "0.05"}, 2),
        ({"N": "-12"}, 3),
        ({"N": "1.5E+100"}, 2),
        ({"N": "1700000000000"}, 2),
        ({"N": "1700000000001"}, 8),
        ({"SS": ["a", "bc"]}, 3),
        ({"NS": ["1", "123"]}, 5),
        ({"L": []}, 3),
        ({"L": [{"S": "ab"}, {"N": "1"}]}, 3 + (1 + 2) + (1 + 2)),
        ({"M": {"k": {"S": "ab"}}}, 3 + (1 + 1 + 2)),
    ],
)
def test_each_type_has_its_size(value: dict[str, Any], size_bytes: int) -> None:
    assert item_bytes({"name": value}) == len("name") + size_bytes


def test_names_count_in_utf_8() -> None:
    assert item_bytes({"é": {"S": "x"}, "pk": {"S": "y"}}) == 3 + 3


def test_what_is_no_type_is_told() -> None:
    with pytest.raises(ValueError, match="X"):
        item_bytes({"a": {"X": 1}})
