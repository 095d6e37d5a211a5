"""A point where a job in another process waits for the test. The operating system wakes it: nobody polls, and nobody waits for
a gate whose test has died."""

from __future__ import annotations

import fcntl
from pathlib import Path
from types import TracebackType
from typing import Self


class Gate:
    """The test's side: closed from the beginning of its ``with`` block until `open` or the block's end."""

    def __init__(self, path: Path) -> None:
        self.path = str(path)
        self._file = path.open("w")

    def __enter__(self) -> Self:
        fcntl.flock(self._file, fcntl.LOCK_EX)
        return self

    def __exit__(self, _type: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None) -> None:
        self._file.close()

    def open(self) -> None:
        """Let everybody through, for good."""
        fcntl.flock(self._file, fcntl.LOCK_UN)


def wait_until_open(path: str) -> None:
    """The job's side."""
    with Path(path).open() as file:
        fcntl.flock(file, fcntl.LOCK_SH)
