"""A failover in the middle of a stream of jobs, the way a managed Redis has it: a replica is promoted that misses the last
writes, the old primary follows it and refuses every write for seconds (READONLY), and only then does the name lead to the new
one. Every accepted job ends once, and tokens only rise (must hold 3; C20).

A second of READONLY in `make test`, five and more, several times over, in `make campaign`.
"""

from __future__ import annotations

import dataclasses
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

import pytest

from ringfence import App, Context
from ringfence.acceptance import Accepted, Submission
from ringfence.clock import SystemClock
from ringfence.errors import Unavailable
from ringfence.job import State
from ringfence.local.redis_binaries import redis_server
from ringfence.memory.telemetry import MemoryTelemetry
from ringfence.process.feed import QueueFeed, Stop
from ringfence.redis.address import Server
from ringfence.redis.connection import connect
from ringfence.redis.queue import RedisQueue
from ringfence.testing.door import Door
from ringfence.testing.redis_server import RedisServer
from ringfence.testing.system import MemorySystem

from .test_redis_failover import promote, replication, wait_in_step

READ_ONLY_SECONDS = float(os.environ.get("RINGFENCE_TEST_READ_ONLY_SECONDS", "1"))
FAILOVERS = int(os.environ.get("RINGFENCE_TEST_FAILOVERS", "1"))

AROUND_SECONDS = 0.4
"""The stream flows before the failover for so long, after it, and while the replica already misses writes."""

REQUESTS_PER_SECOND, REQUEST_JOBS = 50, 3
LEASE_SECONDS = 1.0
END_SECONDS = 30.0
DELAY_SECONDS = AROUND_SECONDS + READ_ONLY_SECONDS
"""Of the last job of each request before the failover: its ticket lies in the queue when that comes."""


class Stream:
    """Jobs that come all the time, and every hop that they pass, each in a thread of its own: gateway, relay, timers, and a
    worker that serves as in a process."""

    def __init__(self, port: int) -> None:
        app = App()

        @app.job("count", max_attempts=20)
        def count(ctx: Context) -> None:
            ctx.effects.update("Counts", {"job": ctx.job_id}, add={"runs": 1})

        self._over, self._stop = threading.Event(), Stop(SystemClock(), grace_seconds=5.0)
        self._redis_told = MemoryTelemetry()
        self.queue = RedisQueue(connect(Server("127.0.0.1", port)), "default", telemetry=self._redis_told)
        self.here = MemorySystem(
            app,
            tables={"Counts": ["job"]},
            queues=["default"],
            clock=SystemClock(),
            wrap=lambda name, port: self.queue if name == "queue:default" else port,
            lease_seconds=LEASE_SECONDS,
            threads=2,
        )
        self.here.timers.run()  # from now on the mark of the queue's memory is known
        self.accepted: list[str] = []
        self.submitting = True
        self.delay_seconds: float | None = DELAY_SECONDS
        self.faults: list[BaseException] = []

    def _submit(self) -> None:
        if not self.submitting:
            return
        jobs = [Submission(name="count", payload="{}")] * REQUEST_JOBS
        jobs[-1] = dataclasses.replace(jobs[-1], delay_seconds=self.delay_seconds)
        answers = self.here.gateway.submit("default", jobs)
        self.accepted += [answer.job.job_id for answer in answers if isinstance(answer, Accepted)]

    def _run_timers(self) -> None:
        with suppress(Unavailable):
            self.here.timers.run()

    def _serve(self) -> None:
        worker = self.here.worker("worker", heartbeats=True)
        worker.serve(self.queue, QueueFeed(self.queue, self._stop, lambda _done: None))

    @contextmanager
    def flowing(self) -> Iterator[Stream]:
        hops: list[tuple[Callable[[], object], float]] = [
            (self._submit, 1 / REQUESTS_PER_SECOND),
            (self.here.run_relay, 0.02),
            (self._run_timers, 0.3),
        ]
        threads = [threading.Thread(target=self._again_and_again, args=hop) for hop in hops]
        threads.append(threading.Thread(target=self._noting_faults, args=(self._serve,)))
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._stop.ask()
            self._over.set()
            for thread in threads:
                thread.join()

    def _again_and_again(self, hop: Callable[[], object], every_seconds: float) -> None:
        while not self._over.wait(every_seconds) and not self.faults:
            self._noting_faults(hop)

    def _noting_faults(self, work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as fault:  # noqa: BLE001 - raised again by the test
            self.faults.append(fault)

    def refused(self) -> set[str]:
        """What Redis has refused so far because it takes no writes."""
        failed = self._redis_told.named("redis_call_failed")
        return {str(each["operation"]) for each in failed if "READONLY" in str(each["reason"])}

    def end(self) -> None:
        """Nothing more is submitted, and all that was accepted ends."""
        self.submitting = False
        give_up_at = time.monotonic() + END_SECONDS
        while not all(job.state.terminal for job in self.here.memory_ledger.all_jobs()):
            assert not self.faults, self.faults
            assert time.monotonic() < give_up_at, self._stand()
            time.sleep(0.02)

    def _stand(self) -> str:
        left = [job for job in self.here.memory_ledger.all_jobs() if not job.state.terminal]
        return f"{len(left)} are left, such as {left[0]}; {self.queue.depth()}; {self.here.sweeps.read()}"

    def check(self) -> None:
        """Once each, by a claim whose token nobody had before and nobody undercut."""
        assert not self.faults, self.faults
        for job_id in self.accepted:
            assert self.here.job(job_id).state is State.SUCCEEDED
            assert self.here.ledger.read_item("Counts", {"job": job_id}) == {"job": job_id, "runs": 1}
        tokens: dict[str, list[int]] = {}
        for claimed in self.here.telemetry.named("job_claimed"):
            tokens.setdefault(str(claimed["job_id"]), []).append(int(claimed["token"] or 0))
        assert tokens.keys() == set(self.accepted)
        assert all(sorted(set(minted)) == list(range(1, len(minted) + 1)) for minted in tokens.values())


@pytest.fixture
def servers(tmp_path: Path) -> Iterator[list[RedisServer]]:
    with ExitStack() as stack:
        yield [
            stack.enter_context(RedisServer(redis_server(), tmp_path / name, ["--repl-diskless-sync-delay", "0"]))
            for name in ("one", "other")
        ]


@pytest.mark.parametrize("_number", range(FAILOVERS))
def test_every_job_of_a_stream_ends_once_though_redis_is_read_only_for_seconds(
    _number: int, servers: list[RedisServer]
) -> None:
    primary, replica = servers
    replica.ask("REPLICAOF", "127.0.0.1", primary.port)
    wait_in_step(primary, replica)
    with Door(primary.port) as door, Stream(door.port).flowing() as stream:
        time.sleep(AROUND_SECONDS)
        promote(replica)
        time.sleep(AROUND_SECONDS)  # what the old primary takes and gives now, the new one never hears of
        before = len(stream.accepted)
        primary.ask("REPLICAOF", "127.0.0.1", replica.port)
        stream.delay_seconds = None
        time.sleep(READ_ONLY_SECONDS)
        assert replication(primary)["role"] == "slave"
        refused, meanwhile = stream.refused(), len(stream.accepted) - before
        door.lead_to(replica.port, cut=False)  # who is refused once more connects anew
        stream.here.telemetry.wait_for("repair_started", timeout_seconds=END_SECONDS)
        time.sleep(AROUND_SECONDS)
        stream.end()
        stream.check()
    assert "push" in refused, "the relay has not met it"
    assert refused & {"lease", "acknowledge_and_lease"}, "the worker has not met it"
    assert meanwhile >= READ_ONLY_SECONDS * REQUESTS_PER_SECOND * REQUEST_JOBS / 10, "nothing was accepted meanwhile"
