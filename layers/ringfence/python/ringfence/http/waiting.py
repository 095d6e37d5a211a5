"""``?wait=``: look at a job again and again until it has ended or the time is up."""

from __future__ import annotations

from collections.abc import Callable

from ringfence.job import Job
from ringfence.ports import Clock

FIRST_PAUSE_SECONDS = 0.05
PAUSE_GROWTH = 1.5
LONGEST_PAUSE_SECONDS = 1.0
"""Each look is a read of the ledger: a wait of 20 s costs about 25 of them."""


def until_ended(look: Callable[[], Job], clock: Clock, wait_seconds: float) -> Job:
    """The job once it is terminal, or as it was last seen when ``wait_seconds`` have passed."""
    deadline = clock.monotonic() + wait_seconds
    pause = FIRST_PAUSE_SECONDS
    job = look()
    while not job.state.terminal:
        left = deadline - clock.monotonic()
        if left <= 0:
            break
        clock.sleep(min(pause, left))
        pause = min(LONGEST_PAUSE_SECONDS, pause * PAUSE_GROWTH)
        job = look()
    return job
