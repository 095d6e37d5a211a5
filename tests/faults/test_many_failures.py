"""A thousand jobs that fail together do not come back together (must hold 7, C44). That their retries count against the rate of
their queue is in `test_pace`."""

from __future__ import annotations

from collections import Counter

from ringfence import App, Backoff, Context, Retry
from ringfence.acceptance import Submission
from ringfence.job import State
from ringfence.testing.system import MemorySystem

JOBS = 1_000
BACKOFF = Backoff(base_seconds=10.0, cap_seconds=25.0)
LEAST_SECONDS = 5.0
STEP_SECONDS = 0.25


def gaps_between_attempts() -> list[list[float]]:
    """For each retry, how many seconds after the attempt before it each of the jobs came back."""
    starts: dict[str, list[int]] = {}
    app = App()

    @app.job("fails", max_attempts=4, backoff=BACKOFF)
    def fails(ctx: Context) -> None:
        starts.setdefault(ctx.job_id, []).append(here.clock.now())
        raise Retry("again", after_seconds=LEAST_SECONDS)

    here = MemorySystem(app)
    for _ in range(2):
        here.gateway.submit("default", [Submission(name="fails", payload="{}")] * (JOBS // 2))
    here.run_relay()
    worker = here.worker()
    while {job.state for job in here.memory_ledger.all_jobs()} != {State.DEAD}:
        while here.run_worker(worker, most=500):
            pass
        here.clock.sleep(STEP_SECONDS)
    assert len(starts) == JOBS
    return [[(times[retry + 1] - times[retry]) / 1_000 for times in starts.values()] for retry in range(3)]


def test_c44_retries_spread_over_their_window_and_keep_the_cap_and_the_least_delay() -> None:
    retries = gaps_between_attempts()
    assert len(retries) == 3
    for gaps, window in zip(retries, (10.0, 20.0, 25.0), strict=True):
        assert min(gaps) >= LEAST_SECONDS
        assert max(gaps) <= LEAST_SECONDS + window + STEP_SECONDS
        tenths = Counter(int((gap - LEAST_SECONDS - STEP_SECONDS / 2) / window * 10) for gap in gaps)
        assert max(tenths.values()) < 2 * JOBS / 10, tenths
        assert all(tenths[tenth] > JOBS / 20 for tenth in range(10)), tenths
