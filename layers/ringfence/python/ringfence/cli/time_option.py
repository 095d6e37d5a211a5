"""An option that is a moment in time: RFC 3339, as the API takes it."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import click
import msgspec


class Time(click.ParamType[datetime]):
    """Converts to a time that knows its offset: nobody is to guess whose nine o'clock was meant."""

    name = "time"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> datetime:
        try:
            time = msgspec.convert(value, datetime)
        except msgspec.ValidationError:
            self.fail(f"{value!r} is not a time such as 2026-12-24T09:00:00+01:00 (RFC 3339)", param, ctx)
        if time.tzinfo is None:
            self.fail(f"{value!r} has no offset from UTC: add one such as +01:00, or Z for UTC itself", param, ctx)
        return time


TIME = Time()
