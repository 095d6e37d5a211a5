"""What the benchmark counts, counted here in its short form: no times, so the same on every machine."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import boto3
import pytest
from moto import mock_aws

from ringfence import App
from ringfence.ids import RandomIds
from ringfence.relay import Read
from ringfence.testing.redis_server import RedisServer
from ringfence.testing.system import MemorySystem
from ringfence.wire import JobRecord, Ticket, encode_records

from .bill import bill
from .engine import tickets
from .write_units import Metered

JOBS = 10


def test_a_small_job_without_effects_costs_four_write_units_and_three_calls_to_the_ledger_in_its_whole_life() -> None:
    found = bill(JOBS)
    assert found.units_by_write == {"row": 3.0, "listing": 1.0}
    assert found.write_units == 4.0
    ledger = {name: count for name, count in found.calls.items() if name.startswith("dynamodb.")}
    assert sum(ledger.values()) <= 3.0
    # One receive that finds them, one that finds no more.
    assert {name: count * JOBS for name, count in found.calls.items() if name.startswith("sqs.")} == {
        "sqs.send_message_batch": 1,
        "sqs.receive_message": 2,
        "sqs.delete_message_batch": 1,
    }


@pytest.mark.parametrize(
    ("carried", "most_bytes"), [pytest.param(False, 260, id="once"), pytest.param(True, 460, id="at-least-once")]
)
def test_a_waiting_ticket_takes_few_bytes_of_redis(redis_server: RedisServer, carried: bool, most_bytes: int) -> None:
    queue = redis_server.queue()
    waiting = [
        each if carried else Ticket(ticket_id=each.ticket_id, job_id=each.job_id, tenant=each.tenant, name=each.name)
        for each in tickets(1_000)
    ]
    assert queue.push(waiting) == []
    # Of all members, not of a sample.
    assert redis_server.ask("MEMORY", "USAGE", queue.messages_key, "SAMPLES", 0) / len(waiting) < most_bytes


def test_the_relays_work_grows_linearly_with_the_batch() -> None:
    small, large = operations_per_ticket(300), operations_per_ticket(3_000)
    assert large < 1.1 * small


def operations_per_ticket(jobs: int) -> float:
    """Calls of functions, Python's and C's, that the relay makes for a batch of so many jobs."""
    system = MemorySystem(App())
    records = [Read(data, str(number), "shard") for number, (data, _) in enumerate(encode_records(accepted(jobs)))]
    operations = 0

    def count(_frame: object, event: str, _argument: object) -> None:
        nonlocal operations
        operations += event in ("call", "c_call")

    sys.setprofile(count)
    try:
        unsent = system.relay.handle(records)
    finally:
        sys.setprofile(None)
    assert unsent is None
    assert system.memory_queues["default"].depth().ready == jobs
    return operations / jobs


def accepted(jobs: int) -> list[JobRecord]:
    ids = RandomIds()
    return [
        JobRecord(
            job_id=ids.job(),
            tenant="bench",
            queue="default",
            name="job",
            payload="{}",
            payload_sha256="0" * 64,
            created_at=1_700_000_000_000,
            max_attempts=5,
        )
        for _ in range(jobs)
    ]


# --- the meter itself ------------------------------------------------------------------------------------------------


@pytest.fixture
def metered() -> Iterator[Metered]:
    """A table whose index ``listing`` holds keys only."""
    with mock_aws():
        client = boto3.session.Session("testing", "testing", region_name="us-east-1").client("dynamodb")
        client.create_table(
            TableName="ledger",
            BillingMode="PAY_PER_REQUEST",
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("pk", "lk")],
            GlobalSecondaryIndexes=[
                {
                    "IndexName": "listing",
                    "KeySchema": [{"AttributeName": "lk", "KeyType": "HASH"}],
                    "Projection": {"ProjectionType": "KEYS_ONLY"},
                }
            ],
        )
        yield Metered(client, "ledger")


def text(value: str) -> dict[str, str]:
    return {"S": value}


def test_of_an_item_the_larger_of_before_and_after_counts_in_whole_kilobytes(metered: Metered) -> None:
    metered.put_item(TableName="ledger", Item={"pk": text("a"), "t": text("x" * 1_500)})
    assert metered.units == {"row": 2}
    metered.put_item(TableName="ledger", Item={"pk": text("a")})
    assert metered.units == {"row": 4}
    metered.put_item(TableName="ledger", Item={"pk": text("a")})
    assert metered.units == {"row": 5}


def test_an_index_counts_when_its_entry_comes_moves_or_goes_and_not_otherwise(metered: Metered) -> None:
    metered.put_item(TableName="ledger", Item={"pk": text("a"), "lk": text("1")})
    assert metered.units["listing"] == 1
    metered.put_item(TableName="ledger", Item={"pk": text("a"), "lk": text("1"), "t": text("x")})
    assert metered.units["listing"] == 1
    metered.put_item(TableName="ledger", Item={"pk": text("a"), "lk": text("2")})
    assert metered.units["listing"] == 3
    metered.delete_item(TableName="ledger", Key={"pk": text("a")})
    assert metered.units == {"listing": 4, "row": 4}


def test_a_transaction_counts_twice_and_a_condition_that_fails_counts_too(metered: Metered) -> None:
    put = {"TableName": "ledger", "Item": {"pk": text("a")}, "ConditionExpression": "attribute_not_exists(pk)"}
    metered.transact_write_items(TransactItems=[{"Put": put}])
    assert metered.units == {"row": 2}
    with pytest.raises(metered.exceptions.ConditionalCheckFailedException):
        metered.put_item(**put)
    assert metered.units == {"row": 3}


def test_a_batch_counts_each_of_its_items(metered: Metered) -> None:
    puts = [{"PutRequest": {"Item": {"pk": text(name), "lk": text(name)}}} for name in "abc"]
    metered.batch_write_item(RequestItems={"ledger": puts})
    assert metered.units == {"row": 3, "listing": 3}
    assert metered.calls == {"batch_write_item": 1}
