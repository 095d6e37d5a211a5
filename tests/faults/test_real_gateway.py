"""Gateways killed (SIGKILL) and frozen (SIGSTOP) for real, before and after the log has the job. The client asks again."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from ringfence.job import Job
from ringfence.testing.dev_system import GATEWAY, WORKER, DevSystem

REGISTER_TO_APPEND = "ledger.register"
APPEND_TO_ANSWER = "log.append"


@pytest.mark.parametrize("after", [REGISTER_TO_APPEND, APPEND_TO_ANSWER])
def test_when_a_gateway_is_killed_before_it_answers_the_repeated_request_gets_the_same_job(
    system: DevSystem, key: str, counted_once: Callable[[Job], None], after: str
) -> None:
    job_id = system.job_id(key)
    killed = system.faults.plan(GATEWAY, after, do="kill", only_job=job_id)
    submitted = system.submit(key, "count")
    system.wait_killed(killed.wait_until_struck())
    assert (submitted.job_id, submitted.repeated) == (job_id, True)
    ended = system.wait_ended(job_id)
    counted_once(ended)
    assert (ended.token, ended.attempts) == (1, 1)


@pytest.mark.parametrize("after", [REGISTER_TO_APPEND, APPEND_TO_ANSWER])
def test_a_gateway_frozen_before_it_answers_adds_at_most_a_ticket_that_runs_nothing(
    system: DevSystem, key: str, counted_once: Callable[[Job], None], after: str
) -> None:
    job_id = system.job_id(key)
    frozen = system.faults.plan(GATEWAY, after, do="stop", only_job=job_id)
    submitted = system.submit(key, "count")
    pid = frozen.wait_until_struck()
    assert (submitted.job_id, submitted.repeated) == (job_id, True)
    ended = system.wait_ended(job_id)
    frozen.thaw()
    system.wait_told(GATEWAY, "job_accepted", job_id, pid=pid)
    if after is REGISTER_TO_APPEND:  # what it appends once thawed is the second record of the job
        system.wait_told(WORKER, "claim_finished", job_id)
    counted_once(ended)
    assert (ended.token, ended.attempts) == (1, 1)
