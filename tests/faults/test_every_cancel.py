"""A cancel against every step of a job's life: before it, after it, and with the whole rest of that life between the cancel's
look and its write. Whatever was answered is what became of the job (C32)."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable
from typing import Any

import pytest

from ringfence import App, Context, Dead, Retry
from ringfence.acceptance import Submission
from ringfence.errors import Rejected
from ringfence.gateway import Gateway
from ringfence.ids import derived_job_id
from ringfence.job import State
from ringfence.testing.port_faults import Call, Fault, Faulty, When
from ringfence.testing.steps import Steps
from ringfence.testing.system import MemorySystem

KEY = "the one request"
JOB_ID = derived_job_id("default", KEY)
LONG_ENOUGH_SECONDS = 1_000.0


def succeed(_ctx: Context) -> None: ...


def fail_once(ctx: Context) -> None:
    if ctx.attempt == 1:
        raise Retry("again", after_seconds=5)


def die(_ctx: Context) -> None:
    raise Dead("no use")


ENDS: dict[str, tuple[Callable[[Context], None], State]] = {
    "succeeds": (succeed, State.SUCCEEDED),
    "is tried again": (fail_once, State.SUCCEEDED),
    "dies": (die, State.DEAD),
}


class Life:
    """A job that was accepted, relayed and run, with its effect and how often it was begun."""

    def __init__(self, end: str, steps: Steps) -> None:
        self.begun = 0
        code, self.own_end = ENDS[end]
        app = App()

        @app.job("job")
        def job(ctx: Context) -> None:
            self.begun += 1
            ctx.effects.update("Counts", {"job": ctx.job_id}, add={"runs": 1})
            code(ctx)

        self.here = MemorySystem(app, tables={"Counts": ["job"]}, wrap=steps.wrap)
        self.answers: list[State | None] = []
        """Of cancels, in their order; None: there is no such job."""

    def passes(self) -> None:
        """Every hop, until the job has ended and nothing is left of it."""
        self.here.gateway.submit("default", [Submission(name="job", payload="{}", idempotency_key=KEY)])
        self.here.run_relay()
        for _ in range(3):
            self.here.run_worker()
            self.here.clock.sleep(LONG_ENOUGH_SECONDS)

    def cancel(self, ledger: Any = None) -> None:
        """By another process, with this ledger in between."""
        here = self.here
        services = dataclasses.replace(here.services, ledger=ledger or here.memory_ledger)
        gateway = Gateway(services, here.log, here.queues)
        try:
            self.answers.append(gateway.cancel("default", JOB_ID).state)
        except Rejected as refusal:
            self.answers.append({404: None}[refusal.status])

    def check(self) -> None:
        (answer,) = self.answers
        row = self.here.job(JOB_ID)
        effect = self.here.ledger.read_item("Counts", {"job": JOB_ID})
        assert row.state in (State.CANCELLED, self.own_end)
        assert effect == ({"job": JOB_ID, "runs": 1} if row.state is State.SUCCEEDED else None)
        if answer is None:
            assert row.state is self.own_end, "nobody was told of a cancel"
        elif answer.terminal:
            assert row.state is answer
        elif answer is not State.RUNNING:
            raise AssertionError(f"a waiting job is cancelled at once, and not {answer}")
        if row.state is State.CANCELLED and row.token == 0:
            assert self.begun == 0
        assert self.here.memory_queues["default"].bodies() == []
        assert self.here.gateway.cancel("default", JOB_ID) == row, "a second cancel changes nothing"


def every_step() -> list[Any]:
    strikes = []
    for end in ENDS:
        steps = Steps()
        life = Life(end, steps)
        life.passes()
        assert life.here.job(JOB_ID).state is life.own_end
        strikes += [(end, number, when) for number in range(len(steps.calls)) for when in ("before", "after")]
    return [pytest.param(*strike, id="-".join(map(str, strike))) for strike in strikes]


STRIKES = every_step()


@pytest.mark.parametrize(("end", "number", "when"), STRIKES)
def test_c32_a_cancel_at_any_step_is_answered_with_what_becomes_of_the_job(end: str, number: int, when: When) -> None:
    life = Life(end, Steps(number, when, lambda _call: life.cancel()))
    life.passes()
    life.check()


@pytest.mark.parametrize(("end", "number", "when"), STRIKES)
def test_c32_a_cancel_that_looked_at_any_step_and_writes_at_the_end_changes_no_end(end: str, number: int, when: When) -> None:
    waits, go_on = threading.Event(), threading.Event()

    def wait(_call: Call) -> None:
        waits.set()
        go_on.wait(10)

    def begin(_call: Call) -> None:
        ledger = Faulty(life.here.memory_ledger, [Fault(method="write", act=wait, when="before")])
        cancelling.append(threading.Thread(target=life.cancel, args=(ledger,), daemon=True))
        cancelling[0].start()
        while cancelling[0].is_alive() and not waits.wait(0.001):
            pass

    cancelling: list[threading.Thread] = []
    life = Life(end, Steps(number, when, begin))
    life.passes()
    go_on.set()
    cancelling[0].join(10)
    life.check()


def test_c32_a_cancel_of_what_nobody_accepted_is_unknown() -> None:
    life = Life("succeeds", Steps())
    life.cancel()
    assert life.answers == [None]
