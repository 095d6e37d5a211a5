"""How long an invocation still has, or a worker process that was told to stop: what may still begin, and when it ends."""

from __future__ import annotations

from collections.abc import Callable

STOP_SECONDS = 10.0
"""So long before the end nothing new is started and running jobs are asked to stop."""

HAND_OVER_SECONDS = 5.0
"""So long before it, what still runs is handed over, its checkpoint kept; if the whole of it is short, in its last quarter."""

LEAVE_SECONDS = 1.0
"""So long before it, or in its last twentieth, the batch returns with what is decided by then; the rest comes again."""

ENDLESS = float("inf")


class TimeLeft:
    """The time of one crew."""

    def __init__(self, remaining_seconds: Callable[[], float]) -> None:
        """``remaining_seconds`` tells what is left; infinity while there is no end to it."""
        self._remaining_seconds = remaining_seconds
        self._whole_seconds = remaining_seconds()
        self.endless = self._whole_seconds == ENDLESS
        """Whether no end was in sight when this was last looked at."""

    def seconds(self) -> float:
        """What is left."""
        left = self._remaining_seconds()
        if self.endless and left != ENDLESS:
            self.endless, self._whole_seconds = False, left  # the grace, now that there is one
        return left

    @property
    def stop_seconds(self) -> float:
        return STOP_SECONDS

    @property
    def hand_over_seconds(self) -> float:
        return min(HAND_OVER_SECONDS, self._whole_seconds / 4)

    @property
    def leave_seconds(self) -> float:
        return min(LEAVE_SECONDS, self._whole_seconds / 20)

    def fits(self, timeout_seconds: float) -> bool:
        """Whether a job may start: its timeout fits. One that fits no invocation has the whole of one."""
        return self.endless or self.seconds() >= min(timeout_seconds + STOP_SECONDS, 0.9 * self._whole_seconds)

    def until_threshold(self) -> float | None:
        """Seconds until the next threshold is crossed; None without an end."""
        left = self.seconds()
        if left == ENDLESS:
            return None
        ahead = [left - each for each in (STOP_SECONDS, self.hand_over_seconds, self.leave_seconds) if left > each]
        return min(ahead, default=0.1) + 0.001
