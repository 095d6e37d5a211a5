"""``make bench``: Ringfence beside its peers, in interleaved rounds on this machine."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence

import click

from .claims import judged
from .environments import NotInstalled
from .ground import Ground
from .own import Own
from .peers import PEERS, QUICK, RINGFENCE, System
from .report import busy_lines, claim_lines, last_line, own_lines, table
from .results import Results
from .rounds import Rounds

QUICK_SECONDS = 270
"""No further round begins that would end later: `--quick` is to take less than five minutes."""

EPILOG = """Exit codes: 0 every claim of speed is true in this run; 1 one is not, or could not be judged, and is named; 2 wrong
usage. How to read what is printed: tests/benchmarks/README.md."""


@click.command(epilog=EPILOG)
@click.option("--quick", is_flag=True, help="The three fastest peers only, smaller backlogs: less than five minutes.")
@click.option("--rounds", type=click.IntRange(1, 50), help="Rounds. Defaults to 3, to 2 if --quick.")
@click.option(
    "--peer", "names", multiple=True, type=click.Choice([peer.name for peer in PEERS]), help="Only this one. May be repeated."
)
def bench(quick: bool, rounds: int | None, names: tuple[str, ...]) -> None:
    """Install the peers (once), run everything in rounds, and print medians, spreads and ratios.

    Progress goes to standard error; the last line of the output is one JSON object.
    """
    began = time.monotonic()
    wanted = set(names or (QUICK if quick else (peer.name for peer in PEERS)))
    peers, missing = _installed([peer for peer in PEERS if peer.name in wanted])
    systems = [RINGFENCE, *peers]
    results, own = Results(), Own()
    with Ground() as ground:
        rounds_run = Rounds(ground, systems, results, _tell, scale=0.5 if quick else 1.0)
        own.measure(ground, _tell, quick=quick)
        for number in range(1, (rounds or (2 if quick else 3)) + 1):
            round_began = time.monotonic()
            own.compare(ground, number, _tell)
            rounds_run.run(number, paced_seconds=3.0 if quick else 8.0)
            ends_at = time.monotonic() + (time.monotonic() - round_began) - began
            if quick and not rounds and ends_at > QUICK_SECONDS:
                _tell(f"no round after {number}: it would end later than {QUICK_SECONDS} s after the start")
                break
    claims = list(judged(results, own))
    click.echo(f"\nMedian (least-most) of {number} rounds; {time.monotonic() - began:.0f} s in all.\n")
    for line in table(results, [system.name for system in systems], [peer.name for peer in peers if not peer.crash_safe]):
        click.echo(line)
    for lines in ([*missing, *busy_lines(results)], own_lines(own), claim_lines(claims)):
        click.echo("")
        for line in lines:
            click.echo(line)
    click.echo("")
    click.echo(last_line(results, own))
    sys.exit(0 if all(claim.true for claim in claims) else 1)


def _installed(peers: Sequence[System]) -> tuple[list[System], list[str]]:
    """Those that this machine can have, and a line for each of the others."""
    there, missing = [], []
    for peer in peers:
        assert peer.environment is not None
        _tell(f"installing {peer.name}")
        try:
            peer.environment.place()
            there.append(peer)
        except NotInstalled as fault:
            missing.append(f"LEFT OUT   {peer.name}: {fault}")
            _tell(missing[-1])
    return there, missing


def _tell(line: str) -> None:
    click.echo(line, err=True)


bench(prog_name="make bench")
