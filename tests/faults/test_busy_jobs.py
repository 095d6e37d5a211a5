"""Jobs that keep the processor to themselves for longer than their lease: the heartbeat gets its turns (C22). In real time."""

from __future__ import annotations

import ctypes
import threading
import time

from ringfence import App, Context
from ringfence.clock import SystemClock
from ringfence.job import State
from ringfence.testing.system import MemorySystem

LEASE_SECONDS = 2.0
BUSY_SECONDS = 3.5
"""Most of two leases."""


def test_c22_a_busy_loop_and_a_blocked_event_loop_keep_their_leases() -> None:
    starts: list[str] = []
    app = App()

    @app.job("spin")
    def spin(ctx: Context) -> None:
        starts.append("spin")
        end = time.monotonic() + BUSY_SECONDS
        while time.monotonic() < end:
            sum(range(1_000))

    @app.job("block")
    async def block(ctx: Context) -> None:
        starts.append("block")
        time.sleep(BUSY_SECONDS)

    here = MemorySystem(app, clock=SystemClock(), lease_seconds=LEASE_SECONDS, threads=2)
    jobs = [here.submit("spin").job_id, here.submit("block").job_id]
    here.run_relay()
    queue = here.queues["default"]
    done = here.worker(heartbeats=True).handle(queue, queue.lease(2, LEASE_SECONDS))
    assert sorted(starts) == ["block", "spin"]
    assert len(done) == 2
    for job_id in jobs:
        row = here.job(job_id)
        assert (row.state, row.token) == (State.SUCCEEDED, 1)
    assert here.telemetry.named("late_write_refused") == []


HELD_SECONDS = 0.8


def test_c22_a_call_that_keeps_the_interpreter_costs_the_lease_and_its_late_result_is_refused() -> None:
    """As a catastrophic regular expression would: no thread gets a turn, the heartbeat's neither."""
    taken_over = threading.Event()
    app = App()

    @app.job("hold")
    def hold(ctx: Context) -> None:
        ctx.effects.update("Counts", {"job": ctx.job_id}, add={"runs": 1})
        if ctx.token == 1:
            ctypes.PyDLL(None).usleep(int(HELD_SECONDS * 1_000_000))
            taken_over.wait(10)
        else:
            taken_over.set()

    here = MemorySystem(app, tables={"Counts": ["job"]}, clock=SystemClock(), lease_seconds=HELD_SECONDS / 2)
    job_id = here.submit("hold").job_id
    here.run_relay()
    queue = here.queues["default"]
    first = threading.Thread(target=here.run_worker, args=(here.worker("a", heartbeats=True),))
    first.start()
    here.telemetry.wait_for("job_claimed")
    (lease,) = queue.lease(1, 30, wait_seconds=10)
    queue.acknowledge(here.worker("b").handle(queue, [lease]))
    first.join(10)
    row = here.job(job_id)
    assert (row.state, row.token) == (State.SUCCEEDED, 2)
    assert here.ledger.read_item("Counts", {"job": job_id}) == {"job": job_id, "runs": 1}
    assert here.telemetry.named("late_write_refused")


def test_c22_fifty_short_jobs_in_one_batch_all_end_with_their_first_token() -> None:
    app = App()

    @app.job("short")
    def short(ctx: Context) -> int:
        return sum(range(10_000))

    here = MemorySystem(app, clock=SystemClock(), lease_seconds=LEASE_SECONDS, threads=4)
    jobs = [here.submit("short").job_id for _ in range(50)]
    here.run_relay()
    while here.run_worker(here.worker(heartbeats=True), most=50):
        pass
    assert {(here.job(job_id).state, here.job(job_id).token) for job_id in jobs} == {(State.SUCCEEDED, 1)}
