"""``ringfence submit``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import IO, TYPE_CHECKING

import click

from ringfence.cli import exit_codes
from ringfence.cli.api_command import api_command
from ringfence.cli.command import Command
from ringfence.cli.duration_option import DURATION
from ringfence.cli.output import Output, error_document
from ringfence.cli.payloads import checked, payload_option
from ringfence.cli.program import program
from ringfence.cli.time_option import TIME
from ringfence.errors import RingfenceError, Unavailable
from ringfence.job import Guarantee

if TYPE_CHECKING:
    from ringfence.client import Client, JobRequest, Submitted
    from ringfence.client.batches import Outcome

REFUSALS_SHOWN = 20


@click.command(cls=Command, epilog=exit_codes.MEANING)
@click.argument("name")
@click.option("--payload", metavar="JSON|@FILE|-", help="The arguments of the job: JSON, a file of it, or standard input.")
@click.option("--queue", default="default", show_default=True, help="The queue it waits in.")
@click.option("--key", help="Idempotency key: the same key is the same job. With --many, line N gets the key KEY-N.")
@click.option("--delay", type=DURATION, help="Not before so long from now, such as 10s or 2h.")
@click.option("--at", type=TIME, help="Not before this time, such as 2026-12-24T09:00:00+01:00 or ...T08:00:00Z.")
@click.option("--max-attempts", type=click.IntRange(1, 100), default=5, show_default=True, help="How often it may be started.")
@click.option("--ordering-key", help="Jobs of one ordering key reach their queue in order.")
@click.option(
    "--guarantee",
    type=click.Choice([guarantee.value for guarantee in Guarantee]),
    default=Guarantee.ONCE.value,
    show_default=True,
    help="once: fenced, and its state can be asked for. at-least-once: cheaper, without key, state or effects; may run twice.",
)
@click.option(
    "--many", type=click.File("r", encoding="utf-8"), metavar="FILE.jsonl|-", help="One job for each line: its payload."
)
@api_command
def submit(
    client: Client,
    output: Output,
    name: str,
    payload: str | None,
    queue: str,
    key: str | None,
    delay: float | None,
    at: datetime | None,
    max_attempts: int,
    ordering_key: str | None,
    guarantee: str,
    many: IO[str] | None,
) -> int:
    """Submit a job NAME, or with --many one for each line of a file."""
    from ringfence.client import JobRequest

    if payload is not None and many is not None:
        raise click.UsageError("--payload and --many exclude each other")
    if delay is not None and at is not None:
        raise click.UsageError("--delay and --at exclude each other")
    if key is not None and guarantee == Guarantee.AT_LEAST_ONCE:
        raise click.UsageError("--key needs --guarantee once: a job without a row has nowhere to keep a key")
    template = JobRequest(
        name=name,
        payload=payload_option(payload),
        queue=queue,
        idempotency_key=key,
        delay_seconds=delay,
        run_at=at,
        max_attempts=max_attempts,
        ordering_key=ordering_key,
        guarantee=guarantee,
    )
    return _submit_one(client, output, template) if many is None else _submit_many(client, output, template, many)


def _submit_one(client: Client, output: Output, request: JobRequest) -> int:
    submitted = client.submit(
        request.name,
        request.payload,
        queue=request.queue,
        idempotency_key=request.idempotency_key,
        delay_seconds=request.delay_seconds,
        run_at=request.run_at,
        max_attempts=request.max_attempts,
        ordering_key=request.ordering_key,
        guarantee=request.guarantee,
    )
    output.did(f"job {submitted.job_id} was accepted")
    if output.as_json:
        output.json(_document(submitted))
    else:
        output.line(submitted.job_id)
        if submitted.repeated:
            output.note("This key had been used before: it is the same job.")
        if output.for_people:
            output.note(_what_now(submitted))
    return exit_codes.OK


def _document(submitted: Submitted) -> dict[str, str | bool]:
    return {
        "job_id": submitted.job_id,
        "state": submitted.state,
        "repeated": submitted.repeated,
        "guarantee": submitted.guarantee,
    }


def _what_now(submitted: Submitted) -> str:
    if submitted.guarantee is Guarantee.AT_LEAST_ONCE:
        return "Its state cannot be asked for, unless it has to wait long or dies."
    return f"follow with: {program()} wait {submitted.job_id}"


def _submit_many(client: Client, output: Output, template: JobRequest, many: IO[str]) -> int:
    numbers: list[int] = []
    refused: list[tuple[int, RingfenceError]] = []
    told = 0
    with output.progress("Submitting", _lines_in(many)) as progress:
        for outcomes in client.submit_in_batches(_requests(template, many, numbers)):
            output.did(_accepted(told - len(refused), outcomes))
            for number, outcome in zip(numbers[told:], outcomes, strict=False):
                _tell(output, number, outcome)
                if isinstance(outcome, RingfenceError):
                    refused.append((number, outcome))
            told += len(outcomes)
            progress.advance(len(outcomes))
    return _sum_up(output, told, refused)


def _lines_in(many: IO[str]) -> int | None:
    """How many jobs there are, None for a pipe."""
    try:
        if not many.seekable():
            return None
        count = sum(1 for line in many if line.strip())
        many.seek(0)
    except UnicodeDecodeError:
        raise click.UsageError("the file is not UTF-8") from None
    return count


def _requests(template: JobRequest, many: IO[str], numbers: list[int]) -> Iterator[JobRequest]:
    """One request for each line that is not blank; its number is added to ``numbers``."""
    import dataclasses

    try:
        for number, line in enumerate(many, 1):
            if not line.strip():
                continue
            numbers.append(number)
            key = template.idempotency_key and f"{template.idempotency_key}-{number}"
            yield dataclasses.replace(template, payload=checked(line, f"line {number}"), idempotency_key=key)
    except UnicodeDecodeError:
        raise click.UsageError("the file is not UTF-8") from None


def _accepted(before: int, outcomes: Sequence[Outcome]) -> str:
    """The ids of those before have been printed."""
    ids = [outcome.job_id for outcome in outcomes if not isinstance(outcome, RingfenceError)]
    last = f", the last of them {' '.join(ids)}" if ids else ""
    return f"{before + len(ids)} jobs were accepted{last}, and no line after that was sent"


def _tell(output: Output, number: int, outcome: Outcome) -> None:
    if isinstance(outcome, RingfenceError):
        if output.as_json:
            output.json({"line": number, "error": error_document(outcome)})
    elif output.as_json:
        output.json({"line": number, **_document(outcome)})
    elif not output.for_people:
        output.line(outcome.job_id)


def _sum_up(output: Output, told: int, refused: list[tuple[int, RingfenceError]]) -> int:
    if not output.as_json:
        for number, error in refused[:REFUSALS_SHOWN]:
            output.note(f"line {number}: {error}")
        if len(refused) > REFUSALS_SHOWN:
            output.note(f"… and {len(refused) - REFUSALS_SHOWN} more")
        output.note(f"{told - len(refused)} accepted, {len(refused)} refused")
    if not refused:
        return exit_codes.OK
    return exit_codes.UNAVAILABLE if all(isinstance(error, Unavailable) for _, error in refused) else exit_codes.FAILED
