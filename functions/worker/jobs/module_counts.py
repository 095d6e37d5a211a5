"""What a Python source file holds, counted from its syntax tree. Pure: the job and a plain loop over files give the same."""

from __future__ import annotations

import ast
import posixpath
from collections import Counter
from dataclasses import dataclass

MAX_SOURCE_BYTES = 1024 * 1024
"""A larger file is not parsed. The parser keeps the interpreter's lock to its end, some seconds for a megabyte on a slow
machine, and in that time no heartbeat renews the job's lease of five seconds."""


class Unparseable(ValueError):
    """The source is not Python, as the parser's message says."""


@dataclass(frozen=True, slots=True)
class Counts:
    """One module's counts; functions are those of all kinds but lambdas, imports are statements."""

    lines: int
    classes: int
    functions: int
    imports: int


def count_module(source: bytes, name: str) -> Counts:
    """Parse a file, in the encoding that it declares, and count. ``name`` is what the parser's message calls it.

    Raises `Unparseable`.
    """
    if len(source) > MAX_SOURCE_BYTES:
        raise Unparseable(f"{name} has more than {MAX_SOURCE_BYTES} bytes")
    try:
        tree = ast.parse(source, filename=name)
    # ValueError: null bytes or undecodable text, in some versions of Python. RecursionError, MemoryError: nesting too deep for
    # the parser's own stack, which has nothing to do with the machine's memory.
    except (SyntaxError, ValueError, RecursionError, MemoryError) as fault:
        raise Unparseable(f"{type(fault).__name__}: {fault}") from None
    kinds = Counter(type(node) for node in ast.walk(tree))
    return Counts(
        lines=len(source.splitlines()),
        classes=kinds[ast.ClassDef],
        functions=kinds[ast.FunctionDef] + kinds[ast.AsyncFunctionDef],
        imports=kinds[ast.Import] + kinds[ast.ImportFrom],
    )


def package_of(key: str) -> str:
    """The package that a file's counts are added to: its folder, ``.`` for a file in none."""
    return posixpath.dirname(key) or "."
