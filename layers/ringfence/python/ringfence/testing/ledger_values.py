"""The part of the ledger's contract that is about the user's items: their values are kept exactly, or refused at once."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pytest

from ringfence.effects import Check, Delete, Effect, Put, Update
from ringfence.errors import Rejected
from ringfence.ports import Ledger
from ringfence.testing.effect_steps import ensure_rejected, land
from ringfence.testing.given import Given

EXACT_VALUES: dict[str, Any] = {
    "beyond a double": 2**53 + 1,
    "38 digits": int("9" * 38),
    "a large power": 10**100,
    "a float": 0.1,
    "a small float": 5e-100,
    "a decimal": Decimal("1.50"),
    "a negative": -7,
    "true": True,
    "none": None,
    "bytes": b"\x00\xff",
    "unicode": "🐎\u202e\x01",
    "empty text": "",
    "a list": [1, "a", [], {}, None],
    "a map": {"a": {"b": [1.5]}},
    "numbers": {1, 2},
    "strings": {"a", "b"},
    "byte strings": {b"a"},
}

READ_AS: dict[str, Any] = {"a float": Decimal("0.1"), "a small float": Decimal("5E-100")}
"""What differs when read again: numbers that are not whole are decimals."""

UNKEEPABLE: dict[str, Any] = {
    "not a number": math.nan,
    "infinity": math.inf,
    "39 digits": int("9" * 39),
    "too large": 1e300,
    "too small": 1e-200,
    "an object": object(),
    "an empty set": set(),
    "a mixed set": {1, "a"},
    "a lone surrogate": "\udcff",
    "a key that is no string": {1: 2},
}


def user(**more: Any) -> dict[str, Any]:
    return {"email": "ada@example.org", **more}


class LedgerValues:
    """What an item may hold, what an effect may say, and `read_item`."""

    @pytest.fixture
    def email(self, given: Given) -> str:
        """A key of its own for each test."""
        return f"{given.mark()}@example.org"

    @pytest.mark.parametrize("name", EXACT_VALUES)
    def test_values_are_kept_exactly(self, given: Given, ledger: Ledger, email: str, name: str) -> None:
        value = EXACT_VALUES[name]
        land(given, ledger, Put(table="Users", item={"email": email, "value": value}))
        found = ledger.read_item("Users", {"email": email})
        assert found is not None
        assert found["value"] == READ_AS.get(name, value)
        assert not isinstance(value, int) or type(found["value"]) is type(value)

    @pytest.mark.parametrize("value", UNKEEPABLE.values(), ids=UNKEEPABLE)
    def test_what_cannot_be_kept_is_the_jobs_fault(self, given: Given, ledger: Ledger, email: str, value: Any) -> None:
        ensure_rejected(given, ledger, Put(table="Users", item={"email": email, "value": value}))
        ensure_rejected(given, ledger, Update(table="Users", key={"email": email}, set={"value": value}))

    def test_sets_and_numbers_are_added_to(self, given: Given, ledger: Ledger, email: str) -> None:
        for add in ({"n": 1, "s": {"a"}}, {"n": 0.5, "s": {"a", "b"}}):
            land(given, ledger, Update(table="Users", key={"email": email}, add=add))
        found = ledger.read_item("Users", {"email": email})
        assert found == {"email": email, "n": Decimal("1.5"), "s": {"a", "b"}}

    @pytest.mark.parametrize(
        "effect",
        [
            Put(table="Users", item={"email": ""}),
            Put(table="Users", item={}, unless_exists=True),
            Put(table="Users", item=user(), version=-1),
            Update(table="Users", key=user()),
            Update(table="Users", key=user(), set={"n": 1}, add={"n": 1}),
            Update(table="Users", key=user(), set={"version": 1}, version=1),
            Update(table="Users", key=user(), set={"email": "other"}),
            Update(table="Users", key=user(), add={"n": "one"}),
            Check(table="Users", key={}),
            Check(table="Users", key=user(), exists=False, version=1),
        ],
        ids=repr,
    )
    def test_an_effect_no_store_would_take_is_the_jobs_fault(self, given: Given, ledger: Ledger, effect: Effect) -> None:
        ensure_rejected(given, ledger, effect)

    def test_a_table_that_is_not_there_is_named_with_those_that_are(self, given: Given, ledger: Ledger) -> None:
        nowhere = Put(table="Nowhere", item=user())
        with pytest.raises(Rejected, match=r"no table Nowhere; .* Users, Visits") as written:
            ledger.write(given.success(given.running()), [nowhere], request_token=given.mark())
        with pytest.raises(Rejected, match=r"no table Nowhere; .* Users, Visits") as read:
            ledger.read_item("Nowhere", user())
        assert (written.value.kind, read.value.kind) == ("bad-effect", "bad-effect")

    def test_two_effects_on_one_item_are_the_jobs_fault(self, given: Given, ledger: Ledger, email: str) -> None:
        first = Put(table="Users", item={"email": email})
        ensure_rejected(given, ledger, first, Delete(table="Users", key={"email": email}))

    def test_adding_a_number_to_a_text_is_the_jobs_fault(self, given: Given, ledger: Ledger, email: str) -> None:
        land(given, ledger, Put(table="Users", item={"email": email, "n": "one"}))
        ensure_rejected(given, ledger, Update(table="Users", key={"email": email}, add={"n": 1}))

    def test_more_effects_than_a_transaction_takes_are_refused(self, given: Given, ledger: Ledger) -> None:
        puts = [Put(table="Users", item={"email": f"{n}@example.org"}) for n in range(100)]
        with pytest.raises(Rejected) as refusal:
            ledger.write(given.success(given.running()), puts, request_token=given.mark())
        assert refusal.value.kind == "too-many-effects"

    def test_a_key_that_is_not_the_tables_cannot_be_read(self, ledger: Ledger) -> None:
        for table, key in (("Nowhere", user()), ("Visits", user()), ("Users", {"email": ""})):
            with pytest.raises(Rejected) as refusal:
                ledger.read_item(table, key)
            assert refusal.value.kind == "bad-effect"
