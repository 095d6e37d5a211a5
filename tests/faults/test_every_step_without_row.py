"""A job without a row, struck at every single call between the core and its adapters, on each of its three ways.

Whatever dies, is out of reach or loses its reply, and wherever: what was answered with a 202 runs at least once, nothing is
left behind, and a job that got a row has ended there. That it runs only once is promised of none.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest

from ringfence import App, Context
from ringfence.acceptance import Accepted, Submission
from ringfence.errors import Unavailable
from ringfence.job import Guarantee
from ringfence.testing.port_faults import Call, Crash, When
from ringfence.testing.steps import Steps
from ringfence.testing.system import MemorySystem

LEASE_SECONDS = 10.0


class CountedIds:
    """The same in every process: where a job lies, and so the order of the calls, depends on its id."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def job(self) -> str:
        return f"job{next(self._numbers)}"

    def mark(self) -> str:
        return f"mark{next(self._numbers)}"


class System(MemorySystem):
    """Remembers what was accepted and what ran."""

    def __init__(self, steps: Steps) -> None:
        app = App()
        self.accepted: list[str] = []
        self.runs: list[str] = []

        @app.job("work", timeout="60s")
        def work(ctx: Context) -> None:
            self.runs.append(ctx.job_id)

        super().__init__(app, wrap=steps.wrap, lease_seconds=LEASE_SECONDS)
        self.ids = CountedIds()  # type: ignore[assignment]
        self.build()

    def accept(self, **more: Any) -> None:
        light = Submission(name="work", payload="{}", guarantee=Guarantee.AT_LEAST_ONCE, **more)
        self.accepted += [each.job.job_id for each in self.gateway.submit("default", [light]) if isinstance(each, Accepted)]

    def set_paused(self, paused: bool) -> None:
        """As an operator does, which is no step of the job's."""
        store: Any = self.queue_settings
        store._port.change("default", {"paused": paused})
        self.clock.sleep(5.0)


def straight(here: System) -> None:
    here.accept()
    here.run_relay()
    here.run_worker(here.worker("a"))


def parked(here: System) -> None:
    here.set_paused(True)
    here.accept()
    here.run_relay()
    here.set_paused(False)
    here.timers.run()
    here.run_worker(here.worker("a"))


def far(here: System) -> None:
    here.accept(delay_seconds=3_600)
    here.run_relay()
    here.clock.sleep(3_600)
    here.timers.run()
    here.run_worker(here.worker("a"))


WAYS: dict[str, Callable[[System], None]] = {"straight": straight, "parked": parked, "far": far}


def calls_of(way: str) -> list[str]:
    steps = Steps()
    here = System(steps)
    WAYS[way](here)
    assert here.runs == here.accepted
    return steps.calls


CALLS = {way: calls_of(way) for way in WAYS}
EVERY_STEP = [
    pytest.param(way, number, when, id=f"{way}-{number}-{call}-{when}")
    for way, calls in CALLS.items()
    for number, call in enumerate(calls)
    for when in ("before", "after")
]


def check(here: System) -> None:
    here.set_paused(False)
    for _ in range(100):
        here.run_relay()
        here.timers.run()
        here.run_worker(here.worker("b"))
        rows = here.memory_ledger.all_jobs()
        if set(here.accepted) <= set(here.runs) and all(row.state.terminal for row in rows):
            break
        here.clock.sleep(60.0)
    else:
        raise AssertionError(f"never ended: {here.memory_ledger.all_jobs()}")
    here.clock.sleep(LEASE_SECONDS * 2)
    here.run_worker(here.worker("the last worker"))
    assert here.memory_queues["default"].bodies() == []
    assert here.memory_ledger.line("default", 1) == []


def test_a_job_that_goes_straight_through_never_meets_the_ledger() -> None:
    assert [call for call in CALLS["straight"] if call.startswith("ledger")] == []
    assert [call for call in CALLS["parked"] if "write_many" in call] == ["ledger.write_many"]


@pytest.mark.parametrize(("way", "number", "when"), EVERY_STEP)
def test_a_crash_at_any_step_loses_nothing(way: str, number: int, when: When) -> None:
    def die(call: Call) -> None:
        raise Crash(call.method)

    here = System(Steps(number, when, die))
    with pytest.raises(Crash):
        WAYS[way](here)
    here.build()
    check(here)


@pytest.mark.parametrize(("way", "number", "when"), EVERY_STEP)
def test_a_store_out_of_reach_or_a_reply_lost_at_any_step_loses_nothing(way: str, number: int, when: When) -> None:
    def fail(call: Call) -> None:
        if call.method not in ("append", "write_many"):  # these tell failures by their answers, not by raising
            raise Unavailable(f"injected at {call.method}")

    steps = Steps(number, when, fail)
    here = System(steps)
    try:
        WAYS[way](here)
    except Unavailable:
        here.build()
    assert steps.struck
    check(here)
