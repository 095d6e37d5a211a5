"""Jobs whose queue is on a Redis that forgets its scripts, is killed, fails over, turns read-only, or throws keys away: every
accepted job ends once, and its tokens only rise (must hold 3; C17, C19, C20).

What a queue by itself keeps and loses is in `test_redis_restart`, `test_redis_failover` and `test_redis_evicting`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from ringfence import App, Context
from ringfence.acceptance import Accepted, Submission
from ringfence.clock import SystemClock
from ringfence.errors import Unavailable
from ringfence.job import State
from ringfence.local.redis_binaries import redis_server
from ringfence.ports import Lease
from ringfence.redis.address import Server
from ringfence.redis.connection import connect
from ringfence.redis.queue import RedisQueue
from ringfence.testing.door import Door
from ringfence.testing.redis_server import RedisServer
from ringfence.testing.system import MemorySystem

from .test_redis_failover import NOWHERE, promote, wait_in_step
from .test_redis_restart import WITH_A_FILE, crash

LEASE_SECONDS = 30.0
DEADLINE_SECONDS = 30.0


class Jobs:
    """A system whose default queue is behind ``port``, and jobs that count how often they took effect."""

    def __init__(self, port: int) -> None:
        app = App()

        @app.job("count", max_attempts=20)
        def count(ctx: Context) -> None:
            ctx.effects.update("Counts", {"job": ctx.job_id}, add={"runs": 1})

        self.queue = RedisQueue(connect(Server("127.0.0.1", port)), "default")
        self.here = MemorySystem(
            app,
            tables={"Counts": ["job"]},
            clock=SystemClock(),
            wrap=lambda name, port: self.queue if name == "queue:default" else port,
            lease_seconds=LEASE_SECONDS,
        )
        self.here.timers.run()  # from now on the mark of the queue's memory is known
        self.accepted: list[str] = []
        self.tokens: dict[str, int] = {}
        self.held = self.work_half()

    def submit(self, count: int) -> None:
        """Enqueuing does not depend on Redis."""
        answers = self.here.gateway.submit("default", [Submission(name="count", payload="{}")] * count)
        self.accepted += [answer.job.job_id for answer in answers if isinstance(answer, Accepted)]

    def work_half(self) -> list[Lease]:
        """Sixty jobs on their way, in every state there is: five have ended of which two are not acknowledged, five are leased
        and not begun. Returns those leases."""
        self.submit(60)
        assert self.here.run_relay() is None
        leases = self.queue.lease(10, LEASE_SECONDS)
        done = self.here.worker("first").handle(self.queue, leases[:5])
        assert len(done) == 5
        self.queue.acknowledge(done[:3])
        self.look()
        return leases[5:]

    def try_everything(self) -> None:
        """One pass of every hop; whatever cannot reach Redis just now is tried again later."""
        self.here.run_relay()
        for hop in (self.here.timers.run, self.here.run_worker):
            with suppress(Unavailable):
                hop()
            self.look()

    def look(self) -> None:
        """No row's token is ever below what it was."""
        for job in self.here.memory_ledger.all_jobs():
            assert job.token >= self.tokens.get(job.job_id, 0)
            self.tokens[job.job_id] = job.token

    def finish(self, leases_end: Callable[[], None]) -> None:
        """The first worker goes on with what it held, and everything runs until every job has ended; then all is checked."""
        done = self.here.worker("first").handle(self.queue, self.held)
        self.look()
        self.queue.acknowledge(done)
        give_up_at = time.monotonic() + DEADLINE_SECONDS
        while {self.here.job(job_id).state for job_id in self.accepted} != {State.SUCCEEDED}:
            assert time.monotonic() < give_up_at, [job for job in self.here.memory_ledger.all_jobs() if not job.state.terminal]
            self.try_everything()
            leases_end()
        for job_id in self.accepted:
            assert self.here.ledger.read_item("Counts", {"job": job_id}) == {"job": job_id, "runs": 1}
        while self.queue.depth().ready + self.queue.depth().leased:  # every duplicate is harmless to the last one
            leases_end()
            self.here.run_worker(most=250)
            self.look()
        for job_id in self.accepted:
            assert self.here.ledger.read_item("Counts", {"job": job_id}) == {"job": job_id, "runs": 1}


@contextmanager
def jobs_on(server: RedisServer) -> Iterator[Jobs]:
    """Jobs on this server; at the end all leases have ended, and all jobs have, too."""
    jobs = Jobs(server.port)
    yield jobs
    jobs.finish(lambda: server.let_pass(jobs.queue, LEASE_SECONDS))


@pytest.fixture
def server(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(redis_server(), tmp_path) as server:
        yield server


def test_its_scripts_are_flushed_all_the_time(server: RedisServer) -> None:
    with jobs_on(server) as jobs:
        for _ in range(5):
            server.ask("SCRIPT", "FLUSH")
            jobs.submit(5)
            jobs.try_everything()


def test_it_is_killed_and_comes_back_with_its_file(tmp_path: Path) -> None:
    with RedisServer(redis_server(), tmp_path, WITH_A_FILE) as server, jobs_on(server) as jobs:
        jobs.submit(20)
        server.kill()
        jobs.try_everything()
        server.restart()


def test_it_is_killed_and_comes_back_with_nothing(server: RedisServer) -> None:
    with jobs_on(server) as jobs:
        jobs.submit(20)
        server.kill()
        jobs.try_everything()
        server.restart()


def test_it_loses_its_memory_twice(server: RedisServer) -> None:
    with jobs_on(server) as jobs:
        for _ in range(2):
            crash(server)
            jobs.submit(5)
            jobs.try_everything()


def test_a_replica_is_promoted_that_misses_the_last_writes(tmp_path: Path) -> None:
    with (
        RedisServer(redis_server(), tmp_path / "primary", ["--repl-diskless-sync-delay", "0"]) as primary,
        RedisServer(redis_server(), tmp_path / "replica") as replica,
        Door(primary.port) as door,
    ):
        replica.ask("REPLICAOF", "127.0.0.1", primary.port)
        wait_in_step(primary, replica)
        jobs = Jobs(door.port)
        wait_in_step(primary, replica)
        promote(replica)  # and the old primary serves on
        jobs.submit(20)
        for _ in range(3):
            jobs.try_everything()
        missed = [job.job_id for job in jobs.here.memory_ledger.all_jobs() if job.state is State.SUCCEEDED]
        door.lead_to(replica.port, cut=True)
        assert len(missed) > 20
        jobs.finish(lambda: replica.let_pass(jobs.queue, LEASE_SECONDS))


def test_it_turns_read_only_for_a_while(server: RedisServer) -> None:
    with jobs_on(server) as jobs:
        jobs.submit(20)
        server.ask("REPLICAOF", "127.0.0.1", NOWHERE)
        for _ in range(5):
            jobs.try_everything()
        assert jobs.here.telemetry.named("push_failed")
        server.ask("REPLICAOF", "NO", "ONE")


def test_it_throws_the_queue_away_and_keeps_other_keys(server: RedisServer) -> None:
    with jobs_on(server) as jobs:
        used = int(server.ask("INFO", "memory").split("used_memory:")[1].split()[0])
        server.ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        server.ask("CONFIG", "SET", "maxmemory", used + 500_000)
        filler = 0
        while server.ask("EXISTS", jobs.queue.messages_key):
            server.ask("SET", f"filler-{filler}", "x" * 50_000)
            filler += 1
        server.ask("CONFIG", "SET", "maxmemory", 0)
        jobs.submit(20)
