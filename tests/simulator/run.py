"""Run plans, and make a history that fails as short as it goes.

python -m tests.simulator --seed 4711          one run, its history if something is wrong with it
python -m tests.simulator --seeds 10000 --from 5000   as many, in as many processes as there are cores
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from contextlib import closing
from functools import partial

import click

from .checkers import faults_of
from .scheduler import taking_turns
from .world import Parts, Plan, World

FEWEST_TRIES = 200
"""Runs that shortening a failing history may take."""

SEEDS_TOGETHER = 10
"""A quarter of a second, after which a process says how it went."""

PACES = ((0.5, 2, 2), (0.5, 1, None), (0.2, 1, None), (2.0, 2, None), (0.5, 2, 2), (0.5, 1, 3), (None, 1, 2))
"""Rate, burst and high-water mark of the paced queue."""


def plan_of(seed: int, **more: object) -> Plan:
    """The plan of a seed: some are calm, some are stormy, in some the clocks are ten minutes wrong, in most one or two of the
    workers are functions, in most of them worker processes are told to stop, once or twice, in more than half of them their
    threads are paused at locks, in a third there is something that nobody can read, and in a third a queue loses its memory.
    Each has one of several paces."""
    shares, skews, pauses = (0.02, 0.07, 0.07, 0.16), (0.0, 0.0, 600.0), (0.0, 0.0, 0.02, 0.05, 0.2)
    rate_per_second, burst, high_water_mark = PACES[seed % len(PACES)]
    functions = frozenset(number for number in (1, 2) if seed // len(shares) & number)
    plan = Plan(
        seed,
        fault_share=shares[seed % len(shares)],
        skew_seconds=skews[seed % len(skews)],
        pause_share=pauses[seed % len(pauses)],
        functions=functions,
        stops=seed // 16 % 3,
        strangers=3 * (seed // 5 % 3 == 1),
        losses=2 * (seed // 7 % 3 == 1),
        rate_per_second=rate_per_second,
        burst=burst,
        high_water_mark=high_water_mark,
    )
    return dataclasses.replace(plan, **more)  # type: ignore[arg-type]


def run(plan: Plan, parts: Parts | None = None) -> tuple[World, dict[str, list[str]]]:
    """The run, and what the checkers found in it."""
    world = World(plan, parts)
    world.run()
    return world, faults_of(world)


def live(seeds: Iterable[int], **more: object) -> Iterator[tuple[int, Counter[str], bool]]:
    """One life after another: its seed, what was told in it, and whether all held.

    A life is a knot of references, unlike anything that outlives it. So its garbage is collected once, at its end, and not a
    dozen times while it lives; that is a fifth of the time.
    """
    collects = gc.isenabled()
    gc.collect(1)
    gc.disable()
    try:
        for seed in seeds:
            world, found = run(plan_of(seed, **more))
            told = world.told
            world.history.forget()
            del world
            gc.collect(0)
            yield seed, told, not found
    finally:
        if collects:
            gc.enable()


def lived(seeds: Sequence[int], jobs: int) -> tuple[Counter[str], int | None]:
    """What was told in these lives, and the first of them in which something is wrong, after which no other is lived."""
    told = Counter[str]()
    with taking_turns():
        for seed, told_in_it, held in live(seeds, jobs=jobs):
            told.update(told_in_it)
            if not held:
                return told, seed
    return told, None


def lived_in_processes(seeds: Sequence[int], jobs: int, processes: int) -> Iterator[tuple[Counter[str], int | None]]:
    """The same of a few at a time, in the order in which they are done. Whoever stops asking waits for those few only."""
    parts = [seeds[start : start + SEEDS_TOGETHER] for start in range(0, len(seeds), SEEDS_TOGETHER)]
    if processes == 1:
        yield from map(partial(lived, jobs=jobs), parts)
        return
    # An interrupt is the parent's to hear: each of the others would tell of its own.
    with ProcessPoolExecutor(processes, initializer=partial(signal.signal, signal.SIGINT, signal.SIG_IGN)) as pool:
        try:
            for done in as_completed([pool.submit(lived, part, jobs) for part in parts]):
                yield done.result()
        finally:
            pool.shutdown(cancel_futures=True)


def shortened(plan: Plan, fails: Callable[[Plan], bool]) -> Plan:
    """A plan of fewer jobs and fewer strikes that still fails: halves of the strikes are left out, then quarters, and so on
    (delta debugging: Zeller and Hildebrandt, 2002)."""
    tries = iter(range(FEWEST_TRIES))

    def still_fails(candidate: Plan) -> bool:
        return next(tries, None) is not None and fails(candidate)

    for jobs in range(1, plan.jobs):
        fewer = dataclasses.replace(plan, jobs=jobs)
        if still_fails(fewer):
            plan = fewer
            break
    if still_fails(calm := dataclasses.replace(plan, strikes=frozenset())):
        return calm
    strikes = [number for number, _ in run(plan)[0].history.strikes] if plan.strikes is None else sorted(plan.strikes)
    pieces = 2
    while len(strikes) > 1 and pieces <= len(strikes):
        size = -(-len(strikes) // pieces)
        for start in range(0, len(strikes), size):
            kept = strikes[:start] + strikes[start + size :]
            candidate = dataclasses.replace(plan, strikes=frozenset(kept))
            if still_fails(candidate):
                plan, strikes, pieces = candidate, kept, max(2, pieces - 1)
                break
        else:
            pieces *= 2
    return plan


def report(plan: Plan, parts: Parts | None = None) -> str:
    """What is wrong with the run of this plan, the shortest history found that shows it, and how to have it again."""
    wrong = set(run(plan, parts)[1])
    short = shortened(plan, lambda candidate: bool(wrong & set(run(candidate, parts)[1])))
    world, found = run(short, parts)
    struck = "\n".join(f"  call {number}: {what}" for number, what in world.history.strikes)
    lines = "\n".join(f"  {name}: {line}" for name, each in found.items() for line in each)
    strikes = "all" if short.strikes is None else ",".join(str(number) for number in sorted(short.strikes)) or "none"
    return (
        f"seed {plan.seed} fails:\n{lines}\nwith {short.jobs} jobs and these strikes:\n{struck}\n{world.history.told()}\n"
        f"again: python -m tests.simulator --seed {plan.seed} --jobs {short.jobs} --strikes {strikes}"
    )


def main(arguments: Sequence[str] | None = None, parts: Parts | None = None) -> int:
    """Exit code 0 if everything held, 1 if something did not. ``parts`` are for the one seed."""
    cores = os.cpu_count() or 1
    parser = argparse.ArgumentParser(prog="python -m tests.simulator", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this one seed")
    parser.add_argument("--jobs", type=int, default=Plan(0).jobs, help="jobs that are submitted (default: %(default)s)")
    parser.add_argument("--strikes", default="all", help="only these numbers of calls are struck, such as 17,204, or none")
    parser.add_argument("--seeds", type=int, default=2_000, help="how many seeds to run (default: %(default)s)")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first of them (default: %(default)s)")
    parser.add_argument("--processes", type=int, default=cores, help="run them in so many (default: %(default)s)")
    parser.add_argument("--history", action="store_true", help="print the history of the one seed, whatever became of it")
    chosen = parser.parse_args(arguments)
    if chosen.seed is None:
        return _main_of_many(range(chosen.first, chosen.first + chosen.seeds), chosen.jobs, chosen.processes)
    plan = plan_of(chosen.seed, jobs=chosen.jobs, strikes=_strikes_in(chosen.strikes))
    with taking_turns():
        world, found = run(plan, parts)
        if chosen.history:
            click.echo(world.history.told(100_000))
        click.echo(report(plan, parts) if found else f"seed {chosen.seed}: everything held")
    return 1 if found else 0


def _strikes_in(text: str) -> frozenset[int] | None:
    if text == "all":
        return None
    return frozenset() if text == "none" else frozenset(int(number) for number in text.split(","))


def _main_of_many(seeds: range, jobs: int, processes: int) -> int:
    began, told, done, failing = time.monotonic(), Counter[str](), 0, None
    with closing(lived_in_processes(seeds, jobs, processes)) as lives:
        for told_in_them, failing in lives:
            if failing is not None:
                break
            told.update(told_in_them)
            done += SEEDS_TOGETHER
            if sys.stderr.isatty():
                click.echo(f"\r{min(done, len(seeds))} of {len(seeds)}", nl=False, err=True)
    if failing is not None:
        with taking_turns():
            click.echo(report(plan_of(failing, jobs=jobs)))
        return 1
    minutes = (time.monotonic() - began) / 60
    click.echo(f"{len(seeds)} seeds held, {len(seeds) / minutes:.0f} a minute in {processes} processes")
    for name, count in sorted(told.items()):
        click.echo(f"  {name}: {count}")
    return 0
