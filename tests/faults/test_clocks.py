"""Workers whose clocks are wrong: it costs time and needless runs, never a second effect and never a job (C31)."""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable

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
    assert (here.job(job_id).state, here.job(job_id).token) == (State.DEAD, 3)
    assert [after - before >= 60_000 for before, after in itertools.pairwise(started)] == [True, True]
