"""``ringfence dev``: the whole system on this machine, until Ctrl-C."""

from __future__ import annotations

import logging
import os
import shlex
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, cast

import click

from ringfence.cli import exit_codes
from ringfence.cli.api_command import told
from ringfence.cli.command import Command
from ringfence.cli.duration_option import DURATION
from ringfence.cli.endpoint_option import ENDPOINT_URL
from ringfence.cli.output import Output
from ringfence.cli.program import program
from ringfence.cli.template_option import template_option
from ringfence.errors import RingfenceError
from ringfence.local.dev import Dev
from ringfence.local.log_follower import LogFollower
from ringfence.local.pool import Replaced
from ringfence.local.pool_sizes import QUEUE_PROCESSES
from ringfence.local.run_folder import leave_latest, others_running, write_environment

if TYPE_CHECKING:
    from ringfence.local.dev import Auth, Engine
    from ringfence.local.emulator import Startable

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_EXIT_BY_SIGNAL = 128
"""Added to the signal's number, as shells tell it."""


class Stopped(BaseException):
    """A signal asked for the end. Not an `Exception`: nothing on the way is to take it for a failure."""

    def __init__(self, signal_number: int) -> None:
        super().__init__(signal_number)
        self.signal_number = signal_number


class Parameter(click.ParamType[tuple[str, str]]):
    """``NAME=VALUE``."""

    name = "NAME=VALUE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        key, equals, given = str(value).partition("=")
        if not key or not equals:
            self.fail(f"{value!r} is not NAME=VALUE", param, ctx)
        return key, given


@click.command(
    cls=Command,
    epilog=f"Exit codes: {exit_codes.OK} it was stopped, having been ready; {exit_codes.FAILED} it could not start, or the "
    f"emulator ended; {exit_codes.USAGE} wrong usage; {exit_codes.OUTPUT_LOST} standard output could not be "
    f"written; {_EXIT_BY_SIGNAL} + signal: it was stopped before it was ready.",
)
@click.option(
    "--emulator", type=click.Choice(["ministack", "moto"]), help="Which emulator of AWS to start.  [default: ministack]"
)
@click.option(
    "--endpoint-url",
    type=ENDPOINT_URL,
    metavar="URL",
    help="Use an emulator that runs already.  [env: AWS_ENDPOINT_URL, LOCALSTACK_HOST]",
)
@click.option(
    "--port", type=click.IntRange(0, 65535), default=8080, show_default=True, help="The API's port; 0 takes a free one."
)
@click.option(
    "--auth", type=click.Choice(["none", "api-key"]), default="none", show_default=True, help="Whether the API wants keys."
)
@click.option(
    "--queues",
    type=click.Choice(["sqs", "redis"]),
    default="sqs",
    show_default=True,
    help="Where the queues are. On Redis (one is started), only `ringfence worker` takes from them.",
)
@template_option
@click.option(
    "--parameter", "parameters", type=Parameter(), multiple=True, help="A parameter of the template; may be repeated."
)
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    default=QUEUE_PROCESSES,
    show_default=True,
    help="Processes of each function that takes from queues.",
)
@click.option(
    "--timers-every", type=DURATION, default="1s", show_default=True, help="How often schedules fire, whatever they say."
)
@click.option("-v", "--verbose", is_flag=True, help="Show the logs of all functions.")
@told
def dev(
    *,
    emulator: str | None,
    endpoint_url: str | None,
    port: int,
    auth: str,
    queues: str,
    template: Path,
    parameters: tuple[tuple[str, str], ...],
    workers: int,
    timers_every: float,
    verbose: bool,
    output: Output,
) -> int:
    """Run the whole system on this machine, until Ctrl-C: no account, no token, no Docker.

    Starts an emulator of AWS, creates the template's stack on it, runs each function in processes of its own, and calls them
    from all event sources that the template names. The API answers on 127.0.0.1 only. Nothing is kept but the logs.

    With --json, one line says that it is ready and how to reach it, and one more each time a process had to be replaced.
    """
    if emulator is not None and endpoint_url is not None:
        raise click.UsageError("--emulator starts an emulator and --endpoint-url uses one that runs: give one of them")
    if twice := [name for name, times in Counter(name for name, _ in parameters).items() if times > 1]:
        raise click.UsageError(f"--parameter gives {', '.join(twice)} twice")
    _log_to_stderr(verbose)
    tell: Callable[[str], None] = (lambda _text: None) if output.as_json else output.note
    system = Dev(
        template,
        emulator=cast("Startable | None", emulator),
        endpoint_url=endpoint_url,
        auth=cast("Auth", auth),
        queues=cast("Engine", queues),
        workers=workers,
        parameters=dict(parameters),
        port=port,
        timers_every_seconds=timers_every,
        on_replaced=lambda replaced: _tell_replaced(output, replaced),
        tell=tell,
    )
    ready = False
    try:
        with _signals_stop(), system:
            ready = True
            _tell_ready(output, system, auth, queues)
            with _logs_shown(system, output, verbose):
                raise RingfenceError(system.wait())
    except Stopped as stopped:
        tell("stopped")
        return exit_codes.OK if ready else _EXIT_BY_SIGNAL + stopped.signal_number
    finally:
        if ready:
            leave_latest(system.run_folder)


def _log_to_stderr(verbose: bool) -> None:
    """Only our own words: libraries have theirs."""
    ours = logging.getLogger("ringfence")
    ours.addHandler(logging.StreamHandler())
    ours.setLevel(logging.INFO if verbose else logging.WARNING)
    ours.propagate = False


@contextmanager
def _signals_stop() -> Iterator[None]:
    """Turn the first of `_SIGNALS` into `Stopped`, raised in the main thread, and ignore the others: it is stopping."""

    def stop(number: int, _frame: FrameType | None) -> None:
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        raise Stopped(number)

    before = {each: signal.signal(each, stop) for each in _SIGNALS}
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


@contextmanager
def _logs_shown(system: Dev, output: Output, wanted: bool) -> Iterator[None]:
    if not wanted:
        yield
        return
    follower = LogFollower(system.logs, lambda name, line: output.note(f"{name}  {line}"))
    follower.start()
    try:
        yield
    finally:
        follower.stop()


def _tell_ready(output: Output, system: Dev, auth: str, queues: str) -> None:
    environment = system.environment()
    variables = write_environment(system.run_folder, environment)
    if output.as_json:
        output.json(
            {
                "event": "ready",
                "api": system.api_url,
                "endpoint_url": system.endpoint_url,
                "region": system.endpoint.region,
                "emulator": system.endpoint.kind,
                "pid": os.getpid(),
                "functions": {name: system.pids(name) for name in system.functions},
                "outputs": dict(system.outputs),
                "environment": environment,
                "logs": str(system.logs),
            }
        )
        return
    pairs = [
        ("API", f"{system.api_url} (this machine only, {'no key wanted' if auth == 'none' else 'with API keys'})"),
        ("Emulator", f"{system.endpoint.kind} at {system.endpoint_url}"),
        ("Logs", str(system.logs)),
        ("Variables", str(variables)),
    ]
    pairs += [("", f"({other / variables.name}: another `ringfence dev`)") for other in others_running(system.run_folder)]
    output.fields(pairs)
    header = "" if auth == "none" else ' -H "Authorization: Bearer $RINGFENCE_API_KEY"'
    if queues == "redis":
        there = system.jobs_folder or Path()
        worker = f"cd {shlex.quote(str(there))} && {program(absolute=True)} worker"
        click.echo(
            "\nThe queues are on Redis, which calls no function: no job runs until you start a worker, in another terminal:\n"
            f"  (. {shlex.quote(str(variables))} && {worker})"
        )
    if auth != "none":
        click.echo(f"\nMake a key:\n  (. {shlex.quote(str(variables))} && {program()} keys create)")
    introduction, job = _example(system.jobs_folder)
    click.echo(
        f"\n{introduction}:\n  curl -si {system.api_url}/v1/jobs{header} -H 'Content-Type: application/json' \\\n"
        f"    -d '{job}'\n\nCtrl-C ends it."
    )


def _example(jobs_folder: Path | None) -> tuple[str, str]:
    """A job to submit: one of the examples where they are, else a place to fill in. What else is registered is not known here:
    the app is imported by its functions alone."""
    if jobs_folder is not None and (jobs_folder / "jobs" / "signup.py").is_file():
        return "Try it", '{"name": "signup", "payload": {"email": "ada@example.com", "name": "Ada"}}'
    where = "" if jobs_folder is None else f", in {jobs_folder}"
    return f"Try it, with the name and the arguments of a job of yours{where}", '{"name": "NAME", "payload": {}}'


def _tell_replaced(output: Output, replaced: Replaced) -> None:
    # Nobody may be reading any more; that is no reason for the function to go without its process.
    with suppress(OSError):
        _print_replaced(output, replaced)


def _print_replaced(output: Output, replaced: Replaced) -> None:
    if output.as_json:
        document = {
            "event": "replaced",
            "function": replaced.function,
            "old_pid": replaced.old_pid,
            "new_pid": replaced.new_pid,
        }
        output.json({**document, "reason": replaced.reason})
    else:
        output.note(
            f"{replaced.function}: process {replaced.old_pid} ended ({replaced.reason}), {replaced.new_pid} stands in for it"
        )
