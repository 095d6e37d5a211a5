"""Workers whose clocks are wrong: it costs time and needless runs, never a second effect and never a job (C31)."""

from __future__ import annotations

import dataclasses
import itertools
import random
import threading
from collections.abc import Callable
from typing import Any

import pytest

from ringfence import App, Backoff, Context, Retry
from ringfence.job import Millis, State
from ringfence.ports import Clock
from ringfence.testing.system import MemorySystem
from ringfence.wire import Ticket

LEASE_SECONDS = 10.0
JOBS = 63
"""Of each of eight lives: five hundred in all."""
TURNS = 300


class Wrong:
    """Somebody's wall clock: the true one, shifted by what ``shift_ms`` says at each look."""

    def __init__(self, true: Clock, shift_ms: object) -> None:
        self._true, self._shift_ms = true, shift_ms

    def now(self) -> Millis:
        shift = self._shift_ms
        return self._true.now() + (shift() if callable(shift) else shift)  # type: ignore[operator]

    def monotonic(self) -> float:
        return self._true.monotonic()

    def sleep(self, seconds: float) -> None:
        self._true.sleep(seconds)

    def wait_until(self, condition: threading.Condition, monotonic: float) -> None:
        self._true.wait_until(condition, monotonic)


class Frozen(Wrong):
    """A wall clock that stopped."""

    def __init__(self, true: Clock) -> None:
        super().__init__(true, 0)
        self._stopped_at = true.now()

    def now(self) -> Millis:
        return self._stopped_at


MINUTES = 60_000


@pytest.mark.parametrize("seed", range(8))
def test_c31_no_effect_is_doubled_and_no_job_lost_whatever_the_clocks_say(seed: int) -> None:
    chance = random.Random(seed)
    app = App()

    @app.job("count")
    def count(ctx: Context) -> None:
        ctx.effects.update("Counts", {"job": ctx.job_id}, add={"runs": 1})
        if chance.random() < 0.2:
            raise ConnectionError

    here = MemorySystem(app, tables={"Counts": ["job"]}, lease_seconds=LEASE_SECONDS)
    clocks: list[Clock] = [
        Wrong(here.clock, 10 * MINUTES),
        Wrong(here.clock, -10 * MINUTES),
        Wrong(here.clock, lambda: chance.choice([0, 60 * MINUTES])),
        Wrong(here.clock, lambda: chance.choice([0, -60 * MINUTES])),
        Frozen(here.clock),
        here.clock,
    ]
    jobs = [here.submit("count", delay_seconds=chance.choice([0, 30]), max_attempts=50).job_id for _ in range(JOBS)]
    here.run_relay()
    tokens = dict.fromkeys(jobs, 0)
    for turn in range(TURNS):
        worker = here.worker(f"w{turn}", clock=chance.choice(clocks))
        leases = here.queues["default"].lease(chance.randint(1, 5), LEASE_SECONDS)
        if chance.random() < 0.3 and leases:
            here.clock.sleep(LEASE_SECONDS + 1)  # it fell asleep, and its tickets may have gone to others
        done = worker.handle(here.queues["default"], leases)
        if chance.random() < 0.8:
            here.queues["default"].acknowledge(done)
        if chance.random() < 0.2:
            twin = Ticket(ticket_id=here.ids.mark(), job_id=chance.choice(jobs), tenant="default", name="count")
            here.queues["default"].push([twin])
        rows = {job_id: here.job(job_id) for job_id in jobs}
        assert all(rows[job_id].token >= tokens[job_id] for job_id in jobs)
        tokens = {job_id: row.token for job_id, row in rows.items()}
        if all(row.state.terminal for row in rows.values()):
            break
        here.clock.sleep(1)
    for _ in range(200):  # whoever was an hour fast has put some jobs off by an hour
        here.clock.sleep(120)
        here.run_worker()
    assert {here.job(job_id).state for job_id in jobs} == {State.SUCCEEDED}
    for job_id in jobs:
        assert here.ledger.read_item("Counts", {"job": job_id}) == {"job": job_id, "runs": 1}


def jumping(seed: int) -> Callable[[], Millis]:
    """Ten minutes ahead, ten behind, or right: another one at each look."""
    chance = random.Random(seed)
    return lambda: chance.choice([10 * MINUTES, 0, -10 * MINUTES])


SHIFTS = [10 * MINUTES, 0, -10 * MINUTES, jumping(1), jumping(2)]


@pytest.mark.parametrize("shift", SHIFTS)
def test_c31_a_wrong_clock_never_starts_a_job_that_the_queue_still_delays(shift: Millis | Callable[[], Millis]) -> None:
    started: list[Millis] = []
    app = App()

    @app.job("note")
    def note(ctx: Context) -> None:
        started.append(here.clock.now())

    here = MemorySystem(app)
    due = here.clock.now() + 300_000
    here.submit("note", delay_seconds=300)
    here.run_relay()
    for _ in range(200):
        here.run_worker(here.worker(clock=Wrong(here.clock, shift)))
        here.clock.sleep(10)
    assert len(started) == 1
    assert started[0] >= due


@pytest.mark.parametrize("shift", SHIFTS)
def test_c31_a_wrong_clock_never_shortens_the_wait_for_a_retry(shift: Millis | Callable[[], Millis]) -> None:
    started: list[Millis] = []
    app = App()

    @app.job("fails", max_attempts=3, backoff=Backoff(base_seconds=0.0))
    def fails(ctx: Context) -> None:
        started.append(here.clock.now())
        raise Retry("again", after_seconds=60)

    here = MemorySystem(app)
    job_id = here.submit("fails").job_id
    here.run_relay()
    for _ in range(400):
        here.run_worker(here.worker(clock=Wrong(here.clock, shift)))
        here.clock.sleep(5)
    assert (here.job(job_id).state, here.job(job_id).attempts) == (State.DEAD, 3)
    assert [after - before >= 60_000 for before, after in itertools.pairwise(started)] == [True, True]


class CorrectedByAnswers(Wrong):
    """A clock that is wrong until the ledger has answered, as `ringfence.aws.clock` is."""

    def __init__(self, here: MemorySystem, shift_ms: Millis) -> None:
        super().__init__(here.clock, shift_ms)
        write = here.ledger.write

        def answered(*arguments: Any, **more: Any) -> Any:
            written = write(*arguments, **more)
            self._shift_ms = 0
            return written

        here.services = dataclasses.replace(here.services, ledger=Ledger(here.ledger, answered))


class Ledger:
    """One whose writes go another way."""

    def __init__(self, really: Any, write: Callable[..., Any]) -> None:
        self._really, self.write = really, write

    def __getattr__(self, name: str) -> Any:
        return getattr(self._really, name)


@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize("shift_ms", [10 * MINUTES, -10 * MINUTES])
def test_the_first_claim_of_a_process_is_not_early_either(shift_ms: Millis, far: bool) -> None:
    """An early duplicate is the first thing that a worker gets whose clock nobody has corrected yet."""
    started: list[Millis] = []
    app = App()

    @app.job("note", max_attempts=1)
    def note(ctx: Context) -> None:
        started.append(here.clock.now())

    here = MemorySystem(app)
    delay_seconds = 959 if far else 300
    due = here.clock.now() + delay_seconds * 1000
    here.clock.sleep(30)  # so far only that ten minutes of a wrong clock would do
    job_id = here.submit("note", delay_seconds=delay_seconds - 30).job_id
    here.run_relay()
    here.clock.sleep(359 if far else 0)
    here.queues["default"].push([Ticket(ticket_id="twin", job_id=job_id, tenant="default", name="note")])
    here.run_worker(here.worker(clock=CorrectedByAnswers(here, shift_ms)))
    assert here.queues["default"].depth().ready == 0
    assert not here.job(job_id).state.terminal
    while not here.job(job_id).state.terminal:
        assert here.clock.now() < due + 300_000
        here.clock.sleep(10)
        here.timers.run()
        here.run_worker()
    assert here.job(job_id).state is State.SUCCEEDED  # with its only attempt
    assert len(started) == 1
    assert started[0] >= due


def test_a_claim_that_a_slow_clock_first_took_for_early_holds_its_lease_for_its_whole_length() -> None:
    held: list[Millis] = []
    app = App()

    @app.job("note")
    def note(ctx: Context) -> None:
        held.append((here.job(ctx.job_id).lease_until or 0) - here.clock.now())

    here = MemorySystem(app, lease_seconds=LEASE_SECONDS)
    here.submit("note", delay_seconds=60)
    here.run_relay()
    here.clock.sleep(61)
    here.run_worker(here.worker(clock=CorrectedByAnswers(here, -10 * MINUTES)))
    assert held == [(LEASE_SECONDS - 1) * 1000]
