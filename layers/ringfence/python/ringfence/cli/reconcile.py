"""``ringfence reconcile``: what the timers do by themselves, now and from beginning to end."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import click

from ringfence.cli import exit_codes
from ringfence.cli.api_command import told
from ringfence.cli.command import Command
from ringfence.cli.deployment import endpoint_option, runtime_of, table_option
from ringfence.cli.duration_option import DURATION
from ringfence.cli.notes import Notes
from ringfence.cli.output import Output

if TYPE_CHECKING:
    from ringfence.reconcile import Found

OLDER_THAN = "25h"
"""`ringfence.reconcile.AFTER_HOURS`, which says why."""

QUEUES = "RINGFENCE_QUEUES"


@click.command(cls=Command, epilog=exit_codes.MEANING)
@click.option("--queue", help="Only this queue.")
@click.option(
    "--older-than",
    type=DURATION,
    default=OLDER_THAN,
    show_default=True,
    help="Only jobs that have not changed for so long, since the end of their lease or delay. With 0s all that are unfinished.",
)
@click.option("--dry-run", is_flag=True, help="Count the jobs, and push nothing.")
@table_option
@endpoint_option
@told
def reconcile(output: Output, queue: str | None, older_than: float, dry_run: bool, table: str, endpoint_url: str | None) -> int:
    """Push a new ticket for every unfinished job that may have lost its own, at the pace of its queue.

    The timers do this by themselves, soon after a Redis has lost its memory and once a day for everything. Whether a job still
    has its ticket cannot be known; a second one is harmless. A job that the log still holds, or that its client was never told
    of, may be among them.

    Reads the whole ledger table. Needs AWS credentials for it, and RINGFENCE_QUEUES as `ringfence worker` does.
    """
    runtime = runtime_of(table, endpoint_url, os.environ)
    if not dry_run:
        _ensure_known(queue, runtime.settings.queues)
    runtime.telemetry = Notes(output)
    with output.progress("Looking through the ledger", None) as progress:
        examined = 0

        def tell(rows: int) -> None:
            nonlocal examined
            examined += rows
            progress.advance(rows)

        queues = None if queue is None else [queue]
        found = runtime.reconciler.at_once(queues, older_than, dry_run=dry_run, tell=tell)
    if not dry_run:
        output.did(f"{sum(each.renewed for each in found.values())} jobs have a new ticket")
    _show(output, found, examined, dry_run=dry_run)
    return _exit_code(found)


def _ensure_known(queue: str | None, queues: Any) -> None:
    known = ", ".join(sorted(queues)) or "none"
    if not queues or (queue is not None and queue not in queues):
        raise click.UsageError(f"{QUEUES} names {known if queue is None else f'no {queue}; it has {known}'}")


def _show(output: Output, found: dict[str, Found], examined: int, *, dry_run: bool) -> None:
    if output.as_json:
        queues = {
            queue: {"jobs": each.jobs, "renewed": each.renewed, "fault": each.fault} for queue, each in sorted(found.items())
        }
        output.json({"examined": examined, "dry_run": dry_run, "queues": queues})
        return
    rows = [[queue, str(each.jobs), str(each.renewed), each.fault or ""] for queue, each in sorted(found.items())]
    output.table(["queue", "jobs", "renewed", "why not all"], rows)
    jobs, renewed = sum(each.jobs for each in found.values()), sum(each.renewed for each in found.values())
    what = "would get a new ticket" if dry_run else f"may have lost their ticket; {renewed} have a new one"
    output.note(f"{examined} items looked at; {jobs} jobs {what}.")


def _exit_code(found: dict[str, Found]) -> int:
    from ringfence.reconcile import UNKNOWN_QUEUE

    faults = {each.fault for each in found.values()} - {None}
    if not faults:
        return exit_codes.OK
    return exit_codes.FAILED if UNKNOWN_QUEUE in faults else exit_codes.UNAVAILABLE
