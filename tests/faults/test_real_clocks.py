"""Worker processes whose clocks are ten minutes fast, ten slow, and jumping: none starts a job early (must hold 5)."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringfence import transitions
from ringfence.ids import RandomIds
from ringfence.job import Guarantee, State
from ringfence.testing.dev_system import WORKER, DevSystem
from ringfence.testing.given import accepted_record
from ringfence.testing.redis_server import RedisServer
from ringfence.testing.worker_command import WorkerCommand
from ringfence.wire import JobRecord, new_ticket

APP = Path(__file__).with_name("clock_app")
KINDS = {"fast", "slow", "jumping"}
SOON_SECONDS = 1.5
LATER_SECONDS = 300.0
"""Less than ten minutes, and more than any test takes."""


class WrongClocks:
    """Three processes that serve a Redis queue of their own, and what they have told and done."""

    def __init__(self, system: DevSystem, redis_server: RedisServer, folder: Path, *, corrected: bool) -> None:
        self._ledger, self._ids, self._started = system.ledger, RandomIds(), folder / "started"
        self._queue = redis_server.queue()
        self._command = WorkerCommand(
            {
                **system.dev.environment(WORKER),
                "RINGFENCE_QUEUES": json.dumps({"default": redis_server.url(self._queue.name)}),
                "RINGFENCE_APP": "clock_jobs:app",
                "CLOCK_APP_FOLDER": str(folder),
                "CLOCK_APP_NEVER_CORRECTED": "" if corrected else "1",
                "POWERTOOLS_LOG_LEVEL": "DEBUG",
            },
            APP,
            *("--processes", "3", "--threads", "2"),
        )
        self._kinds: dict[int, str] = {}

    def wait_begun(self) -> None:
        """Each of the processes is about to serve."""
        while set(self._kinds.values()) != KINDS:
            told = self._command.next("clock_shifted")
            self._kinds[told["pid"]] = told["kind"]

    def submit(self, count: int, delay_seconds: float, guarantee: Guarantee = Guarantee.ONCE) -> list[JobRecord]:
        """Accepted jobs whose tickets the queue delays."""
        run_at = int(time.time() * 1000) + round(delay_seconds * 1000)
        records = [accepted_record("note", run_at=run_at, max_attempts=1, guarantee=guarantee) for _ in range(count)]
        for record in records:
            if guarantee is Guarantee.ONCE:
                row = transitions.accept(record, write_id=self._ids.mark(), due_id="")
                assert self._ledger.register(row) is None
        self.push(records, delay_seconds)
        return records

    def push(self, records: list[JobRecord], delay_seconds: float = 0.0) -> None:
        """A ticket for each."""
        assert not self._queue.push([new_ticket(self._ids.mark(), record) for record in records], delay_seconds)

    def started(self) -> dict[str, list[float]]:
        """When, in truth, each job was started."""
        lines = self._started.read_text().splitlines() if self._started.exists() else []
        found: dict[str, list[float]] = {}
        for line in map(json.loads, lines):
            found.setdefault(line["job"], []).append(line["at"])
        return found

    def found_early(self) -> set[str]:
        """The kinds of clocks whose processes have put an early ticket back since the last look."""
        found = set()
        while not self._command.events.empty():
            event = self._command.events.get()
            if event["event"] in ("job_early", "job_claimed_early"):
                found.add(self._kinds[event["pid"]])
        return found

    def end(self) -> int:
        return self._command.end()


@pytest.fixture
def wrong_clocks(
    system: DevSystem, redis_server: RedisServer, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[WrongClocks]:
    workers = WrongClocks(system, redis_server, tmp_path, corrected=getattr(request, "param", True))
    try:
        workers.wait_begun()
        yield workers
    finally:
        code = workers.end()
    assert code == 0


def test_no_wrong_clock_starts_a_job_early_or_twice(system: DevSystem, wrong_clocks: WrongClocks) -> None:
    soon = wrong_clocks.submit(6, SOON_SECONDS)
    riding = wrong_clocks.submit(6, SOON_SECONDS, Guarantee.AT_LEAST_ONCE)
    later = wrong_clocks.submit(6, LATER_SECONDS)
    duplicates = itertools.cycle(zip(soon, later, strict=True))
    found: set[str] = set()

    def all_have_found_early() -> bool:
        wrong_clocks.push(list(next(duplicates)))
        found.update(wrong_clocks.found_early())
        return found == KINDS

    system.wait_for("each process has had a ticket that came too early", all_have_found_early)
    for record in soon:
        row = system.wait_ended(record.job_id)
        assert (row.state, row.attempts) == (State.SUCCEEDED, 1)
    due = {record.job_id: (record.run_at or 0) / 1000 for record in soon + riding}
    system.wait_for("all have run", lambda: wrong_clocks.started().keys() >= due.keys())
    started = wrong_clocks.started()
    assert started.keys() == due.keys()  # of those that are due later, none
    assert {len(times) for times in started.values()} == {1}
    assert min(times[0] - due[job_id] for job_id, times in started.items()) >= 0


@pytest.mark.parametrize("wrong_clocks", [False], indirect=True, ids=["never corrected"])
def test_the_same_without_corrections_starts_jobs_early(system: DevSystem, wrong_clocks: WrongClocks) -> None:
    later = wrong_clocks.submit(2, LATER_SECONDS)

    def one_has_started() -> bool:
        wrong_clocks.push(later)
        return bool(wrong_clocks.started())

    system.wait_for("a fast clock is believed", one_has_started)
