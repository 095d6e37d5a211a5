"""EventBridge's six-field cron expressions, in UTC: numbers, names, lists, ranges and steps.

https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-cron-expressions.html
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from ringfence.local.template import BadTemplate

_MONTHS = {
    name: n for n, name in enumerate(("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"), 1)
}
_DAYS = {name: n for n, name in enumerate(("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"), 1)}
_SEARCH_DAYS = 366 * 5


@dataclass(frozen=True, slots=True)
class Cron:
    """The moments at which every field matches; days of month and of week as EventBridge has them (one of them is ``?``)."""

    minutes: frozenset[int]
    hours: frozenset[int]
    days: frozenset[int]
    months: frozenset[int]
    weekdays: frozenset[int]
    years: frozenset[int]

    @classmethod
    def parse(cls, expression: str, fields: list[str]) -> Cron:
        """Raises `BadTemplate` for what it does not know (``L``, ``W`` and ``#``)."""
        try:
            minutes, hours, days, months, weekdays, years = fields
            return cls(
                _values(minutes, 0, 59, {}),
                _values(hours, 0, 23, {}),
                _values(days, 1, 31, {}),
                _values(months, 1, 12, _MONTHS),
                _values(weekdays, 1, 7, _DAYS),
                _values(years, 1970, 2199, {}),
            )
        except ValueError:
            raise BadTemplate(f"ringfence dev cannot imitate the schedule {expression!r}") from None

    def after(self, moment: datetime) -> datetime:
        """The first matching minute after ``moment``."""
        start = moment.replace(second=0, microsecond=0) + timedelta(minutes=1)
        for n in range(_SEARCH_DAYS):
            day = (start + timedelta(days=n)).date()
            if not self._has_day(day.year, day.month, day.day, day.isoweekday() % 7 + 1):
                continue
            for hour in sorted(self.hours):
                for minute in sorted(self.minutes):
                    found = start.replace(year=day.year, month=day.month, day=day.day, hour=hour, minute=minute)
                    if found >= start:
                        return found
        return start + timedelta(days=_SEARCH_DAYS)

    def _has_day(self, year: int, month: int, day: int, weekday: int) -> bool:
        return year in self.years and month in self.months and day in self.days and weekday in self.weekdays


def _values(field: str, lowest: int, highest: int, names: dict[str, int]) -> frozenset[int]:
    found: set[int] = set()
    for part in field.upper().split(","):
        span, _, step = part.partition("/")
        if span in ("*", "?"):
            first, last = lowest, highest
        else:
            one, _, other = span.partition("-")
            first = _number(one, names)
            last = _number(other, names) if other else highest if step else first
        found.update(range(first, last + 1, int(step or 1)))
    if not found or min(found) < lowest or max(found) > highest:
        raise ValueError(field)
    return frozenset(found)


def _number(text: str, names: dict[str, int]) -> int:
    return names[text] if text in names else int(text)
