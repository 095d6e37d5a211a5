"""Durations as people write them: ``250ms``, ``30s``, ``1.5m``, ``1h30m``, ``7d``; a bare number is seconds."""

from __future__ import annotations

import math
import re

_PART = re.compile(r"(\d+(?:\.\d+)?)(ms|s|m|h|d)")
_BARE = re.compile(r"\d+(?:\.\d+)?")
_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def seconds_of(written: str | float) -> float:
    """Raises `ValueError` for anything else, and for what is longer than any number can say."""
    seconds = _seconds_of(written)
    if not math.isfinite(seconds):
        raise ValueError(f"{written!r} is not a duration: it has no end")
    return seconds


def _seconds_of(written: str | float) -> float:
    if isinstance(written, int | float):
        return float(written)
    text = written.strip()
    if _BARE.fullmatch(text):
        return float(text)
    parts = _PART.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        raise ValueError(f"{written!r} is not a duration such as 30s, 1.5m, 1h30m or 7d")
    return sum(float(number) * _UNIT_SECONDS[unit] for number, unit in parts)
