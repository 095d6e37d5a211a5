"""A job that kills its process, among others that share it (C25): real crews, and processes whose tasks all end at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from ringfence import App, Context
from ringfence.acceptance import Submission
from ringfence.job import Guarantee, State
from ringfence.testing.port_faults import Crash

from . import world as world_module
from .scheduler import Process, taking_turns
from .world import Plan, World

INNOCENTS = 5


@pytest.fixture(autouse=True)
def _taking_turns() -> Iterator[None]:
    with taking_turns():
        yield


class Neighbours(World):
    """One worker process at a time, without any fault but the one job."""

    def __init__(self, plan: Plan, guarantee: Guarantee) -> None:
        self._guarantee = guarantee
        self.ended: Counter[str] = Counter()
        super().__init__(plan)
        self._ended_clients = plan.jobs - 1

    def _client(self, number: int) -> None:
        if number:
            return
        names = ["innocent"] * (INNOCENTS - 1) + ["pill", "innocent"]
        for name in names:
            asked = Submission(name=name, payload="{}", queue="free", max_attempts=5, guarantee=self._guarantee)
            answer = self._request("acme", asked)
            self.note("accepted", answer.job.job_id, "acme", asked, number)
        self._ended_clients += 1

    def _operator(self) -> None: ...


def app(here: Any) -> App:
    made = App()

    @made.job("innocent", timeout="300s")
    def innocent(ctx: Context) -> None:
        here.scheduler.sleep(25.0)
        here.ended[ctx.job_id] += 1

    @made.job("pill")
    def pill(ctx: Context) -> None:
        here.scheduler.sleep(1.0)
        process: Process = here.scheduler.running.process
        here.die(process)
        raise Crash

    return made


@pytest.mark.parametrize("threads", [1, 4, 6, 8])
@pytest.mark.parametrize("guarantee", list(Guarantee))
def test_c25_a_job_that_kills_its_process_takes_nobody_along(
    monkeypatch: pytest.MonkeyPatch, threads: int, guarantee: Guarantee
) -> None:
    monkeypatch.setattr(world_module, "app", app)
    here = Neighbours(Plan(1, jobs=1, workers=1, threads=threads, fault_share=0.0, quiet_after_seconds=30.0), guarantee)
    here.run()
    assert here.fell() == []
    assert here.history.finished
    dead = [job for job in here.ledger.all_jobs() if job.state is State.DEAD]
    assert [job.name for job in dead] == ["pill"]
    assert len(here.ended) == INNOCENTS
