"""Where the time goes: ``python -m benchmarks.profiled worker | push | engine``, with ``PYTHONPATH=tests``."""

from __future__ import annotations

import cProfile
import os
import pstats
import sys
import threading
from collections.abc import Callable

import click

from .engine import LEASE_SECONDS, tickets
from .ground import Ground
from .peers import APPS, RINGFENCE

JOBS = 20_000
SHOWN = 30


def push(ground: Ground) -> Callable[[], object]:
    """Tickets one by one."""
    queue, pushed = ground.server.queue("profiled"), tickets(JOBS // 5)
    queue.push(pushed[:1])
    return lambda: [queue.push([ticket]) for ticket in pushed]


def engine(ground: Ground) -> Callable[[], object]:
    """A backlog leased and acknowledged in batches of 32."""
    queue = ground.server.queue("profiled")
    queue.push(tickets(JOBS))

    def drain() -> None:
        leases = queue.lease(32, LEASE_SECONDS)
        while leases:
            leases = queue.acknowledge_and_lease(leases, 32, LEASE_SECONDS)

    return drain


def worker(ground: Ground) -> Callable[[], object]:
    """One queue of a worker process, in this process, until its backlog is done."""
    os.environ.update(ground.variables(RINGFENCE), BENCH_STAMPS=str(ground.stamps_folder))
    sys.path.insert(0, str(APPS))
    from ringfence.process.child import Child, Limits
    from ringfence.runtime import Runtime
    from ringfence.settings import Settings

    ground.produce(RINGFENCE, "many", JOBS)
    runtime = Runtime(Settings.from_environment(os.environ))
    return Child(runtime, {"bench": 8}, Limits(grace_seconds=5.0, max_jobs=JOBS)).run


@click.command()
@click.argument("what", type=click.Choice(["worker", "push", "engine"]))
def profiled(what: str) -> None:
    """Run it under cProfile, all threads together, and show what took the most time of its own."""
    profiles = _profiled_threads()
    with Ground() as ground:
        work = {"worker": worker, "push": push, "engine": engine}[what](ground)
        own = cProfile.Profile()
        own.runcall(work)
    stats = pstats.Stats(own)
    for profile in profiles:
        stats.add(profile)
    stats.strip_dirs().sort_stats("tottime").print_stats(SHOWN)


def _profiled_threads() -> list[cProfile.Profile]:
    """Every thread that is started from now on has a profile of its own, in this list once it has ended."""
    ended: list[cProfile.Profile] = []
    run = threading.Thread.run

    def run_profiled(thread: threading.Thread) -> None:
        profile = cProfile.Profile()
        try:
            profile.runcall(run, thread)
        finally:
            ended.append(profile)

    threading.Thread.run = run_profiled  # type: ignore[method-assign]
    return ended


profiled()
