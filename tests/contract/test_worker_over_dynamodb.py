"""A whole worker over DynamoDB while it throttles, conflicts and loses replies in front of boto3 (must hold 4 and 7, C35)."""

from __future__ import annotations

from typing import Any

import pytest

from ringfence import App, Context
from ringfence.aws.ledger import DynamoLedger
from ringfence.job import Job, State
from ringfence.memory.clock import ManualClock
from ringfence.testing.sdk_faults import SdkFault, connect_timeout, inject, read_timeout, refused
from ringfence.testing.system import MemorySystem


def cancelled(*codes: str) -> SdkFault:
    return refused("TransactionCanceledException", CancellationReasons=[{"Code": code} for code in codes])


PASSING: dict[str, list[SdkFault]] = {
    "conflict on the row": [cancelled("TransactionConflict", "None")] * 3,
    "conflict on the effect": [cancelled("None", "TransactionConflict")] * 3,
    "throttled by the table": [cancelled("ThrottlingError", "None")] * 2,
    "throttled by the service": [refused("ThrottlingException")] * 5,
    "over capacity": [refused("ProvisionedThroughputExceededException")] * 5,
    "in progress": [refused("TransactionInProgressException")] * 2,
    "never reached": [connect_timeout()] * 3,
    "reply lost": [read_timeout()] * 2,
    "their fault, then reply lost": [refused("InternalServerError", status=500), read_timeout()],
}


class Over:
    """A system whose ledger is DynamoDB, and the one job in it."""

    def __init__(self, store: Any) -> None:
        app = App()

        @app.job("visit")
        def visit(ctx: Context) -> int:
            ctx.effects.update("Users", {"email": "all"}, add={"visits": 1})
            return ctx.token

        self.clock = ManualClock()
        ledger = DynamoLedger(store.client, store.ledger_table, store.user_tables, self.clock)
        self.system = MemorySystem(app, clock=self.clock, wrap=lambda name, port: ledger if name == "ledger" else port)
        self.job_id = self.system.submit("visit").job_id
        self.system.run_relay()

    def row(self) -> Job:
        row = self.system.ledger.get(self.job_id)
        assert isinstance(row, Job)
        return row

    def visits(self) -> int:
        item = self.system.ledger.read_item("Users", {"email": "all"})
        return 0 if item is None else int(item["visits"])


@pytest.mark.parametrize("faults", PASSING.values(), ids=PASSING)
def test_a_commit_waits_a_passing_fault_out_and_lands_once(store: Any, faults: list[SdkFault]) -> None:
    here = Over(store)
    with inject(store.client, "TransactWriteItems", faults) as injection:
        here.system.run_worker()
    assert injection.struck == len(faults)
    row = here.row()
    assert (row.state, row.attempts, row.token, row.error) == (State.SUCCEEDED, 1, 1, None)
    assert here.visits() == 1
    assert here.system.memory_queues["default"].bodies() == []


@pytest.mark.parametrize(
    "faults",
    [[refused("ThrottlingException")] * 4, [connect_timeout()], [read_timeout()]],
    ids=["throttled", "never reached", "reply lost"],
)
def test_a_claim_does_so_too_and_mints_one_token(store: Any, faults: list[SdkFault]) -> None:
    here = Over(store)
    with inject(store.client, "UpdateItem", faults) as injection:
        here.system.run_worker()
    assert injection.struck == len(faults)
    assert (here.row().state, here.row().token, here.visits()) == (State.SUCCEEDED, 1, 1)


@pytest.mark.parametrize("reasons", [("ConditionalCheckFailed", "None"), ("ConditionalCheckFailed", "TransactionConflict")])
def test_a_condition_that_failed_is_decided_once_and_wins_over_a_conflict(store: Any, reasons: tuple[str, str]) -> None:
    here = Over(store)
    with inject(store.client, "TransactWriteItems", [cancelled(*reasons)] * 9) as injection:
        here.system.run_worker()
    assert injection.attempts == 1
    assert here.system.telemetry.named("late_write_refused")
    assert (here.row().state, here.visits()) == (State.RUNNING, 0)


def test_when_the_patience_is_spent_the_job_is_released_and_runs_again_to_one_effect(store: Any) -> None:
    here = Over(store)
    with inject(store.client, "TransactWriteItems", [refused("ThrottlingException")] * 10_000):
        here.system.run_worker()
    assert (here.row().state, here.row().attempts, here.visits()) == (State.QUEUED, 0, 0)
    here.clock.advance(60)
    here.system.run_worker()
    assert (here.row().state, here.row().token, here.visits()) == (State.SUCCEEDED, 2, 1)


def test_a_small_job_without_effects_costs_three_writes_and_no_read(store: Any) -> None:
    """Row and its index entry, claim, commit: four write units, one of them for the index."""
    app = App()

    @app.job("noop")
    def noop(ctx: Context) -> None: ...

    clock, calls = ManualClock(), []
    ledger = DynamoLedger(store.client, store.ledger_table, store.user_tables, clock)
    system = MemorySystem(app, clock=clock, wrap=lambda name, port: ledger if name == "ledger" else port)
    store.client.meta.events.register("before-call.dynamodb.*", lambda model, **_: calls.append(model.name), unique_id="count")
    try:
        system.submit("noop", "{}")
        system.run_relay()
        system.run_worker()
    finally:
        store.client.meta.events.unregister("before-call.dynamodb.*", unique_id="count")
    assert calls == ["PutItem", "UpdateItem", "UpdateItem"]
