"""Rows under headings, as wide as the terminal: a column that has no room beside the others moves to a line below, whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

GAP = 2
"""Cells between two columns, and those by which the further lines of a row are indented."""

LEAST_FOLDED = 20
"""Cells that the last column, which is folded, must have left to stand beside the others, if it wants as many."""


def laid_out(headings: Sequence[str], rows: Sequence[Sequence[str]], console: Console) -> Iterator[list[str]]:
    """The lines of the headings, then those of each row, as wide as the console at most.

    Only the last column is folded: it is the one for free text. Any other value is there to be copied, and stays whole even if
    it alone is wider than the terminal.
    """
    widths = [max(map(cell_len, column)) for column in zip(headings, *rows, strict=True)]
    *whole, last = widths
    lines = _lines([*whole, min(last, LEAST_FOLDED)], console.width)
    for row in (headings, *rows):
        texts = (text for number, columns in enumerate(lines) for text in _texts(row, columns, widths, number > 0, console))
        yield [text for text in texts if text]


def _lines(widths: Sequence[int], width: int) -> list[list[int]]:
    """Which columns stand in each line of a row."""
    lines: list[list[int]] = []
    end = width
    for column, wanted in enumerate(widths):
        if lines and end + GAP + wanted <= width:
            lines[-1].append(column)
            end += GAP + wanted
        else:
            end = (GAP if lines else 0) + wanted
            lines.append([column])
    return lines


def _texts(row: Sequence[str], columns: Sequence[int], widths: Sequence[int], below: bool, console: Console) -> Iterator[str]:
    """One line of a row, and more of them where the last column is folded."""
    *others, last = columns
    text = " " * GAP if below else ""
    for column in others:
        text += row[column] + " " * (widths[column] - cell_len(row[column]) + GAP)
    if last < len(row) - 1:
        yield text + row[last]
        return
    margin = cell_len(text)
    for folded in Text(row[last]).wrap(console, max(1, console.width - margin), overflow="fold"):
        yield (text + folded.plain).rstrip()
        text = " " * margin
