"""``ringfence replay``: failed batches of the relay, back into the log."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import click

from ringfence.cli import exit_codes
from ringfence.cli.api_command import told
from ringfence.cli.command import Command
from ringfence.cli.deployment import NO_TABLE, endpoint_option, runtime_of
from ringfence.cli.notes import Notes
from ringfence.cli.output import Output

if TYPE_CHECKING:
    from ringfence.replay import FailedBatch


@click.command(cls=Command, epilog=exit_codes.MEANING)
@click.option("--bucket", envvar="RINGFENCE_BUCKET", show_envvar=True, required=True, help="BucketName of the outputs.")
@click.option(
    "--stream", envvar="RINGFENCE_STREAM", show_envvar=True, required=True, help="StreamName of the outputs: the log."
)
@click.option("--limit", type=click.IntRange(1), help="At most so many batches.")
@click.option("--dry-run", is_flag=True, help="Show the batches, and replay nothing.")
@endpoint_option
@told
def replay(output: Output, bucket: str, stream: str, limit: int | None, dry_run: bool, endpoint_url: str | None) -> int:
    """Put back into the log what the relay could not push for as long as the log keeps it, once its queues take tickets again.

    The alarm BatchesAreGivenUp tells of such batches. Each is removed from the bucket when all of it is in the log again; what
    is no failed batch of this log is told and left there, and the exit code is 1. Needs AWS credentials for the bucket
    (s3:ListBucket, s3:GetObject and s3:DeleteObject below aws/lambda/) and for the log (kinesis:PutRecords).
    """
    from ringfence.replay import UnreadableBatch

    named = {"RINGFENCE_BUCKET": bucket, "RINGFENCE_STREAM": stream}
    runtime = runtime_of(NO_TABLE, endpoint_url, named)
    runtime.telemetry = Notes(output)
    replayer = runtime.replayer
    batches = jobs = unread = 0
    rows: list[list[str]] = []
    try:
        with output.progress("Replaying", None) as progress:
            for name in islice(replayer.batches.names(), limit):
                try:
                    batch = replayer.batches.read(name)
                except UnreadableBatch as fault:
                    unread += 1
                    output.error(fault)
                    continue
                if not dry_run:
                    replayer.replay(name, batch)
                    output.did(f"{batches + 1} failed batches are back in the log")
                batches, jobs = batches + 1, jobs + batch.jobs()
                _tell(output, name, batch, rows)
                progress.advance()
    finally:
        if rows:
            output.table(["batch", "records", "jobs", "arrived", "why"], rows)
        what = "would go back" if dry_run else "went back"
        output.note(f"{batches} failed batches with {jobs} jobs {what} into {stream}")
    return exit_codes.FAILED if unread else exit_codes.OK


def _tell(output: Output, name: str, batch: FailedBatch, rows: list[list[str]]) -> None:
    if output.as_json:
        output.json(
            {
                "batch": name,
                "records": len(batch.entries),
                "jobs": batch.jobs(),
                "arrived_at": batch.arrived_at,
                "why": batch.why,
            }
        )
    else:
        rows.append([name, str(len(batch.entries)), str(batch.jobs()), batch.arrived_at, batch.why])
