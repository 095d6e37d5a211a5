"""The time as AWS tells it: each of its answers carries a ``Date``, by which a wrong clock is found out and corrected.

Only for processes outside Lambda: there the clock is AWS's own, and what measures elapsed time may stand still between two
invocations. Before its first answer a process knows nothing better than its own clock; `claim.claim` looks at the time again
after its first call, before any code of a job runs.
"""

from __future__ import annotations

import calendar
import time
from collections.abc import Callable
from email.utils import parsedate
from typing import Any, NamedTuple

from ringfence.clock import SystemClock
from ringfence.job import Millis

TRUSTED_MS = 1_000
"""So far from what AWS says a clock may be and is believed: a server may keep its ``Date`` for a second, or be off itself."""

DRIFT = 500e-6
"""How far the time that elapses here may run from AWS's, as a share of itself: the most that NTP lets a clock be slewed.
https://www.ntp.org/documentation/4.2.8-series/clock/"""

TELL_MS = 60_000
"""A wrong clock is told of at most once in so long."""

_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Elapsed time that no correction moves and that goes on while the machine sleeps. On macOS CLOCK_MONOTONIC is that."""

_SENT = "ringfence_sent_ms"


class _Bounds(NamedTuple):
    """True time less elapsed time, as it was known at ``at``. In milliseconds."""

    least: float
    most: float
    at: int


class AwsClock(SystemClock):
    """The machine's clock as long as AWS's answers agree with it; else their time, carried on by the time that elapses.

    The corrected time is never ahead of AWS's: a job may start late, not early. It is behind by up to a second and the time of
    one round trip after the first answer, and by some hundredths of a second after many.
    """

    def __init__(self, on_wrong: Callable[[Millis], None] | None = None) -> None:
        """``on_wrong`` is told how far ahead (or, negative, behind) the machine's clock was found to be."""
        self.on_wrong = on_wrong
        self._bounds: _Bounds | None = None
        self._last_date: tuple[str | None, Millis] = (None, 0)
        self._tell_from = 0

    def now(self) -> Millis:
        wall, bounds = super().now(), self._bounds
        if bounds is None:
            return wall
        elapsed = elapsed_ms()
        return wall if _agrees(wall - elapsed, bounds, elapsed) else int(bounds.least) + elapsed

    def listen(self, client: Any) -> None:
        """Learn from every answer that this boto3 client gets, errors as well."""
        client.meta.events.register("request-created", self._on_request)
        client.meta.events.register("response-received", self._on_response)

    def hear(self, date: str, sent_ms: int, received_ms: int) -> None:
        """``date``: the header of an answer to what was sent and received at these `elapsed_ms`. Made when AWS's clock showed
        that second, somewhere between the two. One that is no date is passed over."""
        before, second = self._bounds, self._milliseconds(date)
        if second is None:
            return
        heard = _Bounds(second - received_ms, second + 999 - sent_ms, received_ms)
        self._bounds = heard if before is None else _together(before, heard)
        wall_offset = SystemClock.now(self) - elapsed_ms()
        if self.on_wrong is not None and received_ms >= self._tell_from and not _agrees(wall_offset, heard, received_ms):
            self._tell_from = received_ms + TELL_MS
            self.on_wrong(wall_offset - int(self._bounds.least))

    def _milliseconds(self, date: str) -> Millis | None:
        last, milliseconds = self._last_date
        if date == last:  # at a thousand answers a second, most are
            return milliseconds
        parsed = parsedate(date)
        if parsed is None:
            return None
        milliseconds = calendar.timegm(parsed) * 1_000
        self._last_date = date, milliseconds
        return milliseconds

    def _on_request(self, request: Any, **_more: Any) -> None:
        request.context[_SENT] = elapsed_ms()

    def _on_response(self, parsed_response: dict[str, Any] | None, context: dict[str, Any], **_more: Any) -> None:
        if parsed_response is None:  # no answer
            return
        answer = parsed_response.get("ResponseMetadata", {})
        date, sent_ms = answer.get("HTTPHeaders", {}).get("date"), context.get(_SENT)
        # Without an id it is not AWS that has answered, but some proxy.
        if date and sent_ms is not None and answer.get("RequestId"):
            self.hear(date, sent_ms, elapsed_ms())


def elapsed_ms() -> int:
    """Milliseconds since some moment before this process, the same for all processes of the machine."""
    return time.clock_gettime_ns(_STEADY) // 1_000_000


def _agrees(offset: int, bounds: _Bounds, elapsed: int) -> bool:
    """Whether a clock that is so far ahead of the elapsed time can be right, for all that AWS has said."""
    trusted = TRUSTED_MS + (elapsed - bounds.at) * DRIFT
    return bounds.least - trusted <= offset <= bounds.most + trusted


def _together(before: _Bounds, heard: _Bounds) -> _Bounds:
    """What both allow. The later one alone where they contradict each other: the machine may have been stood still."""
    drifted = (heard.at - before.at) * DRIFT
    least, most = max(before.least - drifted, heard.least), min(before.most + drifted, heard.most)
    return _Bounds(least, most, heard.at) if least <= most else heard


AWS_CLOCK = AwsClock()
"""The one of this process, which all its clients feed."""
