"""A Redis of 20 MB under fifty thousand jobs of 2 KB and four workers, by each policy of what it does when it is full (C19).

The real gateway, relay, timers and workers, each in a thread of its own, on a real Redis; the ledger and the log are in memory.
`tests/faults/test_redis_full.py` and `test_redis_evicting.py` are the short form: 3,000 small jobs and one worker.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import pytest
from tests.campaigns.threads import Threads

from ringfence import App, Context
from ringfence.acceptance import Accepted, Submission
from ringfence.clock import SystemClock
from ringfence.errors import Unavailable
from ringfence.job import Guarantee, State
from ringfence.local.redis_binaries import redis_server
from ringfence.memory.telemetry import MemoryTelemetry
from ringfence.testing.redis_server import RedisServer
from ringfence.testing.system import MemorySystem

JOBS = 50_000
REQUEST_JOBS = 500
PAYLOAD = f'{{"text":"{"x" * 2_000}"}}'
WORKERS = 4
LEASE_SECONDS = 5.0
WITHIN_SECONDS = 300.0

LIMIT_BYTES = 20_000_000
"""Some 70,000 tickets, or 8,500 of jobs that ride in them."""
FEWER_BYTES = 5_000_000
"""Less than the tickets of all the jobs need."""


class Crowd:
    """The system, what it was asked for, and what came of it."""

    def __init__(self, server: RedisServer) -> None:
        self.telemetry, self.runs = MemoryTelemetry(), Counter[str]()
        relays, timers, *self.workers = (server.queue("default", telemetry=self.telemetry) for _ in range(2 + WORKERS))
        app = App()

        @app.job("count")
        def count(ctx: Context, text: str) -> None:
            ctx.effects.update("Counts", {"job": ctx.job_id}, add={"runs": 1})

        @app.job("ride")
        def ride(ctx: Context, text: str) -> None:
            self.runs[ctx.job_id] += 1

        # The timers are another process than the relay.
        self.here, self.other = (
            MemorySystem(
                app,
                tables={"Counts": ["job"]},
                queues=["default"],
                clock=SystemClock(),
                wrap=lambda name, port, queue=queue: queue if name == "queue:default" else port,
                lease_seconds=LEASE_SECONDS,
            )
            for queue in (relays, timers)
        )
        for shared in ("memory_ledger", "ledger", "queue_settings", "limiter", "sweeps"):
            setattr(self.other, shared, getattr(self.here, shared))
        for system in (self.here, self.other):
            system.telemetry = self.telemetry
            system.build()
        self.other.timers.run()  # from now on the mark of the queue's memory is known
        self.accepted: list[str] = []
        self.riding: list[str] = []
        self.full = threading.Event()
        self.threads = Threads()
        self.over = self.threads.over

    # --- the threads -------------------------------------------------------------------------------------------------

    def running(self) -> AbstractContextManager[None]:
        return self.threads.running([self.relay, self.run_timers, *[self.work] * WORKERS])

    def relay(self) -> None:
        while not self.over.is_set():
            held = self.here.run_relay() is not None
            self.over.wait(0.2 if held else 0.02)

    def run_timers(self) -> None:
        while not self.over.is_set():
            with suppress(Unavailable):  # a queue that takes nothing is asked again
                self.other.timers.run()
            self.over.wait(0.25)

    def work(self) -> None:
        """At a crawl, until Redis has been full."""
        queue, worker = self.workers.pop(), self.here.worker()
        while not self.over.is_set():
            leases = queue.lease(100 if self.full.is_set() else 1, LEASE_SECONDS, wait_seconds=0.1)
            queue.acknowledge(worker.handle(queue, leases) if leases else [])
            if not self.full.is_set():
                self.full.wait(0.05)

    # --- the producer ------------------------------------------------------------------------------------------------

    def submit(self, *kinds: tuple[str, Guarantee]) -> None:
        """All the jobs, of these kinds by turns."""
        for number in range(JOBS // REQUEST_JOBS):
            name, guarantee = kinds[number % len(kinds)]
            asked = Submission(name=name, payload=PAYLOAD, guarantee=guarantee)
            answers = self.here.gateway.submit("default", [asked] * REQUEST_JOBS)
            job_ids = [answer.job.job_id for answer in answers if isinstance(answer, Accepted)]
            (self.riding if guarantee is Guarantee.AT_LEAST_ONCE else self.accepted).extend(job_ids)
        assert len(self.accepted) + len(self.riding) == JOBS

    def wait_until(self, what: Callable[[], bool]) -> None:
        give_up_at = time.monotonic() + WITHIN_SECONDS
        while not what():
            assert time.monotonic() < give_up_at, f"{len(self.runs)} of {len(self.riding)} have run; {self.states()}"
            assert not self.over.is_set(), self.threads.faults
            time.sleep(0.1)

    def states(self) -> Counter[State]:
        return Counter(job.state for job in self.here.memory_ledger.all_jobs())

    def all_have_ended(self) -> bool:
        return len(self.runs) == len(self.riding) and self.states() == Counter({State.SUCCEEDED: len(self.accepted)})

    def all_have_one_effect(self) -> bool:
        ledger = self.here.memory_ledger
        return all(ledger.read_item("Counts", {"job": job_id}) == {"job": job_id, "runs": 1} for job_id in self.accepted)

    def told(self, event: str) -> int:
        return len(self.telemetry.named(event))


WARNED_OF = {"allkeys-lru": "redis_evicts_queues", "volatile-lru": "redis_evicts_other_keys"}
RIDING, ONCE = ("ride", Guarantee.AT_LEAST_ONCE), ("count", Guarantee.ONCE)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("policy", "limit_bytes", "kinds", "shows_it"),
    [
        ("noeviction", LIMIT_BYTES, [ONCE, RIDING], "push_failed"),
        # As long as there are others' keys to throw away, it takes more; then it is as the first.
        ("volatile-lru", LIMIT_BYTES, [ONCE, RIDING], "push_failed"),
        # What it loses is rebuilt from the rows, so there must be rows.
        ("allkeys-lru", FEWER_BYTES, [ONCE], "queue_memory_lost"),
    ],
)
def test_c19_every_accepted_job_ends_though_redis_is_full(
    policy: str,
    limit_bytes: int,
    kinds: Sequence[tuple[str, Guarantee]],
    shows_it: str,
    tmp_path: Path,
    figure: Callable[[str], None],
) -> None:
    options = ["--maxmemory", str(limit_bytes), "--maxmemory-policy", policy]
    with RedisServer(redis_server(), tmp_path, options) as server:
        for number in range(40):
            server.ask("SET", f"neighbour-{number}", "x" * 25_000, "EX", 3_600)
        crowd, began = Crowd(server), time.monotonic()
        with crowd.running():
            crowd.submit(*kinds)
            crowd.wait_until(lambda: crowd.told(shows_it) > 0)
            crowd.full.set()
            crowd.wait_until(crowd.all_have_ended)
        took, evicted = time.monotonic() - began, server.ask("INFO", "stats").split("evicted_keys:")[1].split()[0]
        figure(
            f"{policy}, {limit_bytes // 1_000_000} MB: {JOBS} jobs in {took:.0f} s; "
            f"{crowd.told('push_failed')} pushes refused, {evicted} keys evicted, "
            f"the queue's memory lost {crowd.told('queue_memory_lost')} times, "
            f"{sum(crowd.runs.values()) - len(crowd.riding)} further runs of jobs without rows"
        )
        assert crowd.all_have_one_effect()
        assert (crowd.told("queue_memory_lost") > 0) == (policy == "allkeys-lru")
        assert (int(evicted) > 0) == (policy != "noeviction")
        expected = {WARNED_OF[policy]} if policy in WARNED_OF else set()
        assert {event for event in WARNED_OF.values() if crowd.told(event)} == expected
