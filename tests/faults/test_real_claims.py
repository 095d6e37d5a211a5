"""Workers killed (SIGKILL) and frozen (SIGSTOP) for real, on both sides of the commit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ringfence.job import Job, State
from ringfence.testing.dev_system import WORKER, DevSystem
from ringfence.testing.gate import Gate

BETWEEN_CLAIM_AND_COMMIT: dict[str, dict[str, Any]] = {
    "after-the-claim": {"when": "after", "only_state": State.RUNNING},
    "before-the-commit": {"when": "before", "only_state": State.SUCCEEDED},
}
AFTER_THE_COMMIT: dict[str, Any] = {"when": "after", "only_state": State.SUCCEEDED}

pytestmark = pytest.mark.every_emulator


def claims(system: DevSystem, job_id: str) -> list[int]:
    """The tokens with which the job's code was started, as the workers have told."""
    return [event.token for event in system.events(WORKER, "job_claimed", job_id)]


def running_with_a_later_token(system: DevSystem, job_id: str) -> Job | None:
    job = system.job(job_id)
    return job if job is not None and job.state is State.RUNNING and job.token > 1 else None


def test_when_a_worker_is_killed_between_claim_and_commit_another_takes_over(
    system: DevSystem, key: str, counted_once: Callable[[Job], None]
) -> None:
    job_id = system.job_id(key)
    where = BETWEEN_CLAIM_AND_COMMIT["before-the-commit"]
    killed = system.faults.plan(WORKER, "ledger.write", do="kill", only_job=job_id, **where)
    system.submit(key, "count")
    system.wait_killed(killed.wait_until_struck())
    ended = system.wait_ended(job_id)
    assert ended.token >= 2
    assert (ended.history[0].token, ended.history[0].outcome) == (1, "lost")
    counted_once(ended)


@pytest.mark.parametrize("point", BETWEEN_CLAIM_AND_COMMIT)
def test_c28_a_worker_frozen_between_claim_and_commit_cannot_write_once_another_has_taken_over(
    system: DevSystem, key: str, gate: Gate, counted_once: Callable[[Job], None], point: str
) -> None:
    job_id = system.job_id(key)
    frozen = system.faults.plan(WORKER, "ledger.write", do="stop", only_job=job_id, **BETWEEN_CLAIM_AND_COMMIT[point])
    system.submit(key, "count", {"gate": gate.path, "waits": "later"})
    pid = frozen.wait_until_struck()
    taken_over = system.wait_for("another worker has the job", lambda: running_with_a_later_token(system, job_id))
    frozen.thaw()
    # The job is running, as the late owner's condition also says: the token alone refuses it.
    late = system.wait_told(WORKER, "late_write_refused", job_id, pid=pid, purpose="commit")
    assert (late.fields["held_token"], late.fields["state"]) == (1, State.RUNNING)
    assert late.fields["current_token"] >= taken_over.token
    gate.open()
    counted_once(system.wait_ended(job_id))


def test_c28_a_worker_frozen_between_claim_and_commit_cannot_write_once_another_has_ended_the_job(
    system: DevSystem, key: str, counted_once: Callable[[Job], None]
) -> None:
    job_id = system.job_id(key)
    where = BETWEEN_CLAIM_AND_COMMIT["before-the-commit"]
    frozen = system.faults.plan(WORKER, "ledger.write", do="stop", only_job=job_id, **where)
    system.submit(key, "count")
    pid = frozen.wait_until_struck()
    ended = system.wait_ended(job_id)
    assert ended.token >= 2
    frozen.thaw()
    late = system.wait_told(WORKER, "late_write_refused", job_id, pid=pid, purpose="commit")
    assert (late.fields["held_token"], late.fields["current_token"]) == (1, ended.token)
    counted_once(ended)


def test_c15_when_a_worker_is_killed_between_commit_and_acknowledge_the_redelivery_runs_nothing(
    system: DevSystem, key: str, counted_once: Callable[[Job], None]
) -> None:
    job_id = system.job_id(key)
    killed = system.faults.plan(WORKER, "ledger.write", do="kill", only_job=job_id, **AFTER_THE_COMMIT)
    system.submit(key, "count")
    pid = killed.wait_until_struck()
    committed = system.wait_ended(job_id)
    system.wait_killed(pid)
    assert system.wait_told(WORKER, "claim_finished", job_id).pid != pid
    counted_once(committed)
    assert (committed.token, committed.attempts, claims(system, job_id)) == (1, 1, [1])


def test_c15_while_a_worker_is_frozen_between_commit_and_acknowledge_the_redelivery_runs_nothing(
    system: DevSystem, key: str, counted_once: Callable[[Job], None]
) -> None:
    job_id = system.job_id(key)
    frozen = system.faults.plan(WORKER, "ledger.write", do="stop", only_job=job_id, **AFTER_THE_COMMIT)
    system.submit(key, "count")
    pid = frozen.wait_until_struck()
    committed = system.wait_ended(job_id)
    assert system.wait_told(WORKER, "claim_finished", job_id).pid != pid
    frozen.thaw()
    system.wait_told(WORKER, "job_succeeded", job_id, pid=pid)
    counted_once(committed)
    assert (committed.token, committed.attempts, claims(system, job_id)) == (1, 1, [1])
