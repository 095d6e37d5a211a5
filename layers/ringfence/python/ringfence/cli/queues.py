"""``ringfence queues``: how much waits, at what pace it goes, and changing that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from ringfence.cli import exit_codes
from ringfence.cli.api_command import api_command
from ringfence.cli.command import Command
from ringfence.cli.limit_options import HIGH_WATER, NONE, PER_SECOND, shown_rate
from ringfence.cli.output import Output

if TYPE_CHECKING:
    from ringfence.client import Client
    from ringfence.http.documents import QueueDocument

HEADINGS = ("queue", "ready", "leased", "delayed", "rate", "burst", "high water", "state")


@click.command(cls=Command, epilog=exit_codes.MEANING)
@click.argument("name", required=False)
@click.option("--rate", type=PER_SECOND, help="Tickets a second at most: 10/s, 0.2/s, 30/m, or none.")
@click.option("--burst", type=click.IntRange(1), help="How many may come at once after a pause.")
@click.option("--high-water", type=HIGH_WATER, help="Tickets in the queue above which jobs are parked, or none.")
@click.option("--pause/--resume", "paused", default=None, help="Stop pushing tickets, or go on.")
@api_command
def queues(client: Client, output: Output, name: str | None, **settings: Any) -> None:
    """Show the queues, or one; or change the pace of one.

    A change is in force within five seconds. It needs a key with the scope admin. The depth of a queue that cannot be asked is
    shown as ?, and the reason on standard error.
    """
    named = {"rate": "rate_per_second", "high_water": "high_water_mark"}
    changes: dict[str, Any] = {named.get(option, option): value for option, value in settings.items() if value is not None}
    if changes and name is None:
        raise click.UsageError("name the queue whose pace is to change")
    if name is None:
        shown = list(client.queues().values())
    else:
        limits: dict[str, Any] = {setting: None if value == NONE else value for setting, value in changes.items()}
        shown = [client.set_queue(name, **limits) if changes else client.queue(name)]
    if changes:
        output.did(f"queue {name} was changed")
    if output.as_json:
        for queue in shown:
            output.json(queue)
        return
    output.table(HEADINGS, [_row(queue) for queue in shown])
    for queue in shown:
        if queue.depth_fault is not None:
            output.note(f"{queue.name}: its depth is not known: {queue.depth_fault}")


def _row(queue: QueueDocument) -> list[str]:
    mark = queue.high_water_mark
    return [
        queue.name,
        *("?" if count is None else str(count) for count in (queue.ready, queue.leased, queue.delayed)),
        shown_rate(queue.rate_per_second),
        str(queue.burst),
        "none" if mark is None else str(mark),
        "paused" if queue.paused else "parked" if queue.parked else "open",
    ]
