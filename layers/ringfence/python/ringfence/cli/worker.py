"""``ringfence worker``: run jobs in processes of your own, from SQS and Redis queues alike."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import click

from ringfence.cli.duration_option import DURATION
from ringfence.errors import RingfenceError

EXIT_CODES = """Exit codes: 0 it was stopped and every process ended within the grace; 1 a process had to be killed, or the
configuration is at fault; 2 wrong usage."""


class QueueShare(click.ParamType[tuple[str, int]]):
    """``NAME`` or ``NAME:WEIGHT``."""

    name = "NAME[:WEIGHT]"

    def convert(
        self, value: str | tuple[str, int], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        if isinstance(value, tuple):
            return value
        queue, _, weight = value.partition(":")
        if not queue or (weight and not (weight.isdigit() and int(weight) > 0)):
            self.fail(f"{value!r} is not a queue's name with a weight such as payments:4", param, ctx)
        return queue, int(weight or 1)


def shares(weights: dict[str, int], threads: int) -> dict[str, int]:
    """How many of the threads each queue gets: by weight, the largest remainders first, at least one each."""
    total = sum(weights.values())
    exact = {queue: threads * weight / total for queue, weight in weights.items()}
    given = {queue: max(1, int(share)) for queue, share in exact.items()}
    for queue in sorted(weights, key=lambda queue: exact[queue] - int(exact[queue]), reverse=True):
        if sum(given.values()) >= threads:
            break
        given[queue] += 1
    return given


@click.command(epilog=EXIT_CODES)
@click.option(
    "-q",
    "--queue",
    "queues",
    type=QueueShare(),
    multiple=True,
    help="A queue, and its share of the threads. May be repeated; all queues alike if left out.",
)
@click.option("--processes", type=click.IntRange(1, 256), default=1, show_default=True, help="Worker processes.")
@click.option("--threads", type=click.IntRange(1, 1024), default=8, show_default=True, help="Jobs at once in each process.")
@click.option(
    "--grace",
    type=DURATION,
    default="25s",
    show_default=True,
    help="How long running jobs may take to end after a SIGTERM; what has not ended then is handed over.",
)
@click.option("--max-jobs", type=click.IntRange(1), help="Replace a process after so many messages.")
@click.option("--max-memory", type=click.IntRange(1), metavar="MIB", help="Replace a process that has used so much memory.")
@click.option(
    "--liveness-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Touched about once a second while the process does its rounds: a probe looks at its age.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, one object a line.")
def worker(
    queues: tuple[tuple[str, int], ...],
    processes: int,
    threads: int,
    grace: float,
    max_jobs: int | None,
    max_memory: int | None,
    liveness_file: Path | None,
    as_json: bool,
) -> None:
    """Run jobs until a SIGTERM or Ctrl-C.

    Takes its configuration from the variables that the worker function has (RINGFENCE_QUEUES, RINGFENCE_LEDGER_TABLE,
    RINGFENCE_APP, …). Needs a shell in which the module of RINGFENCE_APP can be imported.
    """
    from ringfence.app_import import load_app
    from ringfence.process.supervisor import Supervisor
    from ringfence.settings import Settings

    try:
        settings = Settings.from_environment(os.environ)
        weights = dict(queues) or dict.fromkeys(settings.queues, 1)
        if unknown := sorted(weights.keys() - settings.queues.keys()):
            raise click.UsageError(
                f"RINGFENCE_QUEUES names no {', '.join(unknown)}; it has {', '.join(sorted(settings.queues))}"
            )
        load_app(settings.app)
    except RingfenceError as fault:
        raise click.ClickException(str(fault)) from None
    threads_of = shares(weights, threads)

    def tell(event: str, pid: int, detail: str) -> None:
        if as_json:
            click.echo(json.dumps({"event": f"process_{event}", "pid": pid, **({"detail": detail} if detail else {})}))
        else:
            click.echo(f"process {pid} {event}{f' ({detail})' if detail else ''}", err=True)

    def child() -> int:
        from ringfence.process.child import Child, Limits
        from ringfence.runtime import Runtime

        limits = Limits(
            grace_seconds=grace,
            max_jobs=max_jobs,
            max_memory_bytes=None if max_memory is None else max_memory * 2**20,
            liveness_file=liveness_file,
        )
        return Child(Runtime(settings), threads_of, limits).run()

    sys.exit(Supervisor(child, processes, grace, tell).run())
