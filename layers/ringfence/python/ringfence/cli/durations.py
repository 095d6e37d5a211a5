"""Durations as people write them: ``10s``, ``1.5m``, ``2h``, ``7d``, ``250ms``; a bare number is seconds."""

from __future__ import annotations

import re
from typing import Any

import click

_SECONDS = {"": 1.0, "ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_WRITTEN = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|)")


class Duration(click.ParamType[float]):
    """Converts to seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        if isinstance(value, (int, float)):
            return float(value)
        written = _WRITTEN.fullmatch(str(value).strip().lower())
        if written is None:
            self.fail(f"{value!r} is not a duration such as 10s, 1.5m, 2h or 7d", param, ctx)
        return float(written[1]) * _SECONDS[written[2]]


DURATION = Duration()
