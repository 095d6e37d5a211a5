"""The clock of the machine."""

from __future__ import annotations

import threading
import time

from ringfence.job import Millis


class SystemClock:
    """Time as the operating system tells it. ``monotonic`` goes on while the process is stopped, ``now`` may jump."""

    def now(self) -> Millis:
        return time.time_ns() // 1_000_000

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(max(0.0, seconds))

    def wait_until(self, condition: threading.Condition, monotonic: float) -> None:
        condition.wait(max(0.0, monotonic - time.monotonic()))
