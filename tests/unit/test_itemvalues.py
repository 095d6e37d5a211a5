"""Values of the user's items: exact or refused."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ringfence.aws.effects import deserialized, serialized
from ringfence.errors import Rejected
from ringfence.itemvalues import exact, number

keepable_floats = st.floats(allow_nan=False, allow_infinity=False).filter(lambda x: x == 0 or 1e-130 <= abs(x) < 9.9e125)


@given(keepable_floats)
def test_a_float_is_kept_to_its_last_digit(value: float) -> None:
    (kept,) = exact({"x": value}).values()
    assert float(kept) == value


@given(st.integers(-(10**38) + 1, 10**38 - 1) | st.integers(0, 125).map(lambda power: 10**power))
def test_an_int_is_kept_whole(value: int) -> None:
    found = deserialized(serialized({"x": value}))["x"]
    assert (found, type(found)) == (value, int)


@given(st.decimals(allow_nan=False, allow_infinity=False, places=10, min_value=-(10**20), max_value=10**20))
def test_a_decimal_is_kept_by_value(value: Decimal) -> None:
    assert deserialized(serialized({"x": value}))["x"] == value


json_like = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**20), 10**20) | st.text(st.characters(codec="utf-8")) | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=3),
    max_leaves=10,
)


@given(json_like)
def test_what_an_item_holds_comes_back(value: Any) -> None:
    assert deserialized(serialized({"x": value})) == {"x": value}


@pytest.mark.parametrize(
    ("value", "found"),
    [
        (Decimal("1E+3"), 1000),
        (Decimal("1.500"), Decimal("1.5")),
        (Decimal("-0.0"), 0),
        (1e22, 10**22),
        (-0.0, 0),
        (True, True),
        ((1, 2), [1, 2]),
        (bytearray(b"a"), b"a"),
    ],
)
def test_what_has_several_spellings_gets_one(value: Any, found: Any) -> None:
    (kept,) = exact({"x": value}).values()
    assert (kept, type(kept)) == (found, type(found))


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (math.nan, "x is not a finite number"),
        (Decimal("Infinity"), "x is not a finite number"),
        (10**38 + 1, "x has more than 38 significant digits"),
        (10**126, "x is beyond the range"),
        (Decimal("1E-131"), "x is beyond the range"),
        (set(), "x is an empty set"),
        ({True}, "x is a set of something other"),
        ({(1, 2)}, "x is a set of something other"),
        ({1, math.nan}, "x is not a finite number"),
        ("\ud800", "x holds a lone surrogate"),
        (object(), "x is of type object"),
        ([{"deep": 1j}], r"x\[0\].deep is of type complex"),
        ({1: 2}, "1 is an attribute name that is not a string"),
    ],
)
def test_what_cannot_be_kept_is_refused_by_its_path(value: Any, why: str) -> None:
    with pytest.raises(Rejected, match=why) as refusal:
        exact({"x": value})
    assert refusal.value.kind == "bad-effect"


def test_nesting_ends_where_dynamodbs_does() -> None:
    deep: list[Any] = []
    for _ in range(31):
        deep = [deep]
    assert exact({"x": deep}) == {"x": deep}
    with pytest.raises(Rejected, match="nested deeper"):
        exact({"x": [deep]})


def test_a_number_read_is_an_int_where_it_is_whole() -> None:
    assert [type(number(Decimal(text))) for text in ("1", "1.0", "1E+2", "1.5")] == [int, int, int, Decimal]
