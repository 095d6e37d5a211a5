"""A real ``ringfence worker`` gets a SIGTERM, with jobs that run and jobs that it has leased and not begun (must hold 6).

`make campaign` does it at many points, `make test` at a few.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringfence import transitions
from ringfence.ids import RandomIds
from ringfence.job import Job, State
from ringfence.redis.queue import RedisQueue
from ringfence.testing.dev_system import WORKER, DevSystem
from ringfence.testing.gate import Gate
from ringfence.testing.given import accepted_record
from ringfence.testing.redis_server import RedisServer
from ringfence.testing.worker_command import WorkerCommand
from ringfence.wire import decode_ticket, new_ticket

APP = Path(__file__).with_name("fault_app")
ROUNDS = int(os.environ.get("RINGFENCE_TEST_ROUNDS", "1"))

LEASE_SECONDS = 600
"""What is visible again before that was given back: no lease has ended."""

VISIBLE_SECONDS = 5.0
JOBS = 16


class Stopped:
    """A worker that serves a Redis queue of its own, whose jobs count how often they took effect."""

    def __init__(self, system: DevSystem, redis_server: RedisServer, gate: Gate, grace: str) -> None:
        self.system, self.gate = system, gate
        self.queue: RedisQueue = redis_server.queue()
        self.jobs: dict[str, bool] = {}
        """Job id → whether it waits at the gate."""
        environment = {
            **system.dev.environment(WORKER),
            "RINGFENCE_QUEUES": json.dumps({"default": redis_server.url(self.queue.name)}),
            "RINGFENCE_LEASE_SECONDS": str(LEASE_SECONDS),
        }
        self.worker = WorkerCommand(environment, APP, "-q", "default", "--threads", "3", "--grace", grace)

    def submit(self, count: int, *, gated: bool = False) -> None:
        """Accepted jobs, their tickets in the queue."""
        payload = json.dumps({"gate": self.gate.path} if gated else {})
        for _ in range(count):
            record = accepted_record("count", payload)
            assert self.system.ledger.register(transitions.accept(record, write_id=RandomIds().mark(), due_id="")) is None
            assert self.queue.push([new_ticket(RandomIds().mark(), record)]) == []
            self.jobs[record.job_id] = gated

    def row(self, job_id: str) -> Job:
        row = self.system.job(job_id)
        assert row is not None
        return row

    def wait_visible(self, but: int) -> None:
        """Every message that is left is visible, but for so many, whose jobs run."""

        def given_back() -> bool:
            depth = self.queue.depth()
            return depth.leased + depth.delayed <= but

        self.system.wait_for("what was not begun is visible again", given_back, VISIBLE_SECONDS)

    def check(self) -> None:
        """After its end: what is committed has no message left, what has one is not committed, nothing took effect twice."""
        self.wait_visible(but=0)
        left = {decode_ticket(lease.body).job_id for lease in self.queue.lease(1_000, 60)}
        for job_id in self.jobs:
            row, effect = self.row(job_id), self.system.ledger.read_item("PackageTotals", {"package": job_id})
            assert row.state is (State.QUEUED if job_id in left else State.SUCCEEDED), row
            assert effect == (None if job_id in left else {"package": job_id, "runs": 1})
            assert row.attempts == (0 if job_id in left else 1)


@pytest.fixture
def ended() -> Iterator[list[Stopped]]:
    """Workers that end with the test."""
    started: list[Stopped] = []
    yield started
    for each in started:
        each.gate.open()
        each.worker.end()


@pytest.mark.parametrize("number", range(ROUNDS))
def test_running_jobs_end_and_what_was_not_begun_is_visible_at_once(
    number: int, system: DevSystem, redis_server: RedisServer, gate: Gate, ended: list[Stopped]
) -> None:
    here = Stopped(system, redis_server, gate, "20s")
    ended.append(here)
    before = random.Random(number).randrange(JOBS // 2)
    here.submit(before)
    here.submit(2, gated=True)
    here.submit(JOBS - before)
    running = 0
    while running < 2:
        running += here.jobs[here.worker.next("job_claimed")["job_id"]]
    here.worker.ask_to_stop()
    here.wait_visible(but=2)
    assert [here.row(job_id).state for job_id, gated in here.jobs.items() if gated] == [State.RUNNING] * 2
    gate.open()
    assert here.worker.end() == 0
    assert [here.row(job_id).state for job_id, gated in here.jobs.items() if gated] == [State.SUCCEEDED] * 2
    here.check()


@pytest.mark.parametrize("number", range(ROUNDS))
def test_at_any_point_it_ends_well_and_hands_over_what_does_not_end_in_its_grace(
    number: int, system: DevSystem, redis_server: RedisServer, gate: Gate, ended: list[Stopped]
) -> None:
    grace_seconds = 6.0
    here = Stopped(system, redis_server, gate, f"{grace_seconds:g}s")
    ended.append(here)
    here.submit(JOBS // 2)
    here.submit(1, gated=True)
    here.submit(JOBS // 2)
    chance = random.Random(number)
    event = chance.choice(["job_claimed", "job_succeeded"]) if number else "job_succeeded"
    for _ in range(chance.randint(1, JOBS // 2)):
        here.worker.next(event)
    began = time.monotonic()
    here.worker.ask_to_stop()
    assert here.worker.end() == 0
    assert time.monotonic() - began < grace_seconds + 2
    here.check()
