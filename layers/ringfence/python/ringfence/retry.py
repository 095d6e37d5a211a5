"""When to try again: full-jitter backoff, capped, with the least delay that was asked for."""

from __future__ import annotations

import random
from dataclasses import dataclass

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
