"""``make faults``: the command."""

from __future__ import annotations

import logging
import random
import signal
import sys
import time
from types import FrameType
from typing import NoReturn, cast

import click
import msgspec

from ringfence.errors import RingfenceError
from ringfence.local.demo.screen import Screen

from .acts import ACTS
from .bed import ENGINES, HIDDEN_SECONDS, Bed, Engines, TooLate, started
from .campaign import Campaign
from .inside.planted import PLANTS
from .plan import Plan
from .reckoning import Reckoned, Summary

FULL_MINUTES = 10.0
"""A run so long has to have seen every interesting event."""

PLANTED_STALLED_SECONDS = HIDDEN_SECONDS + 10.0
"""With a bug planted, a drain in which nothing has ended for so long is given up: what is only hidden has been seen by then."""

WRONG_SHOWN = 30
LINE_SECONDS = 15.0
"""Between two lines of progress where there is no terminal."""

WRONG, UNSOUND, INTERRUPTED = 1, 3, 130

EPILOG = f"""Exit codes: {0} nothing was lost, doubled or stuck, and in a full-length run every interesting event happened;
{WRONG} something was, or one never did; 2 wrong usage; {UNSOUND} the test bed is unsound or could not be started, which says
nothing of Ringfence; {INTERRUPTED} interrupted: everything is stopped. `make` tells all of these as 2; the last line says which
it was, in any case: with the figures, or with an `error` and its `exit_code`."""


@click.command(epilog=EPILOG)
@click.option("--minutes", type=click.FloatRange(0.1, 600), default=FULL_MINUTES, show_default=True, help="Load and faults.")
@click.option("--queues", type=click.Choice(ENGINES), default="both", show_default=True, help="Where the queues are.")
@click.option("--seed", type=int, help="Which faults, and when. Printed; by chance if left out.")
@click.option("--rate", type=click.FloatRange(0.1, 1_000), default=15.0, show_default=True, help="Jobs a second.")
@click.option("--act", "names", multiple=True, type=click.Choice([act.name for act in ACTS]), help="Only this. Repeatable.")
@click.option("--plant", type=click.Choice(list(PLANTS)), help="A bug that is to be found: the campaign itself is on trial.")
def faults(minutes: float, queues: str, seed: int | None, rate: float, names: tuple[str, ...], plant: str | None) -> None:
    """Hurt a whole system of real processes under load, heal it, and check that every accepted job ended once.

    Progress goes to standard error; the last line of the output is one JSON object.
    """
    told = _Told()
    signal.signal(signal.SIGTERM, _interrupt)
    logging.getLogger("ringfence").addHandler(logging.NullHandler())
    chosen = random.SystemRandom().randrange(1_000_000) if seed is None else seed
    told.say(f"seed {chosen}: make faults MINUTES={minutes:g} QUEUES={queues} SEED={chosen}")
    acts = [act for act in ACTS if act.name in names] or None
    try:
        plan = Plan(chosen, minutes * 60, rate, only=acts, **({"stalled_seconds": PLANTED_STALLED_SECONDS} if plant else {}))
        with started(cast("Engines", queues), told.say, planted=plant) as bed:
            summary, reckoned = _run(bed, plan, told)
    except KeyboardInterrupt:
        _give_up("interrupted; everything is stopped", INTERRUPTED, told)
    except RingfenceError as fault:
        _give_up(str(fault), WRONG if isinstance(fault, TooLate) else UNSOUND, told)
    _tell(summary, reckoned, told)
    full = minutes >= FULL_MINUTES and not acts
    sys.exit(WRONG if reckoned.wrong or (full and summary.never_happened) else 0)


def _run(bed: Bed, plan: Plan, told: _Told) -> tuple[Summary, Reckoned]:
    told.say(f"ready; logs are in {bed.dev.logs}")
    return Campaign(bed, plan, told.say, told.progress).run()


def _give_up(why: str, exit_code: int, told: _Told) -> NoReturn:
    told.say(why)
    click.echo(msgspec.json.encode({"error": why, "exit_code": exit_code}).decode())
    sys.exit(exit_code)


def _tell(summary: Summary, reckoned: Reckoned, told: _Told) -> None:
    for line in reckoned.wrong[:WRONG_SHOWN]:
        told.say(f"WRONG: {line}")
    if more := reckoned.wrong[WRONG_SHOWN:]:
        told.say(f"… and {len(more)} more")
    for name in summary.never_happened:
        told.say(f"never happened: {name}")
    load = f"{summary.accepted_per_second} jobs a second accepted, {summary.ended_per_second} ended"
    told.say(f"{load}; {summary.faults} faults, and {len(reckoned.wrong) or 'nothing'} went wrong")
    click.echo(msgspec.json.encode(summary).decode())


class _Told:
    """What a person sees: lines with the time; below them one that changes, on a terminal, or now and then one more."""

    def __init__(self) -> None:
        self._screen, self._next = Screen(), 0.0

    def say(self, text: str) -> None:
        self._clear()
        self._screen.say(text)

    def progress(self, told: str) -> None:
        if sys.stderr.isatty():
            self._clear()
            sys.stderr.write(f"{self._screen.seconds:6.1f} s  {told}")
            sys.stderr.flush()
        elif time.monotonic() >= self._next:
            self._next = time.monotonic() + LINE_SECONDS
            self._screen.say(told)

    def _clear(self) -> None:
        if sys.stderr.isatty():
            sys.stderr.write("\r\x1b[2K")
            sys.stderr.flush()


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt


if __name__ == "__main__":
    faults()
