"""Which jobs of the demo have ended."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ringfence.local.demo import endings
from ringfence.local.demo.endings import Endings
from ringfence.local.demo.worker_log import WorkerLog
from ringfence.memory.clock import ManualClock
from ringfence.memory.ledger import MemoryLedger
from ringfence.testing.given import Given


@pytest.fixture
def given() -> Given:
    clock = ManualClock()
    return Given(MemoryLedger(clock), clock)


def tell(folder: Path, *events: tuple[str, str]) -> None:
    with (folder / "W-1.log").open("a") as log:
        log.writelines(json.dumps({"event": name, "job_id": job_id}) + "\n" for name, job_id in events)


def test_the_logs_say_it_as_it_happens(given: Given, tmp_path: Path) -> None:
    watched = Endings(WorkerLog(tmp_path, "W"), given.ledger)
    jobs = ["a", "b", "c", "d", "e"]
    tell(
        tmp_path, ("job_claimed", "a"), ("job_succeeded", "a"), ("job_dead", "b"), ("claim_finished", "c"), ("job_retried", "d")
    )
    assert watched.count(jobs) == 3
    tell(tmp_path, ("claim_finished", "a"), ("job_succeeded", "somebody else's"))
    assert watched.count(jobs) == 3
    assert not watched.stalled


def test_an_end_that_no_log_tells_of_is_found_in_the_ledger_when_the_logs_fall_silent(
    given: Given, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watched = Endings(WorkerLog(tmp_path, "W"), given.ledger)
    jobs = [given.succeeded().job_id, given.dead().job_id, given.running().job_id]
    assert watched.count(jobs) == 0
    monkeypatch.setattr(endings, "SILENCE_SECONDS", 0.0)
    assert watched.count(jobs) == 2


def test_without_any_ending_for_long_it_has_stalled(given: Given, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Endings(WorkerLog(tmp_path, "W"), given.ledger)
    monkeypatch.setattr(endings, "STALL_SECONDS", 0.0)
    assert watched.stalled
