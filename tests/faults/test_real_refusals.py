"""A ledger that is throttled, in conflict or out of reach, seen by a real worker: before a write was applied and after it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ringfence.job import Job, State
from ringfence.testing.dev_system import WORKER, DevSystem
from ringfence.testing.port_faults import When

REFUSALS = 4


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("writes", [State.RUNNING, State.SUCCEEDED])
def test_refusals_and_lost_replies_cost_the_job_no_attempt(
    system: DevSystem, key: str, counted_once: Callable[[Job], None], writes: State, when: When
) -> None:
    job_id = system.job_id(key)
    refused = system.faults.plan(
        WORKER, "ledger.write", do="unavailable", when=when, times=REFUSALS, only_job=job_id, only_state=writes
    )
    system.submit(key, "count")
    refused.wait_until_struck()
    ended = system.wait_ended(job_id)
    counted_once(ended)
    assert (ended.token, ended.attempts) == (1, 1)
    assert [(attempt.token, attempt.outcome) for attempt in ended.history] == [(1, "succeeded")]
