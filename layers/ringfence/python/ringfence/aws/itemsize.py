"""How large DynamoDB counts an item.

https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

NESTING_BYTES = 3
"""A list or map, whatever is in it."""

ELEMENT_BYTES = 1
"""Each element of a list or map, beside its own size."""


def item_bytes(item: Mapping[str, Mapping[str, Any]]) -> int:
    """Bytes of an item in the client's low-level form (``{"pk": {"S": "…"}, …}``): names and values."""
    return sum(len(name.encode()) + _value_bytes(value) for name, value in item.items())


def _value_bytes(typed: Mapping[str, Any]) -> int:
    ((kind, value),) = typed.items()
    match kind:
        case "S":
            return len(value.encode())
        case "N":
            return _number_bytes(value)
        case "B":
            return len(value)
        case "BOOL" | "NULL":
            return 1
        case "SS" | "BS" | "NS":
            return sum(_value_bytes({kind[0]: element}) for element in value)
        case "L":
            return NESTING_BYTES + sum(ELEMENT_BYTES + _value_bytes(element) for element in value)
        case "M":
            return NESTING_BYTES + sum(
                len(name.encode()) + ELEMENT_BYTES + _value_bytes(element) for name, element in value.items()
            )
    raise ValueError(f"not a DynamoDB type: {kind}")


def _number_bytes(text: str) -> int:
    """One byte, and one for each two significant digits; a sign may take another."""
    digits = text.upper().split("E")[0].lstrip("-").replace(".", "").strip("0")
    return 1 + (len(digits) + 1) // 2 + text.startswith("-")
