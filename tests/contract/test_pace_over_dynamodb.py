"""The relay and the timers keeping a pace over DynamoDB: rows, line, settings and limiter in the table of template.yaml."""

from __future__ import annotations

from typing import Any

import pytest

from ringfence import App, Context
from ringfence.acceptance import Accepted, Submission
from ringfence.aws.ledger import DynamoLedger
from ringfence.aws.limiter import DynamoLimiter
from ringfence.aws.queue_settings import DynamoSettings
from ringfence.job import State
from ringfence.memory.clock import ManualClock
from ringfence.pace import HORIZON_SECONDS
from ringfence.testing.limiter_contract import ensure_within_rate
from ringfence.testing.system import MemorySystem
from ringfence.wire import decode_ticket


def app() -> App:
    made = App()

    @made.job("noop")
    def noop(ctx: Context) -> None: ...

    return made


@pytest.fixture
def here(store: Any, one_at_a_time: Any, clock: ManualClock) -> MemorySystem:
    """The log and the queues in memory, all else on DynamoDB."""
    on_dynamodb = {
        "ledger": DynamoLedger(one_at_a_time, store.ledger_table, store.user_tables, clock),
        "settings": DynamoSettings(one_at_a_time, store.ledger_table),
        "limiter": DynamoLimiter(one_at_a_time, store.ledger_table, clock),
    }
    return MemorySystem(app(), clock=clock, wrap=lambda name, port: on_dynamodb.get(name, port))


def submitted(here: MemorySystem, count: int) -> list[str]:
    answers = here.gateway.submit("default", [Submission(name="noop", payload="{}")] * count)
    return [answer.job.job_id for answer in answers if isinstance(answer, Accepted)]


def parked(here: MemorySystem, queue: str = "default") -> list[str]:
    """Who stands in line, the first first."""
    rows = [(job.run_at or 0, job.job_id) for job in here.ledger.line(queue, 1_000)]
    groups = [(place, job_id) for group in here.ledger.groups(queue, 1_000) for job_id, place in group.waiting]
    return [job_id for _, job_id in sorted(rows + groups)]


def taken(here: MemorySystem) -> list[str]:
    leases = here.memory_queues["default"].lease(1_000, 30)
    here.memory_queues["default"].acknowledge(leases)
    return [decode_ticket(lease.body).job_id for lease in leases]


def test_a_rate_is_kept_from_the_first_to_the_last_of_the_parked(here: MemorySystem) -> None:
    here.queue_settings.change("default", {"rate_per_second": 0.2, "burst": 2})
    job_ids = submitted(here, 45)
    assert here.run_relay() is None
    pushed = int(0.2 * HORIZON_SECONDS) + 2
    assert parked(here) == job_ids[pushed:]
    assert here.ledger.get(job_ids[-1]).state is State.SCHEDULED
    got: list[tuple[float, str]] = []
    start = here.clock.now()
    for second in range(230):
        if second % 45 == 0:
            here.timers.run()
        got += [(here.clock.now() - start, job_id) for job_id in taken(here)]
        here.clock.sleep(1)
    assert [job_id for _, job_id in got] == job_ids
    ensure_within_rate([at for at, _ in got], 0.2, 2, slack_ms=1_000)
    assert here.ledger.get(job_ids[-1]).state is State.QUEUED
    assert parked(here) == []
    assert not here.queue_settings.read("default").line.waiting


def test_a_paused_queue_keeps_its_order_and_a_mark_its_depth(here: MemorySystem) -> None:
    here.queue_settings.change("default", {"paused": True, "high_water_mark": 20})
    job_ids = submitted(here, 20)
    assert here.run_relay() is None
    assert here.relay.handle(here.memory_log.read()) is None, "read again, it changes nothing"
    job_ids += submitted(here, 130)
    assert here.run_relay() is None
    assert parked(here) == job_ids
    here.queue_settings.change("default", {"paused": False})
    got: list[str] = []
    for _ in range(8):
        here.timers.run()
        assert here.memory_queues["default"].depth().ready <= 20
        here.clock.sleep(1)  # for the places that were given out ahead of the clock
        got += taken(here)
    assert got == job_ids
