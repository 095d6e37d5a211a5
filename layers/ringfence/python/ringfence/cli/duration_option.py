"""An option that is a duration, in seconds."""

from __future__ import annotations

from typing import Any

import click

from ringfence.durations import seconds_of


class Duration(click.ParamType[float]):
    """Converts to seconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return seconds_of(value)
        except ValueError as fault:
            self.fail(str(fault), param, ctx)


DURATION = Duration()
