"""What an operator sets for a queue while it runs, and where its line of parked jobs stands."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from ringfence.errors import Rejected
from ringfence.job import Millis
from ringfence.rate import Rate

MIN_RATE_PER_SECOND, MAX_RATE_PER_SECOND = 1e-5, 100_000.0
"""From about one ticket a day to more than a queue takes."""

MAX_BURST = 1_000_000
MAX_HIGH_WATER_MARK = 1_000_000_000


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def refuse_zero_limits(changes: Mapping[str, Any]) -> None:
    """Raise `Rejected` (422, with a pointer) for a limit of 0: whoever sends one wants a pause, which is another setting."""
    for name in ("rate_per_second", "high_water_mark"):
        value = changes.get(name)
        if _is_number(value) and value == 0:
            raise Rejected(
                f'0 is no {name}: {{"paused": true}} stops the queue, and {{"{name}": null}} takes the limit away',
                pointer=f"/{name}",
            )


def _refused(name: str, expected: str) -> Rejected:
    return Rejected(f"{name} is {expected}", pointer=f"/{name}")


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueSettings:
    """The live settings of one queue. Raises `Rejected` (422, with a pointer) for a value out of range."""

    rate_per_second: float | None = None
    """Tickets a second, on average, retries and jobs that fall due included. None: as fast as they come."""
    burst: int = 1
    """Tickets that may come at once after a pause, where there is a rate: never more than rate · w + burst are released in any
    window of w seconds. That many become visible in it on Redis, which delays by the millisecond; on SQS it is rate · (w + 1) +
    burst, for its delays are whole seconds, rounded up, and the tickets of a whole second surface together.
    https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessageBatchRequestEntry.html"""
    paused: bool = False
    """Nothing is pushed: jobs are accepted and wait in line. What is in the queue already still runs."""
    high_water_mark: int | None = None
    """Tickets in the queue, waiting, leased and delayed, above which no more are pushed. None: no limit."""

    def __post_init__(self) -> None:
        rate, mark = self.rate_per_second, self.high_water_mark
        # A bool is an int to Python, and to nobody else.
        if rate is not None and not (_is_number(rate) and MIN_RATE_PER_SECOND <= rate <= MAX_RATE_PER_SECOND):
            raise _refused("rate_per_second", f"a number from {MIN_RATE_PER_SECOND:g} to {MAX_RATE_PER_SECOND:g}, or null")
        if not (_is_whole(self.burst) and 1 <= self.burst <= MAX_BURST):
            raise _refused("burst", f"a whole number from 1 to {MAX_BURST}")
        if not isinstance(self.paused, bool):
            raise _refused("paused", "true or false")
        if mark is not None and not (_is_whole(mark) and 1 <= mark <= MAX_HIGH_WATER_MARK):
            raise _refused("high_water_mark", f"a whole number from 1 to {MAX_HIGH_WATER_MARK}, or null")

    @property
    def rate(self) -> Rate | None:
        """Rate and burst as the limiter takes them."""
        return None if self.rate_per_second is None else Rate.of(self.rate_per_second, self.burst)

    @property
    def limits(self) -> bool:
        """Whether anything but the arrival of a job decides when its ticket is pushed."""
        return self.paused or self.rate_per_second is not None or self.high_water_mark is not None

    def changed(self, changes: Mapping[str, Any]) -> QueueSettings:
        """These settings with some of them changed. Raises `Rejected` for one that is unknown or out of range."""
        for name in changes:
            if name not in NAMES:
                raise Rejected(f"there is no such setting; there are: {', '.join(sorted(NAMES))}", pointer=f"/{name}")
        refuse_zero_limits(changes)
        return replace(self, **changes)


NAMES = frozenset(field.name for field in fields(QueueSettings))


@dataclass(frozen=True, slots=True, kw_only=True)
class Line:
    """Where the parked jobs of a queue stand in line. A place is a time: about when the job was parked, one millisecond apart
    from its neighbours, so that the order of places is the order of release."""

    waiting: bool = False
    """Jobs are parked, so newcomers are parked behind them."""
    last_place: Millis = 0
    """The place of the last that joined, ever."""
    open_from: Millis = 0
    """Since the line was opened: tickets of newcomers are not visible before this time, so that the last of the line, who
    joined at that very moment, go first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueState:
    """All there is to know of a queue before a ticket is pushed into it."""

    settings: QueueSettings = QueueSettings()
    line: Line = Line()

    def is_free(self, now: Millis) -> bool:
        """Whether tickets are pushed as they come, with nothing to ask and nobody to wait for."""
        return not self.settings.limits and not self.line.waiting and self.line.open_from <= now


def places(count: int, last_place: Millis) -> list[Millis]:
    """The places of ``count`` jobs of which the last has ``last_place``."""
    return list(range(last_place - count + 1, last_place + 1))
