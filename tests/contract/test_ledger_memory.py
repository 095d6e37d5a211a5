"""The ledger's contract in memory, and what only threads show."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TypeVar

import pytest

from ringfence.change import Refused, Written
from ringfence.effects import Delete, Effect, Put, Update
from ringfence.errors import RingfenceError
from ringfence.memory.clock import ManualClock
from ringfence.memory.ledger import MemoryLedger
from ringfence.testing.effect_steps import ensure_rejected
from ringfence.testing.given import Given
from ringfence.testing.ledger_contract import LedgerContract

THREADS = 12
ROUNDS = 20

T = TypeVar("T")
R = TypeVar("R")


class TestMemoryLedger(LedgerContract):
    @pytest.fixture
    def ledger(self, clock: ManualClock, user_tables: Mapping[str, tuple[str, ...]]) -> MemoryLedger:
        return MemoryLedger(clock, tables=user_tables)

    def test_of_many_registrations_at_once_one_wins(self, given: Given, ledger: MemoryLedger) -> None:
        """C02: concurrent first requests of one idempotency key are one job."""
        for _ in range(ROUNDS):
            job = given.row()
            rivals = [replace(job, write_id=given.mark()) for _ in range(THREADS)]
            answers = _at_once(ledger.register, rivals)
            winner = ledger.get(job.job_id)
            assert [rival for rival, answer in zip(rivals, answers, strict=True) if answer is None] == [winner]
            assert answers.count(winner) == THREADS - 1

    def test_of_many_claims_at_once_one_wins(self, given: Given, ledger: MemoryLedger) -> None:
        for _ in range(ROUNDS):
            job = given.queued()
            claims = [given.claim(job) for _ in range(THREADS)]
            outcomes = _at_once(ledger.write, claims)
            written = [outcome.job for outcome in outcomes if isinstance(outcome, Written)]
            assert [row.token for row in written] == [1]
            assert outcomes.count(Refused(written[0])) == THREADS - 1

    @pytest.mark.parametrize(
        "effect",
        [
            Put(table="Users", item={"name": "no key"}),
            Update(table="Visits", key={"email": "a"}, set={"n": 1}),
            Delete(table="Users", key={"email": "a", "more": 1}),
        ],
        ids=["none", "half", "more than the key"],
    )
    def test_a_key_that_is_not_the_tables_is_the_jobs_fault(self, given: Given, ledger: MemoryLedger, effect: Effect) -> None:
        """As on DynamoDB. Each emulator takes one or another of these, so they are no part of the contract."""
        ensure_rejected(given, ledger, effect)

    def test_a_request_token_for_other_content_is_a_mistake(self, given: Given, ledger: MemoryLedger) -> None:
        job, token = given.running(), given.mark()
        held = given.success(job)
        ledger.write_effects(held, [Update(table="Users", key={"email": "a"}, add={"n": 1})], request_token=token)
        with pytest.raises(RingfenceError):
            ledger.write_effects(held, [Update(table="Users", key={"email": "a"}, add={"n": 2})], request_token=token)


def _at_once(call: Callable[[T], R], arguments: Sequence[T]) -> list[R]:
    start = threading.Barrier(len(arguments))

    def run(argument: T) -> R:
        start.wait()
        return call(argument)

    with ThreadPoolExecutor(len(arguments)) as pool:
        return list(pool.map(run, arguments))
