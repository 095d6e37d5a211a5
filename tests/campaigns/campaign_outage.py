"""Slack's outage at full size: workers slow to a crawl, fifty thousand jobs arrive, workers recover (must hold 1).

The real gateway, relay, timers and workers, each in a thread of its own, on a real Redis that keeps queue and pace; the ledger
and the log are in memory, for no emulator takes a thousand jobs a second. `test_slacks_outage_in_small` is the short form.
"""

from __future__ import annotations

import itertools
import statistics
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest
from tests.campaigns.threads import Threads

from ringfence import App, Context
from ringfence.acceptance import Accepted, Submission
from ringfence.clock import SystemClock
from ringfence.job import State
from ringfence.local.redis_binaries import redis_server
from ringfence.ports import Lease
from ringfence.redis.limiter import RedisLimiter
from ringfence.redis.queue import RedisQueue
from ringfence.testing.redis_server import RedisServer
from ringfence.testing.system import MemorySystem
from ringfence.wire import Ticket, decode_ticket

JOBS = 50_000
BEFORE = 5_000
"""Jobs that come while all is well."""
REQUEST_JOBS = 50
REQUESTS_PER_SECOND = 20

RATE_PER_SECOND = 1_000.0
BURST = 100
HIGH_WATER_MARK = 5_000

CRAWL_SECONDS = 0.5
"""What a worker that crawls needs for one job."""

SLACK_MS = 1_000
"""Between the limiter's answer and the push, where one process does it all: what goes late comes nearer to the next."""

OVERTAKING_MS = 1_500


class Recorded:
    """A queue whose pushes are noted: who, and when the ticket is visible."""

    def __init__(self, queue: RedisQueue) -> None:
        self._queue = queue
        self.released: list[tuple[float, str]] = []

    def push(self, tickets: Sequence[Ticket], delay_seconds: float | Sequence[float] = 0.0) -> list[Ticket]:
        delays = itertools.repeat(delay_seconds) if isinstance(delay_seconds, int | float) else delay_seconds
        now = time.monotonic()
        untaken = self._queue.push(tickets, delay_seconds)
        left = {ticket.ticket_id for ticket in untaken}
        for ticket, delay in zip(tickets, delays, strict=False):
            if ticket.ticket_id not in left:
                self.released.append(((now + delay) * 1_000, ticket.job_id))
        return untaken

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)


def app() -> App:
    made = App()

    @made.job("count")
    def count(ctx: Context) -> None:
        ctx.effects.update("Counts", {"job": ctx.job_id}, add={"runs": 1})

    return made


class Outage:
    """The system, its producer, and what they saw."""

    def __init__(self, server: RedisServer) -> None:
        self.server = server
        self.queue = Recorded(server.queue("default"))
        self.watched = server.queue("default")
        limiter = RedisLimiter(server.connection(), "default")
        ours = {"queue:default": self.queue, "limiter": limiter}
        self.here = MemorySystem(
            app(), tables={"Counts": ["job"]}, clock=SystemClock(), wrap=lambda name, port: ours.get(name, port)
        )
        # Another process: what the relay has heard of the queue's settings and depth, timers have not.
        self.other = MemorySystem(app(), clock=self.here.clock, wrap=lambda name, port: ours.get(name, port))
        for shared in ("memory_ledger", "ledger", "queue_settings", "limiter", "queues", "sweeps"):
            setattr(self.other, shared, getattr(self.here, shared))
        self.other.build()
        self.threads = Threads()
        self.over = self.threads.over
        self.crawling = threading.Event()
        self.accepted: list[str] = []
        self.started: list[str] = []
        self.deepest, self.most_memory_bytes, self.looks = 0, 0, 0

    # --- the threads -------------------------------------------------------------------------------------------------

    def running(self) -> AbstractContextManager[None]:
        return self.threads.running((self.relay, self.run_timers, self.work, self.watch))

    def relay(self) -> None:
        while not self.over.is_set():
            assert self.here.run_relay() is None
            self.over.wait(0.05)

    def run_timers(self) -> None:
        while not self.over.is_set():
            self.other.timers.run()
            self.over.wait(0.25)

    def work(self) -> None:
        """One thread, so that the order of what it is given is the order of the queue."""
        worker = self.here.worker()
        done: list[Lease] = []
        while not self.over.is_set():
            crawls = self.crawling.is_set()
            done = self.take(worker, done, 1 if crawls else 250)
            if crawls:
                self.over.wait(CRAWL_SECONDS)
        self.watched.acknowledge(done)

    def take(self, worker: Any, done: list[Lease], most: int) -> list[Lease]:
        leases = self.watched.acknowledge_and_lease(done, most, 600, 0.2)
        self.started += [decode_ticket(lease.body).job_id for lease in leases]
        finished: list[Lease] = worker.handle(self.watched, leases) if leases else []
        assert len(finished) == len(leases)
        return finished

    def watch(self) -> None:
        """All the time: how many tickets are in Redis, and how much memory it uses."""
        queue = self.server.queue("default")
        while not self.over.is_set():
            depth = queue.depth()
            self.deepest = max(self.deepest, depth.ready + depth.leased + depth.delayed)
            used = int(self.server.ask("INFO", "memory").split("used_memory:")[1].split()[0])
            self.most_memory_bytes = max(self.most_memory_bytes, used)
            self.looks += 1
            self.over.wait(0.02)

    # --- the producer ------------------------------------------------------------------------------------------------

    def produce(self, jobs: int) -> list[float]:
        """Submit so many, at a steady pace. Returns the milliseconds that each request took."""
        took = []
        next_at = time.monotonic()
        for _ in range(jobs // REQUEST_JOBS):
            began = time.perf_counter()
            answers = self.here.gateway.submit("default", [Submission(name="count", payload="{}")] * REQUEST_JOBS)
            took.append((time.perf_counter() - began) * 1_000)
            self.accepted += [answer.job.job_id for answer in answers if isinstance(answer, Accepted)]
            next_at += 1 / REQUESTS_PER_SECOND
            time.sleep(max(0.0, next_at - time.monotonic()))
        return took

    def wait_all_started(self, within_seconds: float) -> None:
        give_up_at = time.monotonic() + within_seconds
        while len(self.started) < len(self.accepted):
            assert time.monotonic() < give_up_at, f"{len(self.started)} of {len(self.accepted)} were started"
            assert not self.over.is_set(), self.threads.faults
            time.sleep(0.1)


def overtakings_ms(released: Sequence[tuple[float, str]]) -> list[float]:
    """By how much each ticket that did is visible before one that was pushed earlier: its push took less long."""
    latest, found = 0.0, []
    for visible_ms, _ in released:
        if visible_ms < latest - 1.0:
            found.append(latest - visible_ms)
        latest = max(latest, visible_ms)
    return found


def check_rate(released_ms: Sequence[float]) -> None:
    """Never more than rate · w + burst in a window w: `ensure_within_rate`, for windows of some lengths."""
    ordered = sorted(released_ms)
    for together in (BURST + 10, 200, 500, 1_000, 5_000, 20_000):
        for first, last in zip(ordered, ordered[together - 1 :], strict=False):
            assert together <= RATE_PER_SECOND * (last - first + SLACK_MS) / 1_000 + BURST


def told(took: Sequence[float]) -> str:
    return f"p50 {statistics.median(took):.1f} ms, p99 {sorted(took)[int(len(took) * 0.99)]:.1f} ms"


def medians_of_tenths(took: Sequence[float]) -> list[float]:
    tenth = len(took) // 10
    return [statistics.median(took[start : start + tenth]) for start in range(0, len(took), tenth)]


@pytest.mark.timeout(1_200)
def test_slacks_outage(tmp_path: Path, tell: Callable[[str], None], figure: Callable[[str], None]) -> None:
    with RedisServer(redis_server(), tmp_path) as server:
        here = Outage(server)
        settings = {"rate_per_second": RATE_PER_SECOND, "burst": BURST, "high_water_mark": HIGH_WATER_MARK}
        here.here.queue_settings.change("default", settings)
        here.other.timers.run()
        with here.running():
            tell(f"{BEFORE} jobs come, and all is well")
            usual = here.produce(BEFORE)
            here.wait_all_started(60)
            here.crawling.set()
            during = []
            for number in range(5):
                tell(f"workers crawl, {number * JOBS // 5} of {JOBS} jobs have come")
                during += here.produce(JOBS // 5)
            parked = sum(len(group.waiting) for group in here.here.memory_ledger.groups("default", 10**6))
            parked += len(here.here.memory_ledger.line("default", 10**6))
            tell(f"workers recover; {parked} jobs are parked")
            here.crawling.clear()
            recovered_at = time.monotonic()
            here.wait_all_started(600)
            drained_seconds = time.monotonic() - recovered_at

        overtaken_ms = overtakings_ms(here.queue.released)
        in_order = [job_id for _, job_id in here.queue.released] == here.accepted
        tenths = medians_of_tenths(during)
        figure(f"{JOBS} jobs while workers crawled, {REQUESTS_PER_SECOND} requests a second with {REQUEST_JOBS} each")
        figure(f"enqueue as usual: {told(usual)}")
        figure(f"enqueue during the outage: {told(during)}; p50 of its tenths from {min(tenths):.1f} to {max(tenths):.1f} ms")
        figure(f"tickets in Redis: {here.deepest} at most in {here.looks} looks; the high-water mark is {HIGH_WATER_MARK}")
        figure(f"memory in Redis: {here.most_memory_bytes:,} bytes at most")
        drained_per_second = parked / drained_seconds
        figure(
            f"parked: {parked}; drained in {drained_seconds:.1f} s, {drained_per_second:.0f} a second of {RATE_PER_SECOND:g}"
        )
        figure(f"started: {len(here.started)} of {len(here.accepted)}, {len(set(here.started))} of them different")
        figure(f"released in the order of their acceptance: {'yes' if in_order else 'no'}")
        longest_ms = max(overtaken_ms, default=0.0)
        figure(f"visible before one that was released earlier: {len(overtaken_ms)}, by {longest_ms:.0f} ms at most")

        assert statistics.median(during) < 2 * statistics.median(usual)
        assert max(tenths) < 3 * statistics.median(usual), "and throughout"
        assert here.deepest <= HIGH_WATER_MARK
        assert parked > JOBS - HIGH_WATER_MARK - 1_000
        assert len(here.accepted) == JOBS + BEFORE
        assert in_order, "each once"
        assert sorted(here.started) == sorted(here.accepted), "each once"
        assert len(overtaken_ms) < JOBS / 1_000
        assert longest_ms < OVERTAKING_MS
        assert {job.state for job in here.here.memory_ledger.all_jobs()} == {State.SUCCEEDED}
        for job_id in here.accepted:
            assert here.here.ledger.read_item("Counts", {"job": job_id}) == {"job": job_id, "runs": 1}
        check_rate([at for at, _ in here.queue.released])
        assert drained_seconds < 1.25 * parked / RATE_PER_SECOND
