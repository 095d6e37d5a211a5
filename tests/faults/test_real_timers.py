"""Timers killed (SIGKILL) and frozen (SIGSTOP) for real, when the ticket is pushed and the due mark is still on the row."""

from __future__ import annotations

from collections.abc import Callable

from ringfence.job import Job, State
from ringfence.testing.dev_system import TIMERS, WORKER, DevSystem
from ringfence.testing.gate import Gate

PUSH = "queue.push"
JOB = "count_when_redriven"


def dead(system: DevSystem, key: str) -> str:
    """A job that has died, and may be redriven."""
    job = system.wait_ended(system.submit(key, JOB).job_id)
    assert (job.state, job.token) == (State.DEAD, 1)
    return job.job_id


def test_c21_when_the_timers_are_killed_between_push_and_clear_the_second_ticket_runs_nothing(
    system: DevSystem, key: str, gate: Gate, counted_once: Callable[[Job], None]
) -> None:
    job_id = dead(system, key)
    killed = system.faults.plan(TIMERS, PUSH, do="kill", only_job=job_id)
    system.client.redrive(job_id, {"gate": gate.path})
    pid = killed.wait_until_struck()
    system.wait_killed(pid)
    # The job waits at the gate, so the mark is still there for the next run of the timers.
    assert system.wait_told(TIMERS, "mark_released", job_id).pid != pid
    gate.open()
    ended = system.wait_ended(job_id)
    system.wait_told(WORKER, "claim_finished", job_id)
    counted_once(ended)
    assert (ended.token, ended.attempts) == (2, 1)


def test_c29_timers_frozen_between_push_and_clear_do_not_touch_the_job_that_has_ended_meanwhile(
    system: DevSystem, key: str, gate: Gate, counted_once: Callable[[Job], None]
) -> None:
    gate.open()
    job_id = dead(system, key)
    frozen = system.faults.plan(TIMERS, PUSH, do="stop", only_job=job_id)
    system.client.redrive(job_id, {"gate": gate.path})
    pid = frozen.wait_until_struck()
    ended = system.wait_ended(job_id)
    frozen.thaw()
    system.wait_told(TIMERS, "mark_moved", job_id, pid=pid)
    counted_once(ended)
    assert (ended.token, ended.attempts) == (2, 1)
