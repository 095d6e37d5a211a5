"""JSON that is kept as it was received: checked without being converted, hashed, compared.

Numbers never pass through a float or a DynamoDB number on their way to the job, so ``2**53+1``, ``1e300``, ``-0.0``, ``1E5``
and ``1.0`` come back as they went in.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from typing import Any, NoReturn

from ringfence.errors import Rejected

MAX_DEPTH = 32
"""Nested arrays and objects: DynamoDB's own limit for documents.
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html"""

MAX_NUMBER_CHARACTERS = 1024
"""Longer literals cost quadratic time in most readers, Python's included."""

_STRING_OR_BRACKET = re.compile(r'"(?:[^"\\]++|\\.)*+(?:"|$)|[\[\]{}]', re.DOTALL)
_SURROGATE = re.compile("[\ud800-\udfff]")


class _Number(str):
    """A number as it was written."""

    __slots__ = ()


def check(text: str, max_depth: int = MAX_DEPTH) -> Any:
    """Refuse JSON that some reader on the way could not take or would read differently.

    Raises `Rejected` (400) for text that is not JSON, for NaN and infinities, and (422) for more than ``max_depth`` levels,
    duplicate keys, numbers longer than `MAX_NUMBER_CHARACTERS` or beyond a double's range, and lone surrogates. Returns the
    value with numbers as the text they were written as.
    """
    check_depth(text, max_depth)
    try:
        value = json.loads(text, object_pairs_hook=_unique, parse_float=_float, parse_int=_int, parse_constant=_no_constant)
    except json.JSONDecodeError as fault:
        raise Rejected(f"not JSON: {fault}", kind="not-json", status=400) from None
    if "\\u" in text or _SURROGATE.search(text):
        _check_surrogates(value)
    return value


def canonical(text: str) -> str:
    """One form for all texts that say the same: keys sorted, no white space, one way to escape.

    Numbers are compared as they were written: ``1`` and ``1.0`` are different payloads, and so are ``1e2`` and ``100``.
    """
    return json.dumps(_tagged(check(text)), sort_keys=True, separators=(",", ":"))


def sha256(text: str) -> str:
    """Hex SHA-256 of the text in UTF-8."""
    return hashlib.sha256(text.encode()).hexdigest()


def check_depth(text: str, max_depth: int = MAX_DEPTH) -> None:
    """Refuse (422) JSON text nested deeper than that. What is not JSON passes or not; `check` tells."""
    depth = 0
    for match in _STRING_OR_BRACKET.finditer(text):
        token = match.group()
        if token in "[{":
            depth += 1
            if depth > max_depth:
                raise Rejected(f"nested deeper than {max_depth} levels", kind="too-deep")
        elif token in "]}":
            depth -= 1


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        seen: set[str] = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]
        raise Rejected(f"the key {twice!r} appears twice in one object", kind="duplicate-key")
    return members


def _int(literal: str) -> _Number:
    if len(literal) > MAX_NUMBER_CHARACTERS:
        raise Rejected(f"a number of more than {MAX_NUMBER_CHARACTERS} characters", kind="number-too-long")
    return _Number(literal)


def _float(literal: str) -> _Number:
    if not math.isfinite(float(literal)):
        raise Rejected(f"the number {literal[:40]} is beyond the range of a double", kind="number-out-of-range")
    return _int(literal)


def _no_constant(name: str) -> NoReturn:
    raise Rejected(f"{name} is not JSON", kind="not-json", status=400)


def _check_surrogates(value: Any) -> None:
    match value:
        case _Number():
            return
        case str():
            if _SURROGATE.search(value):
                raise Rejected("a lone surrogate is not a character", kind="lone-surrogate")
        case list():
            for element in value:
                _check_surrogates(element)
        case dict():
            for key, element in value.items():
                _check_surrogates(key)
                _check_surrogates(element)


def _tagged(value: Any) -> Any:
    """Numbers told apart from strings that look like them."""
    match value:
        case _Number():
            return ["#", str(value)]
        case list():
            return ["[", *(_tagged(element) for element in value)]
        case dict():
            return {key: _tagged(element) for key, element in value.items()}
    return value
