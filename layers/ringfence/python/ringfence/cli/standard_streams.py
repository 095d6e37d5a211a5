"""The standard streams of the program, so that no command need think of them: all three are there, whatever whoever started it
has closed; standard output says once and plainly that it cannot be written; a word on standard error never fails a command."""

from __future__ import annotations

import errno
import io
import os
import sys
from collections.abc import Callable
from typing import Any, TextIO

from ringfence.cli import exit_codes


class OutputLost(OSError):
    """Standard output could not be written. Raised once; what is written after it goes nowhere.

    ``done`` says what the command had done by then, if it changed anything, and ``as_json`` how it is to be told.
    """

    done = ""
    as_json = False

    def __init__(self, fault: OSError) -> None:
        super().__init__(f"standard output could not be written: {fault.strerror}")
        self.broken_pipe = fault.errno == errno.EPIPE

    def __str__(self) -> str:
        return f"{self.done}, but {self.args[0]}" if self.done else str(self.args[0])


def run(program: Callable[[], Any]) -> Any:
    """Run the program with its standard streams in order.

    Where its output was lost it exits with a code of its own, whatever else became of it, and one line on standard error says
    so; quietly where the reader of a pipe has gone away.
    """
    lost: list[OutputLost] = []
    _open_all(lost)
    try:
        try:
            return program()
        finally:
            sys.stdout.flush()
            if lost:
                raise lost[0]
    except OutputLost as told:
        sys.exit(exit_codes.BROKEN_PIPE if told.broken_pipe else _tell(told))


def _tell(lost: OutputLost) -> int:
    from ringfence.cli.output import Output  # not for every `--help`

    Output(lost.as_json).error(lost)
    return exit_codes.OUTPUT_LOST


def _open_all(lost: list[OutputLost]) -> None:
    """Leaves alone what somebody put in the place of a stream: a test, or a program that calls this one."""
    closed = [fd for fd in (0, 1, 2) if not _is_open(fd)]
    for _ in closed:
        # Taken, since a file or connection that got this number would be taken for the stream. It is the lowest that is free.
        os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
    if sys.stdin is None:
        sys.stdin = open(0, encoding="utf-8", closefd=False)  # noqa: SIM115 - it lives as long as the program
    if sys.stdout is sys.__stdout__:
        sys.stdout = _text(_Output(1, lost, closed=1 in closed), sys.__stdout__)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _text(_Notes(2), sys.__stderr__)


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def _text(raw: io.RawIOBase, before: TextIO | None) -> TextIO:
    """As Python has it by default, but what the encoding of the terminal lacks is written out."""
    if not isinstance(before, io.TextIOWrapper):
        return io.TextIOWrapper(io.BufferedWriter(raw), encoding="utf-8", errors="backslashreplace")
    unbuffered = before.write_through  # PYTHONUNBUFFERED
    return io.TextIOWrapper(
        raw if unbuffered else io.BufferedWriter(raw),  # type: ignore[type-var]  # a raw stream serves, as in Python's own -u
        encoding=before.encoding,
        errors=before.errors if before.errors == "surrogateescape" else "backslashreplace",
        line_buffering=before.line_buffering,
        write_through=unbuffered,
    )


class _Stream(io.RawIOBase):
    def __init__(self, fd: int) -> None:
        super().__init__()
        self._fd = fd

    def fileno(self) -> int:
        return self._fd

    def isatty(self) -> bool:
        return os.isatty(self._fd)

    def writable(self) -> bool:
        return True

    def _write_all(self, data: Any) -> int:
        view = memoryview(data).cast("B")
        written = 0
        while written < len(view):
            written += os.write(self._fd, view[written:])
        return written


class _Output(_Stream):
    """Raises `OutputLost` for the first fault, and adds it to ``lost``."""

    def __init__(self, fd: int, lost: list[OutputLost], *, closed: bool) -> None:
        super().__init__(fd)
        self._lost, self._closed = lost, closed

    def write(self, data: Any) -> int:
        try:
            if self._lost:
                return len(data)
            if self._closed:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            return self._write_all(data)
        except OSError as fault:
            self._lost.append(OutputLost(fault))
            raise self._lost[0] from None


class _Notes(_Stream):
    """Takes everything: nobody is told that they cannot be told."""

    def write(self, data: Any) -> int:
        try:
            return self._write_all(data)
        except OSError:
            return len(data)
