"""Bugs of those who decide when: of a queue's pace, and of each job's own time."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from ringfence import relay, settle
from ringfence.job import Millis
from ringfence.memory.limiter import MemoryLimiter
from ringfence.memory.queue import MemoryQueue
from ringfence.outcome import Disposition, Release
from ringfence.pace import Pacer
from ringfence.ports import Lease
from ringfence.queue_settings import QueueSettings
from ringfence.relay import Relay
from ringfence.retry import Backoff
from ringfence.sender import Sender, Sent

from .bug import Bug, rewritten, together
from .world import Parts

# --- the pace ------------------------------------------------------------------------------------------------------------

STRICT = {"rate_per_second": 0.5, "burst": 1, "high_water_mark": None}
"""A pace of which every breach shows."""


class ForgetsItsSchedule(MemoryLimiter):
    def reserve(self, queue: str, count: int, rate: Any, within: Millis | None = None) -> list[Millis]:
        self._reserved.clear()
        return super().reserve(queue, count, rate, within)


def drops_waits() -> AbstractContextManager[Any]:
    original = Sender.push

    def push(self: Sender, queue: str, jobs: Sequence[Any], waits: Sequence[Millis]) -> Sent[Any]:
        return original(self, queue, jobs, [0] * len(waits))

    return patch.object(Sender, "push", push)


def looks_at_the_depth_and_ignores_it() -> AbstractContextManager[Any]:
    original = Pacer._room

    def room(self: Pacer, queue: str, mark: int, wanted: int) -> int:
        original(self, queue, mark, wanted)
        return wanted

    return patch.object(Pacer, "_room", room)


def believes_a_depth_for_ever() -> AbstractContextManager[Any]:
    return patch("ringfence.pace.DEPTH_SECONDS", 1e6)


# --- a job's own time ----------------------------------------------------------------------------------------------------


class CarriesAtOnce(Relay):
    def _delay_seconds(self, job: Any) -> int:
        return 0 if relay._rides_in_its_ticket(job) else super()._delay_seconds(job)


def retries_at_once() -> AbstractContextManager[Any]:
    original = settle._fail

    def fail(*args: Any) -> Disposition:
        disposition = original(*args)
        return Release() if isinstance(disposition, Release) else disposition

    return together(
        rewritten("retry_soon", set=lambda change, *_: {**change.set, "run_at": None}),
        rewritten("retry_later", set=lambda change, *_: {**change.set, "run_at": 0}),
        lambda: patch.object(settle, "_fail", fail),
    )


def forgets_the_least_delay() -> AbstractContextManager[Any]:
    original = Backoff.delay
    return patch.object(Backoff, "delay", lambda self, attempt, source, _least=0.0: original(self, attempt, source))


# --- how long one waits --------------------------------------------------------------------------------------------------


class HoldsThirtyTimesAsLong(MemoryQueue):
    def lease(self, max_tickets: int, lease_seconds: float, wait_seconds: float = 0.0) -> list[Lease]:
        return super().lease(max_tickets, 30 * lease_seconds, wait_seconds)

    def extend(self, leases: Sequence[Lease], lease_seconds: float) -> list[Lease]:
        return super().extend(leases, 30 * lease_seconds)


class GivesBackLate(MemoryQueue):
    def release(self, leases: Sequence[Lease], delay_seconds: float = 0.0) -> None:
        super().release(leases, delay_seconds + 300.0)


TIME_BUGS: tuple[Bug, ...] = (
    Bug("forgets what it has given out", ("the_pace_is_kept",), lambda: Parts(limiter=ForgetsItsSchedule), lives=STRICT),
    Bug(
        "never asks the limiter",
        ("the_pace_is_kept",),
        planted=lambda: patch.object(QueueSettings, "rate", None),
        lives=STRICT,
    ),
    Bug(
        "takes every queue for one without a pace",
        ("the_pace_is_kept", "the_high_water_mark_holds"),
        planted=lambda: patch.object(Pacer, "is_free", lambda *_: True),
        lives={**STRICT, "high_water_mark": 1},
    ),
    Bug("pushes everything at once", ("the_pace_is_kept",), planted=drops_waits, lives=STRICT),
    Bug(
        "ignores the high-water mark",
        ("the_high_water_mark_holds",),
        planted=looks_at_the_depth_and_ignores_it,
        lives={"high_water_mark": 1},
    ),
    Bug(
        "believes a depth for ever",
        ("the_high_water_mark_holds",),
        planted=believes_a_depth_for_ever,
        lives={"high_water_mark": 3},
    ),
    Bug("lets retries be visible at once", ("nothing_starts_early",), planted=retries_at_once),
    Bug("forgets how long a job wants to wait", ("nothing_starts_early",), planted=forgets_the_least_delay),
    Bug(
        "pushes a job that rides in its ticket without its delay",
        ("nothing_starts_early",),
        lambda: Parts(relay=CarriesAtOnce),
    ),
    Bug(
        "holds a message for thirty leases",
        ("every_job_goes_on_in_time",),
        lambda: Parts(queue=HoldsThirtyTimesAsLong),
        kinds=("crash before", "crash after"),
    ),
    Bug("gives messages back five minutes late", ("every_job_goes_on_in_time",), lambda: Parts(queue=GivesBackLate)),
    Bug(
        "puts off by an hour what is to be tried again",
        ("every_job_goes_on_in_time",),
        planted=rewritten("retry_later", set=lambda change, *_: {**change.set, "run_at": change.set["run_at"] + 3_600_000}),
    ),
)
