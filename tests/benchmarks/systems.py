"""What is measured of a whole system, Ringfence or a peer: enqueueing, draining a backlog, and how soon a job begins."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass

from .ground import BenchFailed, Ground, Stamp, by_worker
from .peers import System
from .processes import Program, busy_seconds, wait_quiet

QUIET_SECONDS = 1.0
"""The longest wait, before each measurement, for the others on this machine to pause."""

START_SECONDS = 30.0
STALL_SECONDS = 20.0
SETTLE_SECONDS = 1.0
"""From the last job before the paced ones to the first of them: the worker is to wait for it idly."""

MARGIN = 0.05
"""Of the jobs at either end of a drain that do not count."""


@dataclass(frozen=True, slots=True)
class Enqueued:
    """Jobs a second of one producer, and its CPU time."""

    per_second: float
    cpu_us_per_job: float


@dataclass(frozen=True, slots=True)
class Drained:
    """A backlog worked off."""

    per_second: float
    """While all workers were at work, the ends left out."""
    worker_cpu_us_per_job: float
    redis_cpu_us_per_job: float
    peak_mib: float
    others_share: float
    """Of the machine's CPU time, what neither the workers nor Redis used."""
    missing: int
    """Jobs that did not begin."""
    repeated: int


@dataclass(frozen=True, slots=True)
class Delayed:
    """Milliseconds from just before the enqueue to the job's first line."""

    p50: float
    p99: float


def enqueue(ground: Ground, system: System, mode: str, jobs: int) -> Enqueued:
    """``mode`` is ``one`` at a time, or ``many``."""
    ground.clear()
    wait_quiet(QUIET_SECONDS)
    told = ground.produce(system, mode, jobs)
    return Enqueued(told["jobs"] / told["seconds"], told["cpu_seconds"] / told["jobs"] * 1e6)


def drain(ground: Ground, system: System, workers: int, jobs: int) -> Drained:
    """Fill the queue, then start the workers; the clock runs from the first job that begins to the last."""
    ground.clear()
    told = ground.produce(system, "many" if system.many else "one", jobs)
    wanted = told["jobs"] + told["before"]
    wait_quiet(QUIET_SECONDS)
    with ground.working(system, workers, dict(system.drain_variables)) as programs:
        _wait_for_first(ground, system)
        begun, began = ground.stamped(), time.monotonic()
        worker_cpu, redis_cpu, busy, own = _cpu(programs), ground.redis_cpu_seconds(), busy_seconds(), time.process_time()
        _wait_for_all(ground, wanted)
        seconds = time.monotonic() - began
        worker_cpu, redis_cpu = _cpu(programs) - worker_cpu, ground.redis_cpu_seconds() - redis_cpu
        busy, own = busy_seconds() - busy, time.process_time() - own
        time.sleep(0.2)
        peak = max(program.peak_mib() for program in programs)
    stamps = ground.stamps()
    timed = max(1, len(stamps) - begun)
    different = len({stamp.number for stamp in stamps})
    return Drained(
        per_second=_steady(stamps),
        worker_cpu_us_per_job=worker_cpu / timed * 1e6,
        redis_cpu_us_per_job=redis_cpu / timed * 1e6,
        peak_mib=peak,
        others_share=max(0.0, busy - worker_cpu - redis_cpu - own) / (seconds * (os.cpu_count() or 1)),
        missing=wanted - different,
        repeated=len(stamps) - different,
    )


def delay(ground: Ground, system: System, seconds: float) -> Delayed:
    """Jobs come one by one at an even pace, and one worker waits for them."""
    ground.clear()
    wait_quiet(QUIET_SECONDS)
    with ground.working(system, 1):
        _wait_for_all(ground, ground.produce(system, "paced", 1, 0)["before"])  # so long the worker takes to start
        time.sleep(SETTLE_SECONDS)
        told = ground.produce(system, "paced", system.paced_per_second, seconds)
        _wait_for_all(ground, 2 * told["before"] + told["jobs"])
    taken = sorted((stamp.started - stamp.enqueued) / 1e6 for stamp in ground.stamps() if stamp.number >= 0)
    if len(taken) < 0.9 * told["jobs"]:
        raise BenchFailed(f"{system.name} began {len(taken)} of {told['jobs']} paced jobs: {ground.end_of_log(system)}")
    return Delayed(_quantile(taken, 0.5), _quantile(taken, 0.99))


def _wait_for_first(ground: Ground, system: System) -> None:
    deadline = time.monotonic() + START_SECONDS
    while not ground.stamped():
        if time.monotonic() > deadline:
            raise BenchFailed(f"{system.name} began no job within {START_SECONDS:.0f} s: {ground.end_of_log(system)}")
        time.sleep(0.002)


def _wait_for_all(ground: Ground, wanted: int) -> None:
    """Or until nothing has begun for long."""
    last, moved = 0, time.monotonic()
    while (begun := ground.stamped()) < wanted and time.monotonic() < moved + STALL_SECONDS:
        if begun != last:
            last, moved = begun, time.monotonic()
        time.sleep(0.01)


def _steady(stamps: list[Stamp]) -> float:
    """Jobs a second from the first job of the worker that came last to the last job of the one that ended first."""
    each = by_worker(stamps).values()
    first = max(own[0].started for own in each)
    last = min(own[-1].started for own in each)
    within = [stamp.started for stamp in stamps if first <= stamp.started <= last]
    low, high = int(len(within) * MARGIN), int(len(within) * (1 - MARGIN)) - 1
    if high <= low or within[high] == within[low]:
        raise BenchFailed("the workers were never at work together: the backlog is too small")
    return (high - low) / (within[high] - within[low]) * 1e9


def _cpu(programs: list[Program]) -> float:
    return sum(program.cpu_seconds() for program in programs)


def _quantile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
