"""The threads of a campaign: all of them end with the first that fails."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

Part = Callable[[], None]
"""Runs until `Threads.over`."""


class Threads:
    """What runs until a campaign is over, and what went wrong in it."""

    def __init__(self) -> None:
        self.over = threading.Event()
        self.faults: list[BaseException] = []

    @contextmanager
    def running(self, parts: Sequence[Part]) -> Iterator[None]:
        """Each part in a thread of its own. Fails if one of them has."""
        threads = [threading.Thread(target=self._guarded, args=(part,)) for part in parts]
        for thread in threads:
            thread.start()
        try:
            yield
        finally:
            self.over.set()
            for thread in threads:
                thread.join()
        assert not self.faults, self.faults

    def _guarded(self, part: Part) -> None:
        try:
            part()
        except BaseException as fault:  # noqa: BLE001 - told at the end
            self.faults.append(fault)
            self.over.set()
