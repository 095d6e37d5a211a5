"""What is there after a life, and how it differs from what should be: once, twice, never."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AnySet
from decimal import Decimal
from enum import StrEnum
from typing import Any

Row = Mapping[str, Any]
Held = dict[str, list[Row]]
"""By the name of a table, receiver or observation: what it holds."""


class Landed(StrEnum):
    """How often an effect is there."""

    ONCE = "once"
    TWICE = "twice"
    NEVER = "never"
    IN_PART = "in part"
    OTHERWISE = "otherwise"
    """Neither as it should be, nor twice, nor never."""


WORST_FIRST = (Landed.TWICE, Landed.IN_PART, Landed.NEVER, Landed.OTHERWISE, Landed.ONCE)


def rows_of(value: Any) -> list[Row]:
    """What a user observes, as rows: a mapping is one, a list or set has one for each element, all else is one value."""
    if isinstance(value, Mapping):
        return [value]
    if isinstance(value, list | tuple | AnySet):
        return [element if isinstance(element, Mapping) else {"value": element} for element in value]
    return [{"value": value}]


def changing(first: Held, second: Held) -> dict[str, frozenset[str]]:
    """By part: the attributes that two lives give other values though the code ran once in each: tokens, times, random ids."""
    return {part: frozenset(_differing(first[part], second[part])) for part in first}


def counts(held: Held) -> dict[str, int]:
    return {part: len(rows) for part, rows in held.items()}


def compare(before: Held, expected: Held, held: Held, unlike: Mapping[str, frozenset[str]]) -> dict[str, Landed]:
    """How often each part's effect is there. ``unlike`` names the attributes that are not compared."""
    return {part: _landed(*(_without(rows[part], unlike[part]) for rows in (before, expected, held))) for part in expected}


def _landed(before: Sequence[Row], expected: Sequence[Row], held: Sequence[Row]) -> Landed:
    is_held, is_expected = _bag(held), _bag(expected)
    if is_held == is_expected:
        return Landed.ONCE
    if len(held) > len(expected) or _moved_too_far(before, expected, held):
        return Landed.TWICE
    if is_held == _bag(before):
        return Landed.NEVER
    return Landed.IN_PART if len(held) < len(expected) else Landed.OTHERWISE


def _moved_too_far(before: Sequence[Row], expected: Sequence[Row], held: Sequence[Row]) -> bool:
    """Whether a number has gone beyond where it should be, on the way there."""
    for name in {name for row in expected for name in row}:
        was, should, is_now = (_sum(name, rows) for rows in (before, expected, held))
        if None not in (was, should, is_now) and (should - was) * (is_now - should) > 0:
            return True
    return False


def _sum(name: str, rows: Sequence[Row]) -> Any:
    """Of an attribute's numbers; None if it has other values, too."""
    values = [row[name] for row in rows if name in row]
    if not all(isinstance(value, int | float | Decimal) and not isinstance(value, bool) for value in values):
        return None
    return sum((Decimal(str(value)) for value in values), Decimal(0))


def _differing(first: Sequence[Row], second: Sequence[Row]) -> Iterable[str]:
    names = {name for row in (*first, *second) for name in row}
    return {name for name in names if _values(name, first) != _values(name, second)}


def _values(name: str, rows: Sequence[Row]) -> Counter[str]:
    return Counter(canonical(row.get(name)) for row in rows)


def _without(rows: Sequence[Row], names: frozenset[str]) -> list[Row]:
    return [{name: value for name, value in row.items() if name not in names} for row in rows]


def _bag(rows: Sequence[Row]) -> Counter[str]:
    return Counter(canonical(row) for row in rows)


def canonical(value: Any) -> str:
    """A value as text, the same for equal ones."""
    match value:
        case Mapping():
            return "{" + ", ".join(f"{name!r}: {canonical(value[name])}" for name in sorted(value, key=str)) + "}"
        case list() | tuple():
            return "[" + ", ".join(map(canonical, value)) + "]"
        case set() | frozenset():
            return "{" + ", ".join(sorted(map(canonical, value))) + "}"
        case bool():
            return repr(value)
        case int() | float() | Decimal():
            number = Decimal(str(value))
            return format(number.normalize(), "f") if number.is_finite() else str(number)
        case str() | bytes() | None:
            return repr(value)
    return repr(value)
