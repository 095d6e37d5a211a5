"""The demo's own three broken files. Each is wrong in another way; two are long, and wrong only at their very end.

A long one keeps its worker busy for some tenths of a second, so that there is a running job to freeze and to kill even in a
folder of three small files.
"""

from __future__ import annotations

from ringfence.local.demo.sources import Source

PREFIX = "broken"

BROKEN_FILES = 3

_LINE = "row = [" + "1, " * 20 + "]\n"
_LINES = 7_000
"""Half a megabyte, which the parser reads twice before it complains: about 0.6 s, far below the job's lease of 5 s."""


def broken_files() -> tuple[Source, ...]:
    """A table of numbers that ends in a mistyped line, one that ends in a wrong indentation, and a binary file."""
    mistyped = _LINE * _LINES + "row = = [1]\n"
    misindented = "if True:\n" + ("    " + _LINE) * _LINES + "  row = = [1]\n"
    binary = b"\x7fELF\x02\x01\x01" + b"\x00" * 9
    return (
        Source(f"{PREFIX}/binary.py", binary),
        Source(f"{PREFIX}/misindented.py", misindented.encode()),
        Source(f"{PREFIX}/mistyped.py", mistyped.encode()),
    )
