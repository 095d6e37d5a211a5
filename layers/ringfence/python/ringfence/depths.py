"""How much waits in the queues: asked of all at once, and not for long, so that an engine out of reach harms no other queue."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait

from ringfence.errors import Unavailable
from ringfence.ports import Depth, Queue

LONGEST_SECONDS = 2.0
"""How long whoever asks is kept waiting. An engine within reach answers in tens of milliseconds; one that is gone is waited for
five seconds (Redis) to fifteen (SQS), for each of its queues."""


class Depths:
    """The depths of one deployment's queues. A look that takes longer goes on by itself: whoever asks meanwhile shares it, so
    there is never more than one for each queue, however often a dead engine is asked after."""

    def __init__(self, queues: Mapping[str, Queue], longest_seconds: float = LONGEST_SECONDS) -> None:
        self._queues, self._longest_seconds = queues, longest_seconds
        self._lock = threading.Lock()
        self._looks: dict[str, Future[Depth]] = {}
        # A thread for each, made when it is needed: none has to wait until a dead one's look is over.
        self._threads = ThreadPoolExecutor(max(1, len(queues)), thread_name_prefix="depth")

    def of(self, names: Iterable[str]) -> dict[str, Depth | Unavailable]:
        """The depth of each of these queues, or why it is not known."""
        looks = {name: self._look(name) for name in names}
        wait(looks.values(), self._longest_seconds)
        return {name: self._seen(name, look) for name, look in looks.items()}

    def _look(self, name: str) -> Future[Depth]:
        with self._lock:
            look = self._looks.get(name)
            if look is None or look.done():
                look = self._looks[name] = self._threads.submit(self._queues[name].depth)
            return look

    def _seen(self, name: str, look: Future[Depth]) -> Depth | Unavailable:
        if not look.done():
            return Unavailable(f"queue {name} did not tell its depth within {self._longest_seconds:g} s")
        try:
            return look.result()
        except Unavailable as fault:
            return fault
