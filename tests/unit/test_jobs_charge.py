"""The example job charge: $50, once, however often the request is repeated and however many workers try."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from jobs import app
from ringfence import App, Context
from ringfence.acceptance import Accepted, Submission
from ringfence.effects import Effect, Update
from ringfence.job import Job, State
from ringfence.memory.clock import ManualClock
from ringfence.testing.port_faults import Faulty, Freeze, freeze
from ringfence.testing.system import MemorySystem

TABLES = {"Accounts": ["account_id"], "Charges": ["charge_id"]}
DAY_SECONDS = 24 * 3600


def system(balance_cents: int | None = 12_000, *faults: Any) -> MemorySystem:
    here = MemorySystem(
        app, tables=TABLES, threads=2, wrap=lambda name, port: Faulty(port, faults) if name == "ledger" else port
    )
    if balance_cents is not None:
        put(here, {"account_id": "ada", "balance_cents": balance_cents})
    return here


def put(here: MemorySystem, account: dict[str, Any]) -> None:
    """Open an account, as another deployment's job would."""
    bank = App()

    @bank.job("open_account")
    def open_account(ctx: Context) -> None:
        ctx.effects.put("Accounts", account, version=0)

    here.app = bank
    here.submit("open_account")
    here.run_relay()
    here.run_worker()
    here.app = app


def charges(change: Any, effects: Sequence[Effect] = (), **_: Any) -> bool:
    """Whether a write of the ledger's is the commit of a charge."""
    return any(isinstance(effect, Update) for effect in effects)


def request(here: MemorySystem, payload: str = '{"account_id":"ada"}', key: str | None = None) -> Accepted:
    (answer,) = here.gateway.submit("default", [Submission(name="charge", payload=payload, idempotency_key=key)])
    assert isinstance(answer, Accepted)
    return answer


def run(here: MemorySystem, accepted: Accepted) -> Job:
    here.run_relay()
    here.run_worker()
    return here.job(accepted.job.job_id)


def balance_cents(here: MemorySystem) -> Any:
    account = here.memory_ledger.read_item("Accounts", {"account_id": "ada"})
    return account and account["balance_cents"]


def test_fifty_dollars_are_taken_and_the_charge_is_on_record() -> None:
    here = system()
    job = run(here, request(here))
    assert (job.state, job.result) == (State.SUCCEEDED, '{"charged_cents":5000,"balance_cents":7000}')
    assert here.memory_ledger.read_item("Accounts", {"account_id": "ada"}) == {
        "account_id": "ada",
        "balance_cents": 7000,
        "version": 2,
    }
    assert here.memory_ledger.read_item("Charges", {"charge_id": f"rf-{job.job_id}"}) == {
        "charge_id": f"rf-{job.job_id}",
        "account_id": "ada",
        "amount_cents": 5000,
        "balance_cents": 7000,
    }


def test_a_request_repeated_twenty_times_with_its_key_pays_once() -> None:
    here = system()
    accepted = [request(here, key="order-17") for _ in range(20)]
    assert len({each.job.job_id for each in accepted}) == 1
    run(here, accepted[0])
    here.run_worker()
    assert balance_cents(here) == 7000


def test_a_request_repeated_after_the_ledger_has_forgotten_the_job_is_answered_from_the_charge() -> None:
    here = system()
    first = run(here, request(here, key="order-17"))
    assert isinstance(here.clock, ManualClock)
    here.clock.advance(30 * DAY_SECONDS)
    again = request(here, key="order-17")
    assert not again.repeated
    assert run(here, again).result == first.result
    assert balance_cents(here) == 7000


def test_of_two_charges_at_once_the_second_finds_a_newer_version_and_is_tried_again() -> None:
    both_have_read = Freeze()
    here = system(12_000, freeze(both_have_read, "write", when="before", where=charges))
    first, second = request(here), request(here)
    here.run_relay()
    # The first to commit stops before it; the other has read the same balance, commits, and then lets the first go on.
    released: list[str] = []

    def other_commits(name: str, **fields: Any) -> None:
        if name == "job_succeeded" and not released:
            released.append(name)
            both_have_read.thaw()

    here.telemetry.event = other_commits  # type: ignore[method-assign]
    here.build()
    here.run_worker()
    states = {here.job(each.job.job_id).state for each in (first, second)}
    assert states == {State.SUCCEEDED, State.QUEUED}
    assert isinstance(here.clock, ManualClock)
    here.clock.advance(60)
    here.run_worker()
    assert {here.job(each.job.job_id).state for each in (first, second)} == {State.SUCCEEDED}
    assert balance_cents(here) == 2000


@pytest.mark.parametrize(
    ("balance", "payload", "error"),
    [
        (4_999, '{"account_id":"ada"}', "insufficient funds"),
        (None, '{"account_id":"ada"}', "there is no account ada"),
        (12_000, '{"account_id":"ada","amount_cents":0}', "does not fit charge"),
        (12_000, '{"account_id":"ada","amount_cents":-5000}', "does not fit charge"),
        (12_000, '{"account_id":"ada","amount_cents":49.99}', "does not fit charge"),
    ],
)
def test_what_cannot_be_charged_is_dead_at_once_and_takes_nothing(balance: int | None, payload: str, error: str) -> None:
    here = system(balance)
    job = run(here, request(here, payload))
    assert (job.state, job.attempts) == (State.DEAD, 1)
    assert error in (job.error or "")
    assert balance_cents(here) == balance
