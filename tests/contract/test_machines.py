"""Engines under whatever sequence of calls chance finds, beside what their contracts say (`machines`)."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import pytest
from moto import mock_aws

from ringfence.aws.ledger import DynamoLedger
from ringfence.aws.limiter import DynamoLimiter
from ringfence.aws.queue import SqsQueue
from ringfence.change import Change, Is, Refused, Written
from ringfence.job import Job, State
from ringfence.memory.clock import ManualClock
from ringfence.memory.ledger import MemoryLedger
from ringfence.memory.limiter import MemoryLimiter
from ringfence.memory.queue import MemoryQueue
from ringfence.ports import Lease
from ringfence.rate import Rate
from ringfence.redis.limiter import RedisLimiter
from ringfence.testing.redis_server import RedisServer
from ringfence.wire import Ticket

from .machines import LedgersMachine, LimiterMachine, QueueMachine, ensure_holds, finds_out
from .sqs_on_moto import WithReceiptsOfSqs, live_by
from .test_limiter_redis import EARLIER, TIME, pace_of
from .test_queue_sqs import SESSION


def test_a_queue_in_memory() -> None:
    def machine() -> QueueMachine:
        clock = ManualClock()
        return QueueMachine(MemoryQueue("chance", clock), clock.monotonic, clock.advance)

    ensure_holds(machine, examples=60, steps=40)


def test_a_queue_on_redis(redis_server: RedisServer) -> None:
    def machine() -> QueueMachine:
        queue, moved = redis_server.queue(), [0.0]

        def pass_time(seconds: float) -> None:
            redis_server.let_pass(queue, seconds)
            moved.append(seconds + 0.001)

        return QueueMachine(queue, lambda: time.monotonic() + sum(moved), pass_time)

    ensure_holds(machine, examples=25, steps=40)


@pytest.fixture
def queue_machine_on_sqs(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., QueueMachine]]:
    """Makes one with a queue of its own, of the class that it is given."""
    client, numbers = SESSION.client("sqs"), itertools.count()

    def machine(kind: type[SqsQueue] = SqsQueue) -> QueueMachine:
        clock = ManualClock()
        live_by(clock, monkeypatch)
        url = client.create_queue(QueueName=f"chance-{next(numbers)}")["QueueUrl"]
        return QueueMachine(kind(WithReceiptsOfSqs(client, clock), "chance", url, clock=clock), clock.monotonic, clock.advance)

    with mock_aws():
        yield machine


def test_a_queue_on_sqs(queue_machine_on_sqs: Callable[..., QueueMachine]) -> None:
    ensure_holds(queue_machine_on_sqs, examples=12, steps=25)


def test_two_ledgers_of_which_one_is_on_dynamodb(store: Any) -> None:
    def machine() -> LedgersMachine:
        clock = ManualClock()
        on_dynamodb = DynamoLedger(store.client, store.ledger_table, store.user_tables, clock)
        return LedgersMachine(MemoryLedger(clock), on_dynamodb, clock)

    ensure_holds(machine, examples=6, steps=30)


def test_a_limiter_in_memory() -> None:
    def machine() -> LimiterMachine:
        clock = ManualClock()
        return LimiterMachine(MemoryLimiter(clock), clock.now, clock.advance, 0.0)

    ensure_holds(machine, examples=40, steps=20)


def test_a_limiter_on_dynamodb(store: Any) -> None:
    def machine() -> LimiterMachine:
        clock = ManualClock()
        return LimiterMachine(DynamoLimiter(store.client, store.ledger_table, clock), clock.now, clock.advance, 0.0)

    ensure_holds(machine, examples=12, steps=15)


def test_a_limiter_on_redis(redis_server: RedisServer) -> None:
    connection = redis_server.connection()

    def machine() -> LimiterMachine:
        moved = [0.0]
        made = LimiterMachine(
            OfQueue(redis_server), lambda: connection.run(TIME, ["any"], []) / 1_000 + 1_000 * sum(moved), lambda _: None, 50.0
        )

        def pass_time(seconds: float) -> None:
            connection.run(EARLIER, [pace_of(made._queue)], [round(seconds * 1_000_000)])
            moved.append(seconds)

        made._pass_time = pass_time
        return made

    ensure_holds(machine, examples=25, steps=20)


class OfQueue:
    """The limiter of whatever queue it is asked about."""

    def __init__(self, server: RedisServer) -> None:
        self._connection = server.connection()

    def reserve(self, queue: str, *more: Any) -> list[int]:
        return RedisLimiter(self._connection, queue).reserve(queue, *more)


# --- a machine that finds nothing must be one that can ---------------------------------------------------------------------


class Revives(MemoryQueue):
    """A lease that has ended is as good as any."""

    def extend(self, leases: Sequence[Lease], lease_seconds: float) -> list[Lease]:
        super().extend(leases, lease_seconds)
        return []


class AcknowledgesByMessage(MemoryQueue):
    """Whoever ever had it may remove it."""

    def acknowledge(self, leases: Sequence[Lease]) -> None:
        for lease in leases:
            self._messages.pop(lease.message_id, None)


class CountsFromOne(MemoryQueue):
    """Each delivery is the first."""

    def lease(self, *how: float) -> list[Lease]:
        return [Lease(each.body, each.receipt, 1, each.message_id, each.queue) for each in super().lease(*how)]  # type: ignore[arg-type]


class ShowsTooSoon(MemoryQueue):
    """Half of every delay and lease is enough."""

    def lease(self, most: int, seconds: float, wait_seconds: float = 0.0) -> list[Lease]:
        return super().lease(most, seconds / 2, wait_seconds)


@pytest.mark.parametrize("wrong", [Revives, AcknowledgesByMessage, CountsFromOne, ShowsTooSoon])
def test_a_wrong_queue_is_found_out(wrong: type[MemoryQueue]) -> None:
    def machine() -> QueueMachine:
        clock = ManualClock()
        return QueueMachine(wrong("chance", clock), clock.monotonic, clock.advance)

    assert finds_out(machine)


class ForgetsDelays(SqsQueue):
    """What is pushed with a delay is there at once."""

    def push(self, tickets: Sequence[Ticket], delay_seconds: float | Sequence[float] = 0.0) -> list[Ticket]:
        return super().push(tickets)


class ShowsTooSoonOnSqs(SqsQueue):
    """Half of every lease is enough."""

    def lease(self, max_tickets: int, lease_seconds: float, wait_seconds: float = 0.0) -> list[Lease]:
        return super().lease(max_tickets, lease_seconds / 2, wait_seconds)


@pytest.mark.parametrize("wrong", [ForgetsDelays, ShowsTooSoonOnSqs])
def test_a_wrong_queue_on_sqs_is_found_out(queue_machine_on_sqs: Callable[..., QueueMachine], wrong: type[SqsQueue]) -> None:
    assert finds_out(lambda: queue_machine_on_sqs(wrong))


class RegistersAgain(MemoryLedger):
    """A repeated request starts the job anew."""

    def register(self, job: Job) -> Job | None:
        self._rows.pop(job.job_id, None)
        return super().register(job)


class BelievesLateOwners(MemoryLedger):
    """Whoever held the job once may write, as long as somebody does."""

    def write(self, change: Change, *more: Any, **named: Any) -> Written | Refused:
        row = self.get(change.job_id)
        if row is not None and row.state is State.RUNNING and change.seen is not None:
            change = replace(change, condition=Is("state", State.RUNNING))
        return super().write(change, *more, **named)


@pytest.mark.parametrize("wrong", [RegistersAgain, BelievesLateOwners])
def test_a_wrong_ledger_is_found_out(wrong: type[MemoryLedger]) -> None:
    def machine() -> LedgersMachine:
        clock = ManualClock()
        return LedgersMachine(MemoryLedger(clock), wrong(clock), clock)

    assert finds_out(machine)


class Generous(MemoryLimiter):
    """A tenth faster than it was told."""

    def reserve(self, queue: str, count: int, rate: Rate, within: int | None = None) -> list[int]:
        faster = replace(rate, interval_nanos=int(rate.interval_nanos / 1.1))
        return super().reserve(queue, count, faster, within)


def test_a_wrong_limiter_is_found_out() -> None:
    def machine() -> LimiterMachine:
        clock = ManualClock()
        return LimiterMachine(Generous(clock), clock.now, clock.advance, 0.0)

    assert finds_out(machine)
