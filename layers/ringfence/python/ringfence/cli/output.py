"""What the commands print: tables and lines for people, one JSON object a line for programs."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

import click
import msgspec

from ringfence.cli.shown import json_line, safe
from ringfence.errors import Rejected, RingfenceError

if TYPE_CHECKING:
    from ringfence.cli.progress_bar import ProgressBar
    from ringfence.cli.standard_streams import OutputLost


class Progress(Protocol):
    """Something that fills up."""

    def advance(self, by: int = 1) -> None: ...


class Output:
    """Standard output for results, standard error for everything else."""

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self.done = ""
        self._bar: ProgressBar | None = None

    @property
    def for_people(self) -> bool:
        """Whether somebody is looking: no ``--json``, and a terminal."""
        return not self.as_json and sys.stdout.isatty()

    def did(self, what: str) -> None:
        """Remember what has been done, before a word of it is printed: if that fails, it is told on standard error. A script
        that only saw a failure would do it again."""
        self.done = what

    def json(self, document: Any) -> None:
        """One JSON object on one line of ASCII."""
        text = document if isinstance(document, str) else msgspec.json.encode(document).decode()
        click.echo(json_line(text))

    def line(self, *columns: str) -> None:
        """One line, its columns apart by tabs."""
        click.echo("\t".join(safe(column) for column in columns))

    def note(self, text: str) -> None:
        """A word to whoever is looking, on standard error; above the bar while there is one."""
        if self._bar is None:
            click.echo(safe(text), err=True)
        else:
            self._bar.note(safe(text))

    def table(self, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """A table on a terminal; elsewhere its rows as lines, for ``cut`` and its like."""
        if not self.for_people:
            for row in rows:
                self.line(*row)
            return
        from rich.console import Console
        from rich.text import Text

        from ringfence.cli.table import laid_out

        console = Console(markup=False, emoji=False, highlight=False)
        heading, *lines = laid_out(headings, [[safe(cell) for cell in row] for row in rows], console)
        console.print(Text("\n".join(heading), style="bold"), soft_wrap=True)
        for row in lines:
            console.print(Text("\n".join(row)), soft_wrap=True)

    def fields(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Named values, one a line."""
        width = max((len(name) for name, _ in pairs), default=0)
        for name, value in pairs:
            click.echo(safe(f"{name:<{width}}  {value}"))

    @contextmanager
    def progress(self, what: str, total: int | None) -> Iterator[Progress]:
        """A bar on standard error while somebody is looking, else nothing."""
        if self.as_json or not sys.stderr.isatty():
            yield _Silent()
            return
        from ringfence.cli.progress_bar import ProgressBar

        with ProgressBar(what, total) as self._bar:
            try:
                yield self._bar
            finally:
                self._bar = None

    def error(self, error: RingfenceError | OutputLost, job_id: str | None = None) -> None:
        """Why the command failed, on standard error, or why it did with one job of many."""
        if self.as_json:
            document = (
                {"error": error_document(error)} if job_id is None else {"job_id": job_id, "error": error_document(error)}
            )
            click.echo(json_line(msgspec.json.encode(document).decode()), err=True)
            return
        what = "" if job_id is None else f"job {job_id}: "
        where = f" (at {error.pointer})" if isinstance(error, Rejected) and error.pointer else ""
        self.note(f"ringfence: {what}{error}{where}")


def error_document(error: Exception) -> dict[str, Any]:
    """An error as ``--json`` tells it."""
    if isinstance(error, Rejected):
        pointer = {} if error.pointer is None else {"pointer": error.pointer}
        return {"kind": error.kind, "status": error.status, "detail": str(error), **pointer}
    return {"kind": type(error).__name__, "detail": str(error)}


class _Silent:
    def advance(self, by: int = 1) -> None:
        pass
