"""``ringfence status``, ``wait``, ``list`` and ``cancel``."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from ringfence.cli import exit_codes
from ringfence.cli.api_command import api_command
from ringfence.cli.command import Command
from ringfence.cli.duration_option import DURATION
from ringfence.cli.job_line import columns, state_of, tell
from ringfence.cli.many_jobs import Tally, ids_of, job_ids_argument
from ringfence.cli.output import Output
from ringfence.cli.shown import shortened
from ringfence.errors import RingfenceError, StillRunning
from ringfence.job import State

if TYPE_CHECKING:
    from ringfence.client import Client, JobSnapshot

TEXT_CHARACTERS = 2_000
"""As much of a payload or result as is shown to people; --json has all of it."""

TOO_LATE = {State.SUCCEEDED: "it has already succeeded", State.DEAD: "it is already dead"}
"""What is said to whoever cancels a job that has ended otherwise."""

states = click.Choice([state.value for state in State])


@click.command(cls=Command, epilog=exit_codes.MEANING)
@click.argument("job_id")
@api_command
def status(client: Client, output: Output, job_id: str) -> None:
    """Show a job, with its last three ended attempts."""
    job = client.get(job_id)
    waits = job.state in (State.QUEUED, State.SCHEDULED)
    _show(output, job, paused=waits and not output.as_json and _is_paused(client, job.queue))


@click.command(cls=Command, epilog=exit_codes.MEANING)
@job_ids_argument(required=True)
@click.option("--timeout", type=DURATION, default="1m", show_default=True, help="For all of them together.")
@api_command
def wait(client: Client, output: Output, job_ids: tuple[str, ...], timeout: float) -> int:
    """Wait until jobs have ended. A lone - reads their ids from standard input."""
    ids = ids_of(job_ids)
    deadline = time.monotonic() + timeout
    code = exit_codes.OK
    ended: list[list[str]] = []
    with output.progress("Waiting", len(ids)) as progress:
        for job_id in ids:
            try:
                job = client.wait(job_id, max(0.0, deadline - time.monotonic()))
            except StillRunning:
                job = client.get(job_id)
            if output.for_people:
                ended.append(columns(job))  # below the bar, once it is gone
            else:
                tell(output, job)
            progress.advance()
            code = max(code, _code(job.state))
    if ended:
        output.table(["job", "state", "error"], ended)
    return code


@click.command("list", cls=Command, epilog=exit_codes.MEANING)
@click.option("--queue", help="Only jobs of this queue.")
@click.option("--state", type=states, help="Only jobs in this state.")
@click.option("--limit", type=click.IntRange(1), default=50, show_default=True, help="At most so many jobs.")
@api_command
def list_jobs(client: Client, output: Output, queue: str | None, state: str | None, limit: int) -> None:
    """List jobs, newest first; with --state dead, what died last comes first."""
    jobs = client.list(queue=queue, state=state, limit=limit)
    if output.as_json:
        for job in jobs:
            output.json(job.json_text)
        return
    output.table(["job", "state", "name", "queue", "attempts", "created", "error"], [_row(job) for job in jobs])


@click.command(cls=Command, epilog=exit_codes.MEANING)
@job_ids_argument(required=True)
@api_command
def cancel(client: Client, output: Output, job_ids: tuple[str, ...]) -> int:
    """Cancel waiting jobs, or ask the workers that run them to stop. A lone - reads their ids from standard input.

    A running job hears of it within two thirds of its lease, and has succeeded if it returns all the same. Exit code 1: a job
    had already ended otherwise.
    """
    ids = ids_of(job_ids)
    with Tally(output, "Cancelling", "cancelled, or asked to stop,", len(ids)) as tally:
        for job_id in ids:
            with tally.turn(job_id):
                job = client.cancel(job_id)
                if job.state in TOO_LATE:
                    tally.show(job)
                    tally.refuse(RingfenceError(TOO_LATE[job.state]))
                else:
                    tally.succeed(job, f"the cancellation of job {job.job_id} was accepted (it is {state_of(job)})")
    return tally.exit_code


def _code(state: State) -> int:
    if not state.terminal:
        return exit_codes.TIMED_OUT
    return exit_codes.OK if state is State.SUCCEEDED else exit_codes.ENDED_BADLY


def _row(job: JobSnapshot) -> list[str]:
    created = job.document.created_at.partition(".")[0] + "Z"  # to the second: a terminal is narrow
    return [job.job_id, job.state, job.name, job.queue, str(job.attempts), created, shortened(job.error or "", 120)]


def _is_paused(client: Client, queue: str) -> bool:
    """False where it cannot be told: the job is what was asked for."""
    with suppress(RingfenceError):
        return client.queue(queue).paused
    return False


def _show(output: Output, job: JobSnapshot, *, paused: bool) -> None:
    if output.as_json:
        output.json(job.json_text)
        return
    document = job.document
    attempts = f"{document.attempts} of {document.max_attempts}"
    times = [(name, getattr(document, f"{name}_at")) for name in ("created", "run", "started", "finished", "expires")]
    pairs = [
        ("job", job.job_id),
        ("state", state_of(job)),
        ("name", job.name),
        ("queue", f"{job.queue} (paused)" if paused else job.queue),
        ("attempts", attempts),
        ("token", str(job.token)),
        *((name, time) for name, time in times if time),
        *([("progress", f"{job.progress.done} of {job.progress.total}")] if job.progress else []),
        *((f"attempt {past.token}", f"{past.outcome}, {past.started_at} to {past.ended_at}") for past in document.history),
        *([("error", job.error)] if job.error else []),
        *((name, text) for name, text in _texts(job) if text is not None),
    ]
    output.fields([(name, shortened(value, TEXT_CHARACTERS)) for name, value in pairs])


def _texts(job: JobSnapshot) -> list[tuple[str, str | None]]:
    return [("payload", job.payload_text), ("checkpoint", job.checkpoint_text), ("result", job.result_text)]
