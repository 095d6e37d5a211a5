"""Shows the logs of the functions' processes while they are written (``ringfence dev -v``)."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

_LOOK_SECONDS = 0.2


class LogFollower:
    """Calls ``show(name, line)`` for each line that is added to a ``<name>.log`` in ``folder``."""

    def __init__(self, folder: Path, show: Callable[[str, str], None]) -> None:
        self._folder, self._show = folder, show
        self._read_bytes: dict[Path, int] = {}
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="logs", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Show what is left, and end."""
        self._stopping.set()
        self._thread.join()
        self._look(to_the_end=True)

    def _follow(self) -> None:
        while not self._stopping.wait(_LOOK_SECONDS):
            self._look()

    def _look(self, to_the_end: bool = False) -> None:
        for log in sorted(self._folder.glob("*.log")):
            with log.open("rb") as file:
                file.seek(self._read_bytes.get(log, 0))
                new = file.read()
            # A line that is not finished waits for its end.
            complete = new if to_the_end else new[: new.rfind(b"\n") + 1]
            self._read_bytes[log] = self._read_bytes.get(log, 0) + len(complete)
            for line in complete.decode(errors="replace").splitlines():
                self._show(log.stem, line)
