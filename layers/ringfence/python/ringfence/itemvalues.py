"""Values of the user's own items: stored exactly, or refused before anything is written.

DynamoDB keeps numbers as decimals of at most 38 digits between 1E-130 and 9.99E+125, knows no infinity, no NaN and no negative
zero, and no empty set.
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AnySet
from decimal import Decimal
from typing import Any

from ringfence.errors import Rejected

MAX_DIGITS = 38
LARGEST_EXPONENT = 125
SMALLEST_EXPONENT = -130
MAX_DEPTH = 32

_SET_KINDS: tuple[tuple[type, ...], ...] = ((int, float, Decimal), (str,), (bytes,))

BAD_EFFECT = "bad-effect"
"""The ``kind`` of every `Rejected` that is the fault of an effect: no other attempt would end differently."""


def exact(item: Mapping[str, Any]) -> dict[str, Any]:
    """An item or key as the store will keep it: only None, bool, int, `Decimal`, str, bytes, list, dict and frozenset.

    Raises `Rejected` (``bad-effect``) naming the attribute whose value cannot be kept exactly.
    """
    return {_name(name): _exact(value, name, 1) for name, value in item.items()}


def number(value: Decimal) -> int | Decimal:
    """An int where the number is whole, else the decimal without trailing zeros; exact in either case."""
    numerator, denominator = value.as_integer_ratio()
    return numerator if denominator == 1 else _trimmed(value)


def number_text(value: int | Decimal) -> str:
    """A number that `exact` let pass, as DynamoDB is told it: a long row of zeros as an exponent."""
    text = str(value)
    return text if len(text) <= MAX_DIGITS else str(_trimmed(Decimal(value)))


def _exact(value: Any, path: str, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise _bad(path, f"is nested deeper than {MAX_DEPTH} levels")
    match value:
        case None | bool():
            return value
        case int() | float() | Decimal():
            return _number(value, path)
        case str():
            return _text(value, path)
        case bytes() | bytearray():
            return bytes(value)
        case list() | tuple():
            return [_exact(element, f"{path}[{index}]", depth + 1) for index, element in enumerate(value)]
        case Mapping():
            return {_name(name): _exact(element, f"{path}.{name}", depth + 1) for name, element in value.items()}
        case AnySet():
            return _set(value, path)
    raise _bad(path, f"is of type {type(value).__name__}, which an item cannot hold")


def _number(value: float | Decimal, path: str) -> int | Decimal:
    # repr gives a float's shortest exact name; Decimal(float) would spell out the binary fraction.
    decimal = Decimal(repr(value)) if isinstance(value, float) else Decimal(value)
    if not decimal.is_finite():
        raise _bad(path, "is not a finite number")
    if not decimal:
        return 0
    trimmed = _trimmed(decimal)
    if len(trimmed.as_tuple().digits) > MAX_DIGITS:
        raise _bad(path, f"has more than {MAX_DIGITS} significant digits")
    if not SMALLEST_EXPONENT <= trimmed.adjusted() <= LARGEST_EXPONENT:
        raise _bad(path, "is beyond the range of a DynamoDB number")
    return number(trimmed)


def _trimmed(decimal: Decimal) -> Decimal:
    """Without trailing zeros, at any length: `Decimal.normalize` would round to its context."""
    sign, digits, exponent = decimal.as_tuple()
    kept = len(digits)
    while kept > 1 and digits[kept - 1] == 0:
        kept -= 1
    return Decimal((sign, digits[:kept], int(exponent) + len(digits) - kept))


def _text(value: str, path: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise _bad(path, "holds a lone surrogate, which is not a character") from None
    return value


def _name(name: Any) -> str:
    if not isinstance(name, str):
        raise _bad(repr(name), "is an attribute name that is not a string")
    return _text(name, repr(name))


def _set(value: AnySet[Any], path: str) -> frozenset[Any]:
    if not value:
        raise _bad(path, "is an empty set, which an item cannot hold")
    for kinds in _SET_KINDS:
        if all(isinstance(element, kinds) and not isinstance(element, bool) for element in value):
            return frozenset(_exact(element, path, 1) for element in value)
    raise _bad(path, "is a set of something other than only numbers, only strings or only bytes")


def _bad(path: str, why: str) -> Rejected:
    return Rejected(f"the attribute {path} {why}", kind=BAD_EFFECT)
