"""``ringfence redrive``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

import click

from ringfence.cli import exit_codes
from ringfence.cli.api_command import api_command
from ringfence.cli.command import Command
from ringfence.cli.many_jobs import Tally, ids_of, job_ids_argument
from ringfence.cli.output import Output
from ringfence.cli.payloads import payload_option
from ringfence.job import State

if TYPE_CHECKING:
    from ringfence.client import Client


@click.command(cls=Command, epilog=exit_codes.MEANING)
@job_ids_argument(required=False)
@click.option("--payload", metavar="JSON|@FILE|-", help="Run it with other arguments than before. For one JOB_ID only.")
@click.option("--dead", is_flag=True, help="Every dead job that fits the options below, what died last first.")
@click.option("--queue", help="With --dead: only jobs of this queue.")
@click.option("--name", help="With --dead: only jobs of this name.")
@click.option("--limit", type=click.IntRange(1), help="With --dead: at most so many jobs.")
@api_command
def redrive(
    client: Client,
    output: Output,
    job_ids: tuple[str, ...],
    payload: str | None,
    dead: bool,
    queue: str | None,
    name: str | None,
    limit: int | None,
) -> int:
    """Give dead jobs their attempts back: those named, or with --dead all that fit. Needs a key with the scope operate, for
    --dead with read too.

    A lone - reads the ids from standard input. A job that cannot be redriven is told on standard error and the rest goes on;
    then the exit code is 1. `ringfence list --state dead` shows beforehand what --dead would take.
    """
    if dead and job_ids:
        raise click.UsageError("JOB_ID and --dead exclude each other")
    if not dead and not job_ids:
        raise click.UsageError("name a JOB_ID, or - for those on standard input, or --dead for all dead jobs")
    if not dead and (queue, name, limit) != (None, None, None):
        raise click.UsageError("--queue, --name and --limit choose among all dead jobs: they need --dead")
    if payload is not None and (len(job_ids) != 1 or job_ids == ("-",)):
        raise click.UsageError("--payload is for one JOB_ID: what one job needs may be wrong for another")
    ids: Iterable[str]
    if dead:
        ids, total = _ids_of_dead(client, queue, name, limit), None
    else:
        ids = dict.fromkeys(ids_of(job_ids))  # one that is named twice would be refused, or die twice
        total = len(ids)
    edited = payload_option(payload)
    with Tally(output, "Redriving", "redriven", total) as tally:
        for job_id in ids:
            with tally.turn(job_id):
                tally.succeed(client.redrive(job_id, edited), f"job {job_id} was redriven")
    if not tally.turns and not output.as_json:
        output.note("no dead job fits")
    return tally.exit_code


def _ids_of_dead(client: Client, queue: str | None, name: str | None, limit: int | None) -> Iterator[str]:
    """Asks for a page once the jobs of the one before have had their turn. None is met twice: what died last comes first, so
    that a job which dies again meanwhile stands before all that is still to be read."""
    jobs = client.list(queue=queue, state=State.DEAD)
    return islice((job.job_id for job in jobs if name in (None, job.name)), limit)
