"""When each of n tickets may go, so that never more than r·w + burst go in any window w: GCRA, as pure arithmetic.

The generic cell rate algorithm keeps one theoretical arrival time per queue, the time at which the next ticket is due if all
of them keep the interval; a ticket may come up to ``burst − 1`` intervals before its own. Many are reserved in one step, and
the steps of any number of relays add up to one schedule, because each starts from what the last one left.

``redis/lua/reserve.lua`` is the same arithmetic: whole microseconds, rounded so that nothing comes early.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import takewhile

from ringfence.job import Millis

Micros = int
"""Microseconds since the Unix epoch, or of a duration: below 2^53, so that Lua's numbers hold them exactly."""


@dataclass(frozen=True, slots=True)
class Rate:
    """How fast tickets may follow one another, and how many may come at once after a pause."""

    interval_nanos: int
    """Nanoseconds between two tickets, rounded up: never faster than asked for."""
    burst: int

    @classmethod
    def of(cls, per_second: float, burst: int) -> Rate:
        """The rate for so many tickets a second."""
        numerator, denominator = per_second.as_integer_ratio()
        return cls(-(-1_000_000_000 * denominator // numerator), burst)

    def spans(self, tickets: int) -> Micros:
        """How long so many intervals take, rounded up."""
        return -(-tickets * self.interval_nanos // 1_000)

    @property
    def tolerance(self) -> Micros:
        """How much before its theoretical arrival a ticket may come, rounded down."""
        return (self.burst - 1) * self.interval_nanos // 1_000


@dataclass(frozen=True, slots=True)
class Reserved:
    """What was given out so far."""

    arrival: Micros
    """The theoretical arrival time of the next ticket."""
    latest: Micros
    """The last release that was given out; no later one comes before it."""
    interval_nanos: int
    """The interval by which ``arrival`` was reckoned."""


def reserve(
    reserved: Reserved | None, rate: Rate, count: int, now: Micros, within: Micros | None = None
) -> tuple[Reserved | None, list[Millis]]:
    """The next ``count`` releases, or as many of them as fall within ``within`` microseconds from now.

    Returns what is reserved afterwards and how long each ticket has to wait, in milliseconds, rounded up, never shorter than
    the one before. A ``now`` that lies behind ``reserved`` (a slow clock) only makes the waits longer.
    """
    earliest = now if reserved is None else max(now, reserved.latest)
    start = earliest if reserved is None else _arrival(reserved, rate, earliest)
    given = releases(rate, earliest, start, count)
    if within is not None:
        given = list(takewhile(lambda release: release <= now + within, given))
    if not given:
        return reserved, []
    after = Reserved(start + rate.spans(len(given)), given[-1], rate.interval_nanos)
    return after, [-(-(release - now) // 1_000) for release in given]


def releases(rate: Rate, earliest: Micros, start: Micros, count: int) -> list[Micros]:
    """When ``count`` tickets may go of which the first has the theoretical arrival time ``start``."""
    return [max(earliest, start + rate.spans(ticket) - rate.tolerance) for ticket in range(count)]


def _arrival(reserved: Reserved, rate: Rate, earliest: Micros) -> Micros:
    """The theoretical arrival under the rate of now: what is owed is a number of tickets, and a change of the rate stretches or
    shortens the time in which they are made up for."""
    owed = max(0, reserved.arrival - earliest)
    return earliest + -(-owed * rate.interval_nanos // reserved.interval_nanos)
