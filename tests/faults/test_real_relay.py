"""Relays killed (SIGKILL) and frozen (SIGSTOP) for real, when the ticket is pushed and the checkpoint has not passed it."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

from ringfence.job import Job
from ringfence.testing.dev_system import RELAY, WORKER, DevSystem

PUSH = "queue.push"


def test_when_a_relay_is_killed_between_push_and_checkpoint_the_second_ticket_runs_nothing(
    system: DevSystem, key: str, counted_once: Callable[[Job], None]
) -> None:
    job_id = system.job_id(key)
    killed = system.faults.plan(RELAY, PUSH, do="kill", only_job=job_id)
    system.submit(key, "count")
    system.wait_killed(killed.wait_until_struck())
    ended = system.wait_ended(job_id)
    system.wait_told(WORKER, "claim_finished", job_id)
    counted_once(ended)
    assert (ended.token, ended.attempts) == (1, 1)


def test_a_relay_frozen_between_push_and_checkpoint_goes_on_when_it_is_thawed(
    system: DevSystem, key: str, counted_once: Callable[[Job], None]
) -> None:
    job_id, behind = system.job_id(key), f"behind {key}"
    frozen = system.faults.plan(RELAY, PUSH, do="stop", only_job=job_id)
    system.submit(key, "count")
    frozen.wait_until_struck()
    ended = system.wait_ended(job_id)
    system.submit(behind, "count")
    frozen.thaw()
    counted_once(system.wait_ended(system.job_id(behind)))
    counted_once(ended)
    assert (ended.token, ended.attempts) == (1, 1)


def test_when_a_frozen_relay_is_ended_by_its_time_limit_the_second_ticket_runs_nothing(
    system: DevSystem, key: str, counted_once: Callable[[Job], None]
) -> None:
    job_id = system.job_id(key)
    frozen = system.faults.plan(RELAY, PUSH, do="stop", only_job=job_id)
    system.submit(key, "count")
    pid = frozen.wait_until_struck()
    ended = system.wait_ended(job_id)
    os.kill(pid, signal.SIGKILL)  # what Lambda does at the limit, two minutes here
    system.wait_killed(pid)
    system.wait_told(WORKER, "claim_finished", job_id)
    counted_once(ended)
    assert (ended.token, ended.attempts) == (1, 1)
