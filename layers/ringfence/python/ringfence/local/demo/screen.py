"""What a person sees while the demo runs: phases with their times, how many jobs have ended, and a table at the end."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from ringfence.cli.shown import safe

LINE_SECONDS = 2.0
"""Between two lines of progress where there is no terminal to draw a bar on."""


class Counter(Protocol):
    """Something that fills up."""

    def at(self, done: int) -> None: ...


class Screen:
    """Standard error for what goes on, standard output for the table. ``quiet``: no table and no bar."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._started = time.monotonic()
        self._console = Console(file=sys.stderr, markup=False, emoji=False, highlight=False)

    @property
    def seconds(self) -> float:
        """Since the demo began."""
        return time.monotonic() - self._started

    def say(self, text: str) -> None:
        """A line with the time."""
        self._console.print(Text(f"{self.seconds:6.1f} s  {safe(text)}"), soft_wrap=True)

    @contextmanager
    def counting(self, what: str, total: int) -> Iterator[Counter]:
        """A bar on a terminal, now and then a line elsewhere."""
        if self._quiet or not self._console.is_terminal:
            yield _Lines(self, what, total)
            return
        columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        with Progress(*columns, console=self._console, transient=True) as bar:
            task = bar.add_task(what, total=total)
            yield _Bar(bar, task)

    def table(self, rows: Sequence[tuple[str, str]]) -> None:
        """Two columns on standard output."""
        if self._quiet:
            return
        table = Table(show_header=False, title="Ringfence demo", title_style="bold")
        table.add_column(style="bold")
        table.add_column(overflow="fold")
        for name, value in rows:
            table.add_row(Text(name), Text(safe(value)))
        Console(file=sys.stdout, markup=False, emoji=False, highlight=False).print(table)


class _Bar:
    def __init__(self, bar: Progress, task: TaskID) -> None:
        self._bar, self._task = bar, task

    def at(self, done: int) -> None:
        self._bar.update(self._task, completed=done)


class _Lines:
    def __init__(self, screen: Screen, what: str, total: int) -> None:
        self._screen, self._what, self._total = screen, what, total
        self._told, self._next = -1, 0.0

    def at(self, done: int) -> None:
        if done != self._told and (self._screen.seconds >= self._next or done == self._total):
            self._screen.say(f"{done} of {self._total} {self._what}")
            self._told, self._next = done, self._screen.seconds + LINE_SECONDS
