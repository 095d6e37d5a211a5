"""When to try again: full-jitter backoff, capped, with the least delay that was asked for; and for how long."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ringfence.ports import Clock

BASE_SECONDS = 1.0
CAP_SECONDS = 900.0
"""One SQS delay. A job that wants longer waits says so with ``Retry(after_seconds=…)``."""


@dataclass(frozen=True, slots=True)
class Backoff:
    """Full jitter: a uniform draw below ``base · 2^(attempt − 1)``, never above the cap.

    https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
    """

    base_seconds: float = BASE_SECONDS
    cap_seconds: float = CAP_SECONDS

    def ceiling(self, attempt: int) -> float:
        """The largest delay after this attempt (counted from 1), in seconds; finite for every attempt."""
        doublings = min(max(attempt - 1, 0), 62)
        return min(self.cap_seconds, self.base_seconds * float(2**doublings))

    def delay(self, attempt: int, random_source: random.Random, at_least_seconds: float = 0.0) -> float:
        """Seconds until the next try. A minimum that was asked for is added to, so that askers spread as well."""
        return max(0.0, at_least_seconds) + random_source.uniform(0.0, self.ceiling(attempt))


class Pauses:
    """The pauses between the tries of one thing, as long as its time and its tries last."""

    def __init__(
        self,
        backoff: Backoff,
        clock: Clock,
        random_source: random.Random,
        *,
        seconds: float = math.inf,
        tries: float = math.inf,
    ) -> None:
        self._backoff, self._clock, self._random = backoff, clock, random_source
        self._give_up_at, self._most = clock.monotonic() + seconds, tries
        self.failed = 0
        """Tries after which there was, or was to be, a pause."""

    @property
    def left_seconds(self) -> float:
        """Never negative."""
        return max(0.0, self._give_up_at - self._clock.monotonic())

    def another_try(self, at_least_seconds: float = 0.0) -> bool:
        """Called after each try that failed. True after a pause; false at once if it was the last, or the pause too long."""
        self.failed += 1
        pause_seconds = self._backoff.delay(self.failed, self._random, at_least_seconds)
        if self.failed >= self._most or self._clock.monotonic() + pause_seconds > self._give_up_at:
            return False
        self._clock.sleep(pause_seconds)
        return True
