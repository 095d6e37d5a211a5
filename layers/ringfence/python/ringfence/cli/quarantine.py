"""``ringfence quarantine``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from ringfence.cli import exit_codes
from ringfence.cli.api_command import api_command
from ringfence.cli.command import Command
from ringfence.cli.output import Output

if TYPE_CHECKING:
    from ringfence.client import Client

MOST_SHOWN = 100
"""What the API answers at most."""


@click.command(cls=Command, epilog=exit_codes.MEANING)
@click.option("--limit", type=click.IntRange(1, MOST_SHOWN), default=50, show_default=True, help="At most so many.")
@api_command
def quarantine(client: Client, output: Output, limit: int) -> None:
    """Show what could not be read and was set aside, newest first, without its bytes. Needs the scope operate."""
    items = client.quarantine(limit)
    if output.as_json:
        for item in items:
            output.json(item)
        return
    rows = [[item.at, item.source, item.position, str(item.bytes), item.job_id or "", item.reason] for item in items]
    output.table(["set aside", "source", "position", "bytes", "job", "reason"], rows)
