"""Jobs that kill the process that runs them, and what becomes of those around them (C25).

Deaths are raised here; real ones, in a process with a limit of memory too, are in `tests/integration/test_worker_process.py`.
"""

from __future__ import annotations

import pytest

from ringfence import App, Context
from ringfence.app import JobSpec
from ringfence.job import State
from ringfence.testing.port_faults import Crash
from ringfence.testing.system import MemorySystem

LEASE_SECONDS = 30.0
ATTEMPTS = 3


class Deaths:
    """Pills and innocents in one queue, and workers one after another: each works until it is killed."""

    def __init__(self, pills: int, innocents: int) -> None:
        app = App()

        @app.job("pill", max_attempts=ATTEMPTS)
        def pill(ctx: Context) -> None:
            self.swallowed += 1
            raise Crash

        @app.job("innocent", max_attempts=ATTEMPTS)
        def innocent(ctx: Context) -> None:
            self.runs += 1

        self.swallowed = self.runs = self.deaths = 0
        self.here = MemorySystem(app, lease_seconds=LEASE_SECONDS)
        names = ["innocent"] * innocents
        for number in range(pills):
            names.insert(number * (innocents // pills + 1), "pill")
        self.jobs = {name: [self.here.submit(name).job_id for each in names if each == name] for name in ("pill", "innocent")}
        self.here.run_relay()

    def until_all_have_ended(self) -> None:
        while {self.here.job(job_id).state.terminal for ids in self.jobs.values() for job_id in ids} != {True}:
            self.work()
            self.here.clock.sleep(LEASE_SECONDS + 10)

    def work(self) -> None:
        """Workers, each in place of one that died, until nothing is visible."""
        while True:
            try:
                if not self.here.run_worker():
                    return
            except Crash:
                self.deaths += 1
            assert self.deaths < 1_000

    def states(self, name: str) -> set[State]:
        return {self.here.job(job_id).state for job_id in self.jobs[name]}


def test_c25_a_pill_is_dead_after_its_attempts_and_whoever_shared_its_process_succeeds() -> None:
    jobs = Deaths(pills=1, innocents=5)
    jobs.until_all_have_ended()
    assert (jobs.deaths, jobs.swallowed, jobs.runs) == (ATTEMPTS, ATTEMPTS, 5)
    assert (jobs.states("pill"), jobs.states("innocent")) == ({State.DEAD}, {State.SUCCEEDED})
    (pill,) = jobs.jobs["pill"]
    row = jobs.here.job(pill)
    assert (row.attempts, row.token) == (ATTEMPTS, ATTEMPTS + 1), "the burial has a token of its own"
    assert row.error == f"all {ATTEMPTS} attempts are used up; the last one: the worker was lost"


def test_c25_a_storm_of_fifty_pills_leaves_the_good_jobs_alone() -> None:
    """Each pill costs a worker's death for each of its attempts, and no good job an attempt; within the very first lease, in
    which each pill kills once, at least one good job ends for each death."""
    jobs = Deaths(pills=50, innocents=200)
    jobs.work()
    done_at_once = jobs.runs
    jobs.until_all_have_ended()
    assert done_at_once >= 50
    assert (jobs.deaths, jobs.runs) == (50 * ATTEMPTS, 200)
    assert (jobs.states("pill"), jobs.states("innocent")) == ({State.DEAD}, {State.SUCCEEDED})
    assert {jobs.here.job(job_id).attempts for job_id in jobs.jobs["innocent"]} == {1}


def test_c25_a_payload_that_kills_whoever_reads_it_runs_out_of_attempts_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are counted before it is read."""

    def read(_spec: JobSpec, _payload: str) -> dict[str, object]:
        raise Crash

    jobs = Deaths(pills=1, innocents=0)
    monkeypatch.setattr(JobSpec, "decode", read)
    jobs.until_all_have_ended()
    assert (jobs.deaths, jobs.swallowed, jobs.states("pill")) == (ATTEMPTS, 0, {State.DEAD})
