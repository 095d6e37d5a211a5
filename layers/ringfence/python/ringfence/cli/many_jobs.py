"""Commands that take many jobs: how they are named, and what is told of each and of all."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http import HTTPStatus
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import click

from ringfence.cli import exit_codes
from ringfence.cli.job_line import tell
from ringfence.cli.output import Output, Progress
from ringfence.cli.standard_streams import OutputLost
from ringfence.errors import NotFound, Rejected, RingfenceError, Unavailable

if TYPE_CHECKING:
    from ringfence.client import JobSnapshot


def job_ids_argument(*, required: bool) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """The argument ``job_ids``, which `ids_of` reads."""
    return click.argument("job_ids", metavar="JOB_ID..." if required else "[JOB_ID...]", nargs=-1, required=required)


def ids_of(job_ids: tuple[str, ...]) -> list[str]:
    """The ids that were named; a lone ``-`` stands for the lines of standard input."""
    if not all(job_ids):  # a script's variable that is not set
        raise click.UsageError("a JOB_ID is empty")
    if "-" in job_ids and len(job_ids) > 1:
        raise click.UsageError("- reads every JOB_ID from standard input: name none beside it")
    if job_ids != ("-",):
        return list(job_ids)
    try:
        ids = [line.strip() for line in sys.stdin if line.strip()]
    except UnicodeDecodeError:
        raise click.UsageError("standard input is not UTF-8") from None
    if not ids:  # the command before it in the pipe may have failed: no script is to take that for the end of its jobs
        raise click.UsageError("standard input had no job ids")
    return ids


class Tally:
    """Jobs that something is done to, one after the other: each is told as its turn ends, nothing of it is kept, and at the end
    the sum, however the end comes.

    ``doing`` heads the bar and ``done`` the sum ("Redriving", "redriven"). ``total`` None: nobody knows how many there are. Of
    a lone job the line that tells it is all there is to say.
    """

    def __init__(self, output: Output, doing: str, done: str, total: int | None) -> None:
        self._output, self._doing, self._done, self._total = output, doing, done, total
        self._lone = total == 1
        self._progress: Progress | None = None
        self._entered = ExitStack()
        self._at: str | None = None
        self.turns = self.succeeded = self.refused = 0

    @property
    def exit_code(self) -> int:
        return exit_codes.FAILED if self.refused else exit_codes.OK

    def __enter__(self) -> Self:
        if not self._lone:
            self._progress = self._entered.enter_context(self._output.progress(self._doing, self._total))
        return self

    @contextmanager
    def turn(self, job_id: str) -> Iterator[None]:
        """This job's turn. If the API refuses this very job it is told, and the turn is over; any other error goes on."""
        self._at = job_id
        self.turns += 1
        try:
            yield
        except Rejected as refusal:
            if not isinstance(refusal, NotFound) and refusal.status != HTTPStatus.CONFLICT:
                raise
            self.refuse(refusal)
        self._at = None
        if self._progress is not None:
            self._progress.advance()

    def succeed(self, job: JobSnapshot, what: str) -> None:
        """It is done, and ``what`` says so of this job."""
        self.succeeded += 1
        self._at = None
        self._output.did(what if self.succeeded == 1 else f"{what}, the last of {self.succeeded}")
        self.show(job)

    def refuse(self, why: RingfenceError) -> None:
        """It cannot be done to the job whose turn it is."""
        self.refused += 1
        self._output.error(why, self._at)

    def show(self, job: JobSnapshot) -> None:
        """The job in one line. People, who see a bar and the sum, are spared the lines of many."""
        if self._lone or not self._output.for_people:
            tell(self._output, job)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._entered.close()
        if self._lone or self._output.as_json or isinstance(error, OutputLost):
            return
        if total := self.turns if self._total is None else self._total:
            # Interrupted, or given up on: the request may have arrived all the same.
            doubt = self._at is not None and isinstance(error, Unavailable | KeyboardInterrupt)
            self._output.note(f"{self._done} {self.succeeded} of {total}" + (f", and perhaps {self._at}" if doubt else ""))
