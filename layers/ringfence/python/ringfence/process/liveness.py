"""Whether every worker process is well, in one file whose age a probe looks at."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

LIVE_SECONDS = 10.0
"""A process that has not touched its file for so long is frozen, or stuck, or starved by its own jobs."""

START_SECONDS = 60.0
"""How long a process may take until it touches its file for the first time: it imports the jobs."""

TOUCH_SECONDS = 1.0


class Liveness:
    """Touches ``file`` about once a second while each process that should touch a file of its own does so.

    A file that is touched by all of them would look fresh as long as one of them lives.
    """

    def __init__(self, file: Path, on_fault: Callable[[str], object], monotonic: Callable[[], float] = time.monotonic) -> None:
        """``on_fault`` is told when the file cannot be touched any more: then it grows old, and a probe takes its measures."""
        self._file, self._on_fault, self._monotonic = file, on_fault, monotonic
        self._fault: str | None = None
        self._folder = Path(tempfile.mkdtemp(prefix="ringfence-worker-"))
        self._seen: dict[int, tuple[int, float]] = {}
        """Place → the last known time of its file, in nanoseconds, and until when that will do."""
        self._touch_from = 0.0

    def expect(self, place: int) -> Path:
        """The file of the process that is about to start in this place."""
        path = self._folder / str(place)
        self._seen[place] = _touched(path), self._monotonic() + START_SECONDS
        return path

    def look(self, places: Iterable[int]) -> None:
        """Look after the processes in these places."""
        now = self._monotonic()
        if now >= self._touch_from and all(self._lives(place, now) for place in places):
            self._touch_from = now + TOUCH_SECONDS
            self._touch()

    def close(self) -> None:
        """Take the files of the processes away."""
        shutil.rmtree(self._folder, ignore_errors=True)

    def _touch(self) -> None:
        before, self._fault = self._fault, None
        try:
            self._file.touch()
        except OSError as fault:
            self._fault = f"cannot touch {self._file}: {fault.strerror}"
            if self._fault != before:
                self._on_fault(self._fault)

    def _lives(self, place: int, now: float) -> bool:
        before, good_until = self._seen[place]
        touched = _touched(self._folder / str(place))
        if touched != before:
            self._seen[place] = touched, now + LIVE_SECONDS
            return True
        return now < good_until


def _touched(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except FileNotFoundError:
        return 0
