"""The live settings of queues, in memory."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ringfence.job import Millis
from ringfence.queue_settings import QueueSettings, QueueState, places


class MemorySettings:
    """The settings and lines of one process; safe to share between threads."""

    def __init__(self) -> None:
        self._states: dict[str, QueueState] = {}
        self._lock = threading.Lock()

    def read(self, queue: str) -> QueueState:
        """See `ports.SettingsStore.read`."""
        with self._lock:
            return self._states.get(queue, QueueState())

    def all(self) -> dict[str, QueueState]:
        """See `ports.SettingsStore.all`."""
        with self._lock:
            return dict(self._states)

    def change(self, queue: str, changes: Mapping[str, Any]) -> QueueSettings:
        """See `ports.SettingsStore.change`."""
        with self._lock:
            state = self._states.get(queue, QueueState())
            settings = state.settings.changed(changes)
            self._states[queue] = replace(state, settings=settings)
            return settings

    def join_line(self, queue: str, count: int, now: Millis) -> list[Millis]:
        """See `ports.SettingsStore.join_line`."""
        with self._lock:
            state = self._states.get(queue, QueueState())
            last_place = max(now - 1, state.line.last_place) + count
            self._states[queue] = replace(state, line=replace(state.line, waiting=True, last_place=last_place))
            return places(count, last_place)

    def open_line(self, queue: str, last_place: Millis | None, open_from: Millis) -> bool:
        """See `ports.SettingsStore.open_line`."""
        with self._lock:
            state = self._states.get(queue, QueueState())
            if not state.line.waiting or last_place not in (None, state.line.last_place):
                return False
            self._states[queue] = replace(state, line=replace(state.line, waiting=False, open_from=open_from))
            return True
