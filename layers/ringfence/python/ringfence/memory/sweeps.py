"""The notes of reconciling, in memory."""

from __future__ import annotations

import threading

from ringfence.sweep import Notes


class MemorySweeps:
    """The notes of one process; safe to share between threads."""

    def __init__(self) -> None:
        self._notes = Notes()
        self._lock = threading.Lock()

    def read(self) -> Notes:
        """See `ports.SweepStore.read`."""
        with self._lock:
            return self._notes

    def replace(self, seen: Notes, notes: Notes) -> bool:
        """See `ports.SweepStore.replace`."""
        with self._lock:
            if self._notes.version != seen.version:
                return False
            self._notes = notes.of_version(seen.version + 1)
            return True
