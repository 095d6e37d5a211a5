"""Events kept in a list, for tests to look at and to wait for."""

from __future__ import annotations

import threading

from ringfence.event_names import NEVER_TOLD

Fields = dict[str, str | int | float | bool | None]


class MemoryTelemetry:
    """Collects ``(name, fields)`` in the order told; safe to share between threads.

    Where production withholds a payload (`NEVER_TOLD`), this raises, so that a test finds the place.
    """

    def __init__(self) -> None:
        self._events: list[tuple[str, Fields]] = []
        self._told = threading.Condition()

    def event(self, name: str, **fields: str | int | float | bool | None) -> None:
        forbidden = NEVER_TOLD & fields.keys()
        if forbidden:
            raise AssertionError(f"the event {name} tells of {sorted(forbidden)}")
        with self._told:
            self._events.append((name, fields))
            self._told.notify_all()

    @property
    def events(self) -> list[tuple[str, Fields]]:
        with self._told:
            return list(self._events)

    def named(self, name: str) -> list[Fields]:
        """The fields of every event of this name, in the order told."""
        return [fields for told, fields in self.events if told == name]

    def wait_for(self, name: str, count: int = 1, timeout_seconds: float = 10.0) -> list[Fields]:
        """Block until the event was told ``count`` times. `TimeoutError` with what was told instead."""
        with self._told:
            if not self._told.wait_for(lambda: sum(told == name for told, _ in self._events) >= count, timeout_seconds):
                raise TimeoutError(f"{name} was not told {count} times; told were {[told for told, _ in self._events]}")
        return self.named(name)
