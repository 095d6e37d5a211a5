"""Text from jobs made fit for a terminal: whatever a job says, it cannot move the cursor or turn the line round."""

from __future__ import annotations

import re

_NOT_ASCII = re.compile("[\x7f-\U0010ffff]")
_OUTSIDE_STRINGS_ONLY = str.maketrans("\n\r\t", "   ")


def safe(text: str) -> str:
    """The text with everything unprintable written out (``\\x1b``, ``\\u202e``): control characters, line ends, what reverses
    the direction of text, what cannot be seen."""
    return text if text.isprintable() else "".join(c if c.isprintable() else _escape(c) for c in text)


def json_line(text: str) -> str:
    """JSON text as one line of ASCII that says the same, numbers in their own spelling."""
    return _NOT_ASCII.sub(lambda found: _json_escape(found.group()), text.translate(_OUTSIDE_STRINGS_ONLY))


def shortened(text: str, characters: int) -> str:
    """The text, cut with an ellipsis."""
    return text if len(text) <= characters else text[: characters - 1] + "…"


def _escape(character: str) -> str:
    code = ord(character)
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _json_escape(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[i]:02x}{units[i + 1]:02x}" for i in range(0, len(units), 2))
