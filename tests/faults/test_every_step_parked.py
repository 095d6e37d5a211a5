"""A job on its way through the line of a paused queue, struck at every single call between the core and its adapters.

What `test_every_step` asks of the straight way, asked of parking, on the job's row and in a group: whatever dies, freezes or
loses its reply, and wherever, the job ends, its effect is there once, and the queue is open again.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest

from ringfence import sender
from ringfence.acceptance import Accepted
from ringfence.errors import Unavailable
from ringfence.testing.port_faults import Call, Crash, Freeze, When
from ringfence.testing.steps import Steps
from ringfence.testing.system import MemorySystem

from .test_every_step import LEASE_SECONDS, check, now, system

ALONE_AT_MOST = {"row": 1, "group": 0}
"""How a single job is parked, and how many newcomers may be for that."""


def set_paused(here: MemorySystem, paused: bool) -> None:
    """As an operator does, which is no step of the job's."""
    store: Any = here.queue_settings
    store._port.change("default", {"paused": paused})
    here.clock.sleep(5.0)


def life(here: MemorySystem, worker: str) -> None:
    """One pass of every hop, each as its own process would make it."""
    set_paused(here, True)
    here.gateway.submit("default", [now()])
    here.run_relay()
    set_paused(here, False)
    here.timers.run()
    here.run_worker(here.worker(worker))


def heal(here: MemorySystem, worker: str) -> str:
    """The client asks again with its key until it is answered, and every hop runs until the job has ended."""
    set_paused(here, False)
    answer = here.gateway.submit("default", [now()])[0]
    while not isinstance(answer, Accepted):
        answer = here.gateway.submit("default", [now()])[0]
    for _ in range(100):
        here.run_relay()
        here.timers.run()
        here.run_worker(here.worker(worker))
        if here.job(answer.job.job_id).state.terminal:
            return answer.job.job_id
        here.clock.sleep(5.0)
    raise AssertionError(f"never ended: {here.job(answer.job.job_id)}")


def check_all(here: MemorySystem, job_id: str) -> None:
    check(here, job_id)
    here.clock.sleep(60.0)
    here.timers.run()
    assert (here.memory_ledger.line("default", 1), here.memory_ledger.groups("default", 1)) == ([], [])
    assert not here.queue_settings.read("default").line.waiting


def steps_of_a_life(way: str) -> list[str]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sender, "ALONE_AT_MOST", ALONE_AT_MOST[way])
        steps = Steps()
        life(system(steps), "a")
    return steps.calls


CALLS = {way: steps_of_a_life(way) for way in ALONE_AT_MOST}
EVERY_STEP = [
    pytest.param(way, number, when, id=f"{way}-{number}-{call}-{when}")
    for way, calls in CALLS.items()
    for number, call in enumerate(calls)
    for when in ("before", "after")
]


@pytest.fixture(autouse=True)
def parked_so(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every job of a test is parked in the way that the test names."""
    monkeypatch.setattr(sender, "ALONE_AT_MOST", ALONE_AT_MOST[request.getfixturevalue("way")])


@pytest.mark.parametrize(
    ("way", "joins", "leaves"),
    [("row", "ledger.write_many", "settings.open_line"), ("group", "ledger.join_line", "ledger.leave_line")],
)
def test_the_way_through_the_line_has_the_steps_that_its_documentation_names(way: str, joins: str, leaves: str) -> None:
    order = [
        "settings.read",
        "settings.join_line",
        joins,
        "settings.all",
        "ledger.line",
        "ledger.groups",
        "queue:default.push",
        leaves,
        "queue:default.lease",
        "queue:default.acknowledge",
    ]
    places = [CALLS[way].index(call) for call in order]
    assert places == sorted(places)


@pytest.mark.parametrize(("way", "number", "when"), EVERY_STEP)
def test_a_crash_at_any_step_loses_nothing_and_doubles_nothing(way: str, number: int, when: When) -> None:
    def die(call: Call) -> None:
        raise Crash(call.method)

    here = system(Steps(number, when, die))
    with pytest.raises(Crash):
        life(here, "a")
    here.build()
    check_all(here, heal(here, "b"))


@pytest.mark.parametrize(("way", "number", "when"), EVERY_STEP)
def test_a_store_out_of_reach_or_a_reply_lost_at_any_step_costs_only_time(way: str, number: int, when: When) -> None:
    def fail(call: Call) -> None:
        if call.method not in ("append", "write_many"):  # these tell failures by their answers, not by raising
            raise Unavailable(f"injected at {call.method}")

    steps = Steps(number, when, fail)
    here = system(steps)
    try:
        life(here, "a")
    except Unavailable:
        here.build()
    assert steps.struck
    check_all(here, heal(here, "b"))


@pytest.mark.parametrize(("way", "number", "when"), EVERY_STEP)
def test_c28_whoever_freezes_past_the_lease_at_any_step_writes_nothing_late(way: str, number: int, when: When) -> None:
    gate = Freeze()
    here = system(Steps(number, when, gate))
    frozen = threading.Thread(target=life, args=(here, "a"), daemon=True)
    frozen.start()
    gate.wait_until_frozen()
    here.clock.sleep(LEASE_SECONDS * 3)
    job_id = heal(here, "b")
    winner = here.job(job_id)
    gate.thaw()
    frozen.join(10)
    assert not frozen.is_alive()
    assert here.job(job_id) == winner
    check_all(here, job_id)
