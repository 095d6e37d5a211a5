"""Arguments of the wrong type, told by their names before anything is sent."""

from __future__ import annotations

from typing import Any

import msgspec

NONE = type(None)

_WORDS: dict[type, str] = {
    str: "text",
    int: "a whole number",
    float: "a number",
    bool: "True or False",
    NONE: "None",
    msgspec.UnsetType: "left out",
}


def check(*types: type, **arguments: Any) -> None:
    """Raise `TypeError` for an argument that is of none of these types. Its value is not told: it may be a secret.

    bytes are no text: they would travel as base64, and be another name or key than was meant.
    """
    for name, value in arguments.items():
        if not isinstance(value, types):
            wanted = " or ".join(_WORDS.get(each, f"a {each.__name__}") for each in types)
            raise TypeError(f"{name} is to be {wanted}, not {_WORDS[NONE] if value is None else type(value).__name__}")
