"""``ringfence demo``: the whole system at work on real files, with a frozen and a killed worker."""

from __future__ import annotations

import logging
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, cast

import click

from ringfence.cli import exit_codes
from ringfence.cli.api_command import told
from ringfence.cli.command import Command
from ringfence.cli.output import Output
from ringfence.cli.template_option import template_option
from ringfence.local.demo.reckoning import Verdict
from ringfence.local.demo.run import run
from ringfence.local.demo.screen import Screen
from ringfence.local.demo.sources import Sources, files_in, standard_library
from ringfence.local.demo.system import WORKER, System
from ringfence.local.demo.worker_processes import LOG, WorkerProcesses
from ringfence.local.dev import Dev

if TYPE_CHECKING:
    from ringfence.local.dev import Engine
    from ringfence.local.emulator import Startable

INTERRUPTED = 130
"""128 + SIGINT, as shells tell it."""

DISAGREEMENTS_SHOWN = 20

LEAST_WORKERS = 2
"""One to freeze, and one to take its jobs over."""


@click.command(
    cls=Command,
    epilog=f"Exit codes: {exit_codes.OK} nothing was lost or doubled and every number agrees; {exit_codes.FAILED} something "
    f"does not agree, or the system could not start; {exit_codes.USAGE} wrong usage; {exit_codes.OUTPUT_LOST} standard output "
    f"could not be written; {INTERRUPTED} Ctrl-C.",
)
@click.argument("folder", required=False, type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--emulator",
    type=click.Choice(["ministack", "moto"]),
    default="ministack",
    show_default=True,
    help="What stands in for AWS; moto is much slower.",
)
@click.option(
    "--queues",
    type=click.Choice(["sqs", "redis"]),
    default="sqs",
    show_default=True,
    help="Where the queues are. From Redis, the processes of a `ringfence worker` take the jobs.",
)
@click.option(
    "--workers", type=click.IntRange(min=LEAST_WORKERS, max=64), default=3, show_default=True, help="Worker processes."
)
@click.option("--keep", is_flag=True, help="Leave everything running afterwards, until Ctrl-C.")
@template_option
@told
def demo(*, folder: Path | None, emulator: str, queues: str, workers: int, keep: bool, template: Path, output: Output) -> int:
    """Index the Python files of FOLDER, or of the standard library, while workers come to harm.

    Starts the whole system on this machine. To the files it adds three broken ones of its own, whose jobs must be dead in the
    end. One job per file counts what is in it and adds that to a total of its package.
    Meanwhile one worker is frozen past its lease and thawed too late, and another is killed. In the end every row is compared
    with a plain loop over the same files.

    The last line is a JSON object. The demo is good only if no effect is lost or doubled, the thawed worker's late writes were
    refused, and every number agrees.
    """
    screen = Screen(quiet=output.as_json)
    logging.getLogger("ringfence").addHandler(_Saying(screen))
    sources = standard_library() if folder is None else files_in(folder)
    dev = Dev(
        template,
        emulator=cast("Startable", emulator),
        queues=cast("Engine", queues),
        # Nothing comes to the function while the queues are on Redis, but the template has it.
        processes={WORKER: workers if queues == "sqs" else 1},
        parameters={"DefaultQueueMaximumConcurrency": str(workers)},
        tell=screen.say,
    )
    try:
        with ExitStack() as running:
            running.enter_context(dev)
            folder = template.resolve().parent / "functions" / "worker"
            if queues == "redis":
                screen.say("Starting ringfence worker")
                processes = WorkerProcesses(dev.environment(WORKER), folder, dev.logs, workers)
                system = System(dev, folder, running.enter_context(processes).pids, LOG)
            else:
                system = System(dev, folder, lambda: dev.pids(WORKER))
            return _on(dev, sources, system, screen, output, keep=keep)
    except KeyboardInterrupt:
        screen.say("interrupted; everything is stopped")
        return INTERRUPTED


class _Saying(logging.Handler):
    """Warnings of the running system among the demo's own lines, so that they do not tear its bar."""

    def __init__(self, screen: Screen) -> None:
        super().__init__(logging.WARNING)
        self._screen = screen

    def emit(self, record: logging.LogRecord) -> None:
        self._screen.say(record.getMessage())


def _on(dev: Dev, sources: Sources, system: System, screen: Screen, output: Output, *, keep: bool) -> int:
    screen.say(f"ready: the API answers at {dev.api_url}, logs are in {dev.logs}")
    verdict = run(sources, system, screen)
    _complain(verdict, output)
    output.json(verdict.summary)
    if keep:
        screen.say(f"the API still answers at {dev.api_url}; Ctrl-C ends it")
        with suppress(KeyboardInterrupt):
            dev.wait()
    return 1 if verdict.disagreements else 0


def _complain(verdict: Verdict, output: Output) -> None:
    for line in verdict.disagreements[:DISAGREEMENTS_SHOWN]:
        output.note(f"disagreement: {line}")
    if more := verdict.disagreements[DISAGREEMENTS_SHOWN:]:
        output.note(f"… and {len(more)} more")
