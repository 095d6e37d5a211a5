"""``ringfence worker``: run jobs in processes of your own, from SQS and Redis queues alike."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ringfence.cli import exit_codes, outside_faults
from ringfence.cli.command import Command
from ringfence.cli.deployment import forget_blank_variables
from ringfence.cli.duration_option import DURATION
from ringfence.cli.standard_streams import OutputLost
from ringfence.errors import RingfenceError, Unavailable

if TYPE_CHECKING:
    from ringfence.runtime import Runtime
    from ringfence.settings import Settings

EXIT_CODES = """Exit codes: 0 it was stopped and every process ended within the grace; 1 a process had to be killed, or the
configuration is at fault; 2 wrong usage; 6 standard output could not be written."""


_WEIGHT = re.compile("0*[1-9][0-9]{0,8}")


class QueueShare(click.ParamType[tuple[str, int]]):
    """``NAME`` or ``NAME:WEIGHT``."""

    name = "NAME[:WEIGHT]"

    def convert(
        self, value: str | tuple[str, int], param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int]:
        if isinstance(value, tuple):
            return value
        queue, _, weight = value.partition(":")
        if not queue or (weight and not _WEIGHT.fullmatch(weight)):
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


@click.command(cls=Command, epilog=EXIT_CODES)
@click.option(
    "-q",
    "--queue",
    "queues",
    type=QueueShare(),
    multiple=True,
    help="A queue, and its share of the threads, of which it gets one at least. May be repeated; all queues alike if left out.",
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
@click.option(
    "--max-memory", type=click.IntRange(1), metavar="MIB", help="Replace a process that has had so much memory at once."
)
@click.option(
    "--liveness-file",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Touched about once a second while every process does its rounds: a probe looks at its age.",
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
    RINGFENCE_APP, …), and the module of RINGFENCE_APP from the folder where it is started, or from wherever Python finds it.
    """
    from ringfence.process.supervisor import StopSignals, Supervisor

    stops = StopSignals()  # before anything that takes long
    from ringfence.settings import Settings

    forget_blank_variables()
    try:
        settings = Settings.from_environment(os.environ)
    except RingfenceError as fault:
        raise click.ClickException(str(fault)) from None
    threads_of = shares(_weights(queues, settings.queues), threads)
    if liveness_file is not None and not _can_be_touched(liveness_file):
        raise click.BadParameter(f"{liveness_file} cannot be written", param_hint="--liveness-file")
    sys.path.insert(0, os.getcwd())

    def tell(event: str, pid: int, detail: str) -> None:
        with suppress(OutputLost):  # nobody may be reading any more; that is no reason to leave the processes alone
            tell_reader(event, pid, detail)

    def tell_reader(event: str, pid: int, detail: str) -> None:
        if as_json:
            click.echo(json.dumps({"event": f"process_{event}", "pid": pid, **({"detail": detail} if detail else {})}))
        else:
            click.echo(f"process {pid} {event}{f' ({detail})' if detail else ''}", err=True)

    def child(touched: Path | None) -> int:
        from ringfence.process.child import Child, Limits

        runtime = _load(settings, sum(threads_of.values()))
        if runtime is None:
            return exit_codes.FAILED
        limits = Limits(
            grace_seconds=grace,
            max_jobs=max_jobs,
            max_memory_bytes=None if max_memory is None else max_memory * 2**20,
            liveness_file=touched,
        )
        return Child(runtime, threads_of, limits).run()

    def probe() -> int:
        # In a process that ends then, for a fork would share what the app's modules set up when they are imported: connections,
        # locks, and threads that are not there any more.
        return exit_codes.FAILED if _load(settings, threads) is None else exit_codes.OK

    sys.exit(Supervisor(child, processes, grace, tell, stops, liveness_file).run(probe))


def _can_be_touched(file: Path) -> bool:
    # An empty name is the path of a folder.
    return not file.is_dir() and os.access(file if file.exists() else file.parent, os.W_OK)


def _weights(queues: Sequence[tuple[str, int]], known: Collection[str]) -> dict[str, int]:
    weights = dict(queues) or dict.fromkeys(known, 1)
    if len(queues) > len(weights):
        raise click.UsageError(f"a queue is named twice: {', '.join(name for name, _ in queues)}")
    if unknown := sorted(weights.keys() - set(known)):
        raise click.UsageError(f"RINGFENCE_QUEUES names no {', '.join(unknown)}; it has {', '.join(sorted(known)) or 'none'}")
    if not weights:
        raise click.UsageError("RINGFENCE_QUEUES names no queue")
    return weights


def _load(settings: Settings, threads: int) -> Runtime | None:
    """All that a process of so many threads needs before its first job, here and not in them; or None, the fault told."""
    from ringfence.aws import clients
    from ringfence.runtime import Runtime

    clients.make_room(threads)
    runtime = Runtime(settings)
    try:
        with outside_faults.named():
            _ = runtime.telemetry, runtime.worker, runtime.queues
    except Unavailable as fault:
        # SQS may not have told where a queue is: that is asked again in time.
        click.echo(f"Warning: {fault}", err=True)
    except RingfenceError as fault:
        click.echo(f"Error: {fault}", err=True)
        return None
    return runtime
