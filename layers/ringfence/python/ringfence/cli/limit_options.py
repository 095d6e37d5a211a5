"""Options that set a limit or, with ``none``, take it away."""

from __future__ import annotations

import math
import re
from typing import Any

import click

NONE = "none"

_RATE = re.compile(r"(\d+(?:\.\d+)?)(?:/(s|m|h))?")
_COUNT_DIGITS = 18
_COUNT = re.compile(f"0*[1-9][0-9]{{0,{_COUNT_DIGITS - 1}}}")
_SECONDS = {None: 1, "s": 1, "m": 60, "h": 3600}


class PerSecond(click.ParamType[Any]):
    """``10/s``, ``30/m``, ``0.2`` → tickets a second."""

    name = "rate"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float | str:
        text = str(value).strip().lower()
        written = _RATE.fullmatch(text)
        if text == NONE:
            return NONE
        if written is None:
            self.fail(f"{value!r} is not a rate such as 10/s, 0.2/s or 30/m, nor none", param, ctx)
        per_second = float(written[1]) / _SECONDS[written[2]]
        if per_second == 0:
            self.fail(f"{value!r} is not a rate: --pause stops a queue, and --rate none takes its rate away", param, ctx)
        if not math.isfinite(per_second):
            self.fail(f"{value!r} is more than any queue takes", param, ctx)  # and JSON has no word for it but null
        return per_second


class HighWater(click.ParamType[Any]):
    """``5000`` → 5000."""

    name = "count"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        text = str(value).strip().lower()
        if text == NONE:
            return NONE
        if not _COUNT.fullmatch(text):
            self.fail(f"{value!r} is not a whole number from 1 to {'9' * _COUNT_DIGITS}, nor none", param, ctx)
        return int(text)


PER_SECOND, HIGH_WATER = PerSecond(), HighWater()


def shown_rate(per_second: float | None) -> str:
    """A rate as it would be written as an option."""
    return NONE if per_second is None else f"{per_second:g}/s"
