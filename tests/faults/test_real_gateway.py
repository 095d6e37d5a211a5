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


def test_a_gateway_frozen_between_register_and_append_adds_only_a_ticket_that_runs_nothing(
    system: DevSystem, key: str, counted_once: Callable[[Job], None]
) -> None:
    job_id = system.job_id(key)
    frozen = system.faults.plan(GATEWAY, REGISTER_TO_APPEND, do="stop", only_job=job_id)
    submitted = system.submit(key, "count")
    pid = frozen.wait_until_struck()
    assert (submitted.job_id, submitted.repeated) == (job_id, True)
    ended = system.wait_ended(job_id)
    frozen.thaw()
    system.wait_told(GATEWAY, "job_accepted", job_id, pid=pid)
    system.wait_told(WORKER, "claim_finished", job_id)
    counted_once(ended)
    assert (ended.token, ended.attempts) == (1, 1)


def test_a_gateway_frozen_between_append_and_answer_has_accepted_the_one_job(
    system: DevSystem, key: str, counted_once: Callable[[Job], None]
) -> None:
    job_id = system.job_id(key)
    frozen = system.faults.plan(GATEWAY, APPEND_TO_ANSWER, do="stop", only_job=job_id)
    submitted = system.submit(key, "count")
    pid = frozen.wait_until_struck()
    assert (submitted.job_id, submitted.repeated) == (job_id, True)
    ended = system.wait_ended(job_id)
    frozen.thaw()
    system.wait_told(GATEWAY, "job_accepted", job_id, pid=pid)
    counted_once(ended)
    assert (ended.token, ended.attempts) == (1, 1)
