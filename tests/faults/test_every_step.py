"""One job through every hop, struck at every single call between the core and its adapters, before it and after it.

Whatever dies, freezes past its lease or loses its reply, and wherever: the job ends, and its effect is there once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from ringfence import App, Context, Put
from ringfence.acceptance import Accepted, Submission
from ringfence.errors import Unavailable
from ringfence.job import State
from ringfence.testing.port_faults import Call, Crash, Freeze, When
from ringfence.testing.steps import Steps
from ringfence.testing.system import MemorySystem

LEASE_SECONDS = 10.0
KEY = "the one request"


def app() -> App:
    made = App()

    @made.job("work", timeout="60s")
    def work(ctx: Context) -> dict[str, int]:
        ctx.write(Put(table="Once", item={"job": ctx.job_id, "token": ctx.token}, unless_exists=True))
        ctx.checkpoint({"half": True})
        ctx.effects.update("Counts", {"job": "all"}, add={"runs": 1})
        return {"token": ctx.token}

    return made


def system(steps: Steps) -> MemorySystem:
    return MemorySystem(app(), tables={"Once": ["job"], "Counts": ["job"]}, wrap=steps.wrap, lease_seconds=LEASE_SECONDS)


def now() -> Submission:
    return Submission(name="work", payload="{}", idempotency_key=KEY)


def far() -> Submission:
    return Submission(name="work", payload="{}", idempotency_key=KEY, delay_seconds=3_600)


ROUTES: dict[str, Callable[[], Submission]] = {"pushed by the relay": now, "released by the timers": far}


def life(here: MemorySystem, submission: Submission, worker: str) -> None:
    """One pass of every hop, each as its own process would make it."""
    here.gateway.submit("default", [submission])
    here.run_relay()
    if submission.delay_seconds:
        here.clock.sleep(submission.delay_seconds)
    here.timers.run()
    here.run_worker(here.worker(worker))


def heal(here: MemorySystem, submission: Submission, worker: str) -> str:
    """The client asks again with its key until it is answered, and every hop runs until the job has ended."""
    answer = here.gateway.submit("default", [submission])[0]
    while not isinstance(answer, Accepted):
        answer = here.gateway.submit("default", [submission])[0]
    for _ in range(100):
        here.run_relay()
        here.timers.run()
        here.run_worker(here.worker(worker))
        if here.job(answer.job.job_id).state.terminal:
            return answer.job.job_id
        here.clock.sleep(5.0 if here.job(answer.job.job_id).state is not State.SCHEDULED else 600.0)
    raise AssertionError(f"never ended: {here.job(answer.job.job_id)}")


def drain(here: MemorySystem) -> None:
    """Every message left behind is taken to its end: duplicates must be harmless to the last one."""
    for _ in range(50):
        here.clock.sleep(LEASE_SECONDS * 2)
        here.timers.run()
        here.run_worker(here.worker("the last worker"))
        if not here.memory_queues["default"].bodies():
            return
    raise AssertionError("a message is never acknowledged")


def check(here: MemorySystem, job_id: str) -> None:
    drain(here)
    job = here.job(job_id)
    assert job.state is State.SUCCEEDED
    assert here.memory_ledger.read_item("Counts", {"job": "all"}) == {"job": "all", "runs": 1}
    assert here.memory_ledger.read_item("Once", {"job": job_id}) is not None
    assert job.result == f'{{"token":{job.token}}}'


def steps_of(route: str) -> list[str]:
    steps = Steps()
    here = system(steps)
    life(here, ROUTES[route](), "a")
    assert here.memory_ledger.read_item("Counts", {"job": "all"}) == {"job": "all", "runs": 1}
    return steps.calls


def every_step() -> list[Any]:
    strikes: list[tuple[str, int, When]] = [
        (route, number, when) for route in ROUTES for number in range(len(steps_of(route))) for when in ("before", "after")
    ]
    return [pytest.param(*strike, id=f"{strike[0]}-{strike[1]}-{strike[2]}") for strike in strikes]


def test_the_way_of_a_job_has_the_steps_that_the_design_names() -> None:
    calls = steps_of("pushed by the relay")
    order = [
        "ledger.register",
        "log.append",
        "queue:default.push",
        "queue:default.lease",
        "ledger.write",
        "ledger.write_effects",
        "ledger.write",
        "ledger.write",
        "queue:default.acknowledge",
    ]
    assert [call for call in calls if call in order] == order
    assert "ledger.due" in steps_of("released by the timers")


@pytest.mark.parametrize(("route", "number", "when"), every_step())
def test_a_crash_at_any_step_loses_nothing_and_doubles_nothing(route: str, number: int, when: When) -> None:
    def die(call: Call) -> None:
        raise Crash(call.method)

    steps = Steps(number, when, die)
    here = system(steps)
    with pytest.raises(Crash):
        life(here, ROUTES[route](), "a")
    here.build()
    check(here, heal(here, ROUTES[route](), "b"))


@pytest.mark.parametrize(("route", "number", "when"), every_step())
def test_a_store_out_of_reach_or_a_reply_lost_at_any_step_costs_only_time(route: str, number: int, when: When) -> None:
    def fail(call: Call) -> None:
        if call.method == "append":
            return  # a log tells failures by its answer, not by raising
        raise Unavailable(f"injected at {call.method}")

    steps = Steps(number, when, fail)
    here = system(steps)
    try:
        life(here, ROUTES[route](), "a")
    except Unavailable:
        here.build()
    assert steps.struck
    check(here, heal(here, ROUTES[route](), "b"))


@pytest.mark.parametrize(("route", "number", "when"), every_step())
def test_c28_whoever_freezes_past_the_lease_at_any_step_writes_nothing_late(route: str, number: int, when: When) -> None:
    gate = Freeze()
    steps = Steps(number, when, gate)
    here = system(steps)
    frozen = threading.Thread(target=life, args=(here, ROUTES[route](), "a"), daemon=True)
    frozen.start()
    gate.wait_until_frozen()
    here.clock.sleep(LEASE_SECONDS * 3)
    job_id = heal(here, ROUTES[route](), "b")
    winner = here.job(job_id)
    gate.thaw()
    frozen.join(10)
    assert not frozen.is_alive()
    assert here.job(job_id) == winner
    check(here, job_id)
