"""Freezing and killing real processes, which hold claims in a ledger in memory."""

from __future__ import annotations

import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ringfence import transitions
from ringfence.errors import Unavailable
from ringfence.job import Job, State
from ringfence.local.demo import faults
from ringfence.local.demo.faults import NoVictim, Saboteur
from ringfence.local.demo.worker_log import WorkerLog
from ringfence.memory.clock import ManualClock
from ringfence.memory.ledger import MemoryLedger
from ringfence.testing.given import Given
from ringfence.testing.port_faults import Fault, Faulty, unavailable

IDLE = "import sys; sys.stdin.read()"


class Workers:
    """Processes that do nothing, the claims they hold, and the log in which they say so."""

    def __init__(self, folder: Path) -> None:
        clock = ManualClock()
        self.ledger = MemoryLedger(clock)
        self.given = Given(self.ledger, clock)
        self.folder = folder
        self.over = threading.Event()
        self.processes: dict[int, subprocess.Popen[bytes]] = {}
        self.told: list[str] = []

    def start(self) -> int:
        process = subprocess.Popen([sys.executable, "-c", IDLE], stdin=subprocess.PIPE)
        self.processes[process.pid] = process
        return process.pid

    def claim(self, pid: int) -> Job:
        """A new job, claimed by this process."""
        return self._claimed(self.given.queued(), pid)

    def take_over(self, row: Job, pid: int) -> Job:
        owner = self.given.owner(row, ticket_id=row.ticket_id, deliveries=row.ticket_deliveries + 1)
        owner = dataclasses.replace(owner, worker=f"host-{pid}")
        return self.given.done(transitions.claim_seen(row, owner, counted=True, write_id=self.given.mark()))

    def succeed(self, row: Job) -> None:
        self.given.done(self.given.success(row))

    def say(self, pid: int, event: str, job_id: str, **fields: Any) -> None:
        with (self.folder / f"W-{pid}.log").open("a") as log:
            log.write(json.dumps({"event": event, "job_id": job_id, **fields}) + "\n")

    def saboteur(self, react: Callable[[int, str], None] = lambda pid, what: None, *script: Fault) -> Saboteur:
        """``react`` is called with the process and ``frozen``, ``killed`` or ``thawed``, as soon as it is."""

        def told(text: str) -> None:
            self.told.append(text)
            _, pid, what, *_ = text.split()
            react(int(pid), what.rstrip(":"))

        ledger: Any = Faulty(self.ledger, script)
        return Saboteur(WorkerLog(self.folder, "W"), ledger, lambda: list(self.processes), told, self.over)

    def is_stopped(self, pid: int) -> bool:
        state = subprocess.run(["ps", "-o", "state=", "-p", str(pid)], capture_output=True, text=True, check=False).stdout
        return state.strip().startswith("T")

    def _claimed(self, row: Job, pid: int) -> Job:
        owner = dataclasses.replace(self.given.owner(row), worker=f"host-{pid}")
        claimed = self.given.done(transitions.claim_waiting(owner, write_id=self.given.mark()))
        self.say(pid, "job_claimed", claimed.job_id, token=claimed.token)
        return claimed


@pytest.fixture
def workers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Workers]:
    monkeypatch.setattr(faults, "SETTLE_SECONDS", 0.01)
    there = Workers(tmp_path)
    yield there
    for pid, process in there.processes.items():
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        process.communicate()


def test_one_is_frozen_until_another_has_its_job_and_a_second_one_is_killed(workers: Workers) -> None:
    rows = {pid: workers.claim(pid) for pid in (workers.start(), workers.start())}
    idle = workers.start()
    struck: dict[str, int] = {}
    stopped_when_killed: list[bool] = []

    def react(pid: int, what: str) -> None:
        struck[what] = pid
        frozen = struck["frozen"]
        row = rows[frozen]
        if what == "killed":
            stopped_when_killed.append(workers.is_stopped(frozen))
            workers.take_over(row, idle)
        elif what == "thawed":
            refused = {"purpose": "commit", "held_token": 1, "current_token": 2}
            workers.say(frozen, "late_write_refused", row.job_id, **refused)
            workers.say(frozen, "late_write_refused", "a job it did not hold", **refused)
            workers.say(idle, "late_write_refused", row.job_id, **refused)
            workers.say(frozen, "lease_lost", row.job_id, token=1)

    damage = workers.saboteur(react).strike()
    frozen, killed = struck["frozen"], struck["killed"]
    assert {frozen, killed} == rows.keys()
    assert stopped_when_killed == [True]
    assert not workers.is_stopped(frozen)
    assert workers.processes[frozen].poll() is None
    assert workers.processes[killed].wait(10) == -signal.SIGKILL
    assert [claim.job_id for claim in damage.taken_over] == [rows[frozen].job_id]
    assert [claim.job_id for claim in damage.killed.claims] == [rows[killed].job_id]
    (late,) = damage.late_writes
    assert (late.job_id, late.held_token, late.ledger_token, late.matched) == (rows[frozen].job_id, 1, 2, True)


def test_one_whose_job_ends_between_the_look_and_the_signal_goes_on_and_the_next_is_taken(workers: Workers) -> None:
    lucky, unlucky = workers.start(), workers.start()
    workers.claim(unlucky)
    lucky_row = workers.claim(lucky)

    def end(_call: Any) -> None:
        workers.succeed(lucky_row)

    script = Fault(method="get", act=end, when="after", where=lambda job_id: job_id == lucky_row.job_id)
    stopped = workers.saboteur(lambda pid, what: None, script)._stop_one()
    assert stopped.pid == unlucky
    assert workers.is_stopped(unlucky)
    assert not workers.is_stopped(lucky)


def test_a_claim_that_only_the_log_tells_of_is_no_reason_to_strike(workers: Workers) -> None:
    pid, other = workers.start(), workers.start()
    row = workers.claim(pid)
    workers.take_over(row, other)  # the log does not tell of it yet

    def end(_call: Any) -> None:
        workers.over.set()

    looked = Fault(method="get", act=end, when="after")
    with pytest.raises(NoVictim):
        workers.saboteur(lambda pid, what: None, looked).strike()
    assert not workers.is_stopped(pid)
    assert workers.told == []


def test_a_frozen_one_whose_commit_had_left_already_is_thawed_and_another_is_frozen(workers: Workers) -> None:
    rows = {pid: workers.claim(pid) for pid in (workers.start(), workers.start(), workers.start())}
    struck: list[tuple[int, str]] = []

    def react(pid: int, what: str) -> None:
        struck.append((pid, what))
        first = struck[0][0]
        if len(struck) == 2:
            workers.succeed(rows[first])  # it lands late, with the token that the ledger has
            workers.say(first, "job_succeeded", rows[first].job_id, token=1)
        elif len(struck) == 4:
            workers.take_over(rows[pid], first)
        elif len(struck) == 5:
            workers.say(pid, "lease_lost", rows[pid].job_id, token=1)

    damage = workers.saboteur(react).strike()
    assert [what for _, what in struck] == ["frozen", "killed", "thawed", "frozen", "thawed"]
    (first, killed, _, second, _) = (pid for pid, _ in struck)
    assert {first, killed, second} == rows.keys()
    assert (damage.frozen.pid, damage.killed.pid) == (second, killed)
    assert not any(workers.is_stopped(pid) for pid in rows)


@pytest.mark.parametrize("nth_look", [2, 3])
def test_a_ledger_out_of_reach_leaves_nobody_frozen(workers: Workers, nth_look: int) -> None:
    pids = [workers.start(), workers.start()]
    for pid in pids:
        workers.claim(pid)
    with pytest.raises(Unavailable):
        workers.saboteur(lambda pid, what: None, unavailable("get", call=nth_look)).strike()
    assert not any(workers.is_stopped(pid) for pid in pids)
    assert all(workers.processes[pid].poll() is None for pid in pids)


def test_when_all_jobs_have_ended_there_is_no_victim(workers: Workers) -> None:
    pid = workers.start()
    row = workers.claim(pid)
    workers.succeed(row)
    workers.over.set()
    with pytest.raises(NoVictim, match="before a worker could be stopped"):
        workers.saboteur().strike()
    assert workers.given.ledger.get(row.job_id).state is State.SUCCEEDED  # type: ignore[union-attr]
    assert not workers.is_stopped(pid)
