"""SQS counts leases in whole seconds, and only up to twelve hours from the receive."""

from __future__ import annotations

import math
import threading
from collections import OrderedDict
from collections.abc import Iterable

from ringfence.ports import Clock

REMEMBERED_LEASES = 10_000
"""More than a process holds at once. One whose lease is forgotten counts from its next extension: SQS itself still refuses."""


def whole_seconds(seconds: float, most: float) -> int:
    """Rounded up, never negative, never above ``most``, whatever the number is."""
    return math.ceil(min(max(0.0, seconds), most))


class Allowances:
    """How much longer each held message may be hidden; counted from when its lease was asked for, or first seen here.

    SQS refuses an extension beyond its ceiling and does not shorten it by itself.
    https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ChangeMessageVisibility.html
    """

    def __init__(self, clock: Clock, ceiling_seconds: float) -> None:
        self._clock, self._ceiling_seconds = clock, ceiling_seconds
        self._lock = threading.Lock()
        self._ends_at: OrderedDict[str, float] = OrderedDict()

    def start(self, receipt: str, at: float) -> None:
        """The lease was asked for at this time of the clock's ``monotonic``."""
        with self._lock:
            self._remember(receipt, at + self._ceiling_seconds)

    def clip(self, receipt: str, seconds: float) -> int:
        """What a visibility timeout set now may be, at most ``seconds``."""
        with self._lock:
            return whole_seconds(seconds, max(0, math.floor(self._left(receipt))))

    def refused(self, receipt: str, seconds: int) -> None:
        """SQS had less left than this: its count is ahead of ours (Lambda may have held the message before handing it over).

        The next extension asks for half, and so on until it is granted or less than a second is left.
        """
        with self._lock:
            self._remember(receipt, self._clock.monotonic() + seconds / 2)

    def over(self, receipt: str) -> bool:
        """Whether no whole second is left: the message is, or is about to be, visible to others whatever we do."""
        with self._lock:
            return self._left(receipt) < 1

    def drop(self, receipts: Iterable[str]) -> None:
        """These are not held any more."""
        with self._lock:
            for receipt in receipts:
                self._ends_at.pop(receipt, None)

    def _left(self, receipt: str) -> float:
        now = self._clock.monotonic()
        if receipt not in self._ends_at:
            self._remember(receipt, now + self._ceiling_seconds)
        return self._ends_at[receipt] - now

    def _remember(self, receipt: str, ends_at: float) -> None:
        self._ends_at[receipt] = ends_at
        self._ends_at.move_to_end(receipt)
        while len(self._ends_at) > REMEMBERED_LEASES:
            self._ends_at.popitem(last=False)
