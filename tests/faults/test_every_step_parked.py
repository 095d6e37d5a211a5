"""A job on its way through the line of a paused queue, struck at every single call between the core and its adapters.

What `test_every_step` asks of the straight way, asked of parking: whatever dies, freezes or loses its reply, and wherever, the
job ends, its effect is there once, and the queue is open again.
"""

from __future__ import annotations

import threading
from typing import Any

import pytest

from ringfence.acceptance import Accepted
from ringfence.errors import Unavailable
from ringfence.testing.port_faults import Call, Crash, Freeze, When
from ringfence.testing.steps import Steps
from ringfence.testing.system import MemorySystem

from .test_every_step import LEASE_SECONDS, check, now, system


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
    assert here.memory_ledger.line("default", 1) == []
    assert not here.queue_settings.read("default").line.waiting


def steps_of_a_life() -> list[str]:
    steps = Steps()
    life(system(steps), "a")
    return steps.calls


CALLS = steps_of_a_life()
EVERY_STEP = [
    pytest.param(number, when, id=f"{number}-{CALLS[number]}-{when}")
    for number in range(len(CALLS))
    for when in ("before", "after")
]


def test_the_way_through_the_line_has_the_steps_that_its_documentation_names() -> None:
    order = [
        "settings.read",
        "settings.join_line",
        "ledger.write_many",
        "settings.all",
        "ledger.line",
        "queue:default.push",
        "settings.open_line",
        "queue:default.lease",
        "queue:default.acknowledge",
    ]
    places = [CALLS.index(call) for call in order]
    assert places == sorted(places)


@pytest.mark.parametrize(("number", "when"), EVERY_STEP)
def test_a_crash_at_any_step_loses_nothing_and_doubles_nothing(number: int, when: When) -> None:
    def die(call: Call) -> None:
        raise Crash(call.method)

    here = system(Steps(number, when, die))
    with pytest.raises(Crash):
        life(here, "a")
    here.build()
    check_all(here, heal(here, "b"))


@pytest.mark.parametrize(("number", "when"), EVERY_STEP)
def test_a_store_out_of_reach_or_a_reply_lost_at_any_step_costs_only_time(number: int, when: When) -> None:
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


@pytest.mark.parametrize(("number", "when"), EVERY_STEP)
def test_whoever_freezes_past_the_lease_at_any_step_writes_nothing_late(number: int, when: When) -> None:
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
