"""A job five times as long as its lease, in a real worker: with heartbeats that get through, and with some that do not."""

from __future__ import annotations

from collections.abc import Callable

from ringfence.job import Job
from ringfence.testing.dev_system import WORKER, DevSystem
from ringfence.testing.gate import Gate

LEASES = 5
LEASE_MS = 2_000


def test_heartbeats_keep_a_job_through_five_times_its_lease(
    system: DevSystem, key: str, gate: Gate, counted_once: Callable[[Job], None]
) -> None:
    job_id = system.job_id(key)
    system.submit(key, "count", {"gate": gate.path})

    def kept_for_long() -> bool:
        job = system.job(job_id)
        return job is not None and (job.lease_until or 0) - (job.started_at or 0) >= LEASES * LEASE_MS

    system.wait_for(f"the lease has been renewed past {LEASES} leases", kept_for_long)
    gate.open()
    ended = system.wait_ended(job_id)
    counted_once(ended)
    assert (ended.token, ended.attempts) == (1, 1)


def test_a_worker_whose_heartbeats_do_not_get_through_loses_the_job_and_its_late_commit_is_refused(
    system: DevSystem, key: str, gate: Gate, counted_once: Callable[[Job], None]
) -> None:
    job_id = system.job_id(key)
    # The first extension is the one that shortens the visibility to the lease.
    deaf = system.faults.plan(WORKER, "queue.extend", do="unavailable", when="before", call=2, times=None, only_job=job_id)
    system.submit(key, "count", {"gate": gate.path})
    pid = deaf.wait_until_struck()
    ended = system.wait_ended(job_id)
    assert ended.token >= 2
    gate.open()
    late = system.wait_told(WORKER, "late_write_refused", job_id, pid=pid, purpose="commit")
    assert (late.fields["held_token"], late.fields["current_token"]) == (1, ended.token)
    counted_once(ended)
