"""Run plans, and make a history that fails as short as it goes.

python -m tests.simulator --seed 4711          one run, its history if something is wrong with it
python -m tests.simulator --seeds 10000 --from 5000
"""

from __future__ import annotations

import argparse
import dataclasses
import gc
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence

import click

from .checkers import faults_of
from .scheduler import taking_turns
from .world import Parts, Plan, World

FEWEST_TRIES = 200
"""Runs that shortening a failing history may take."""

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
    strikes = "\n".join(f"  call {number}: {what}" for number, what in world.history.strikes)
    lines = "\n".join(f"  {name}: {line}" for name, each in found.items() for line in each)
    return (
        f"seed {plan.seed} fails:\n{lines}\nwith {short.jobs} jobs and these strikes:\n{strikes}\n{world.history.told()}\n"
        f"again: python -m tests.simulator --seed {plan.seed} --jobs {short.jobs} --strikes "
        f"{','.join(str(number) for number in sorted(short.strikes or ())) or 'all'}"
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code 0 if everything held, 1 if something did not."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulator", description=__doc__)
    parser.add_argument("--seed", type=int, help="run this one seed")
    parser.add_argument("--jobs", type=int, default=Plan(0).jobs, help="jobs that are submitted (default: %(default)s)")
    parser.add_argument("--strikes", default="all", help="only these numbers of calls are struck, such as 17,204")
    parser.add_argument("--seeds", type=int, default=2_000, help="how many seeds to run (default: %(default)s)")
    parser.add_argument("--from", dest="first", type=int, default=0, help="the first of them (default: %(default)s)")
    parser.add_argument("--history", action="store_true", help="print the history of the one seed, whatever became of it")
    chosen = parser.parse_args(arguments)
    with taking_turns():
        if chosen.seed is not None:
            strikes = None if chosen.strikes == "all" else frozenset(int(number) for number in chosen.strikes.split(","))
            plan = plan_of(chosen.seed, jobs=chosen.jobs, strikes=strikes)
            world, found = run(plan)
            if chosen.history:
                click.echo(world.history.told(100_000))
            click.echo(report(plan) if found else f"seed {chosen.seed}: everything held")
            return 1 if found else 0
        began, told = time.monotonic(), Counter[str]()
        for seed, told_in_it, held in live(range(chosen.first, chosen.first + chosen.seeds), jobs=chosen.jobs):
            told.update(told_in_it)
            if not held:
                click.echo(report(plan_of(seed, jobs=chosen.jobs)))
                return 1
            if sys.stderr.isatty() and seed % 20 == 0:
                click.echo(f"\r{seed - chosen.first} of {chosen.seeds}", nl=False, err=True)
        minutes = (time.monotonic() - began) / 60
        click.echo(f"{chosen.seeds} seeds held, {chosen.seeds / minutes:.0f} a minute")
        for name, count in sorted(told.items()):
            click.echo(f"  {name}: {count}")
    return 0
