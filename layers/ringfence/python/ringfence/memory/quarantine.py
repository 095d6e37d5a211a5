"""The quarantine in memory."""

from __future__ import annotations

import threading

from ringfence.ports import SetAside


class MemoryQuarantine:
    """Keeps what was set aside in one process; safe to share between threads."""

    def __init__(self) -> None:
        self._kept: dict[tuple[str, str], SetAside] = {}
        self._lock = threading.Lock()

    def put(self, item: SetAside) -> None:
        with self._lock:
            self._kept.setdefault((item.source, item.position), item)

    def items(self, limit: int = 100) -> list[SetAside]:
        with self._lock:
            return sorted(self._kept.values(), key=lambda item: item.at, reverse=True)[:limit]
