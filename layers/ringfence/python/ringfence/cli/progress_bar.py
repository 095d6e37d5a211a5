"""A progress bar on standard error."""

from __future__ import annotations

from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn


class ProgressBar:
    """Shown while it is entered. ``total`` None: nobody knows how much there is."""

    def __init__(self, what: str, total: int | None) -> None:
        self._bar = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=Console(stderr=True, markup=False, emoji=False, highlight=False),
            transient=True,
        )
        self._task = self._bar.add_task(what, total=total)

    def advance(self, by: int = 1) -> None:
        self._bar.advance(self._task, by)

    def note(self, text: str) -> None:
        """A line above the bar."""
        self._bar.console.print(text, soft_wrap=True)

    def __enter__(self) -> Self:
        self._bar.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._bar.stop()
