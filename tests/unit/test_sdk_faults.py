"""Faults in front of boto3: what was applied, what the SDK saw, and whether it tried again."""

import threading
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError, ConnectTimeoutError, ReadTimeoutError
from moto import mock_aws

from ringfence.testing.faults import connect_timeout, edited, held, inject, read_timeout, refused, replaced, through

SESSION = boto3.session.Session("testing", "testing", region_name="us-east-1")


def client_of(service: str, attempts: int) -> Any:
    config = Config(retries={"mode": "standard", "total_max_attempts": attempts})
    return SESSION.client(service, config=config)


@pytest.fixture(autouse=True)
def no_pause_between_attempts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("botocore.retries.standard.ExponentialBackoff.delay_amount", lambda *_: 0)


@pytest.fixture
def table() -> Iterator[str]:
    with mock_aws():
        client_of("dynamodb", 1).create_table(
            TableName="t",
            KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
            BillingMode="PAY_PER_REQUEST",
        )
        yield "t"


def add_one(client: Any, table: str) -> Any:
    return client.update_item(
        TableName=table,
        Key={"pk": {"S": "x"}},
        UpdateExpression="ADD n :one",
        ExpressionAttributeValues={":one": {"N": "1"}},
        ReturnValues="ALL_NEW",
    )


def stored(client: Any, table: str) -> int:
    item = client.get_item(TableName=table, Key={"pk": {"S": "x"}}).get("Item")
    return int(item["n"]["N"]) if item else 0


def test_a_connect_timeout_applies_nothing(table: str) -> None:
    client = client_of("dynamodb", 1)
    with inject(client, "UpdateItem", [connect_timeout()]), pytest.raises(ConnectTimeoutError):
        add_one(client, table)
    assert stored(client, table) == 0


def test_a_read_timeout_applies_the_call_and_loses_the_reply(table: str) -> None:
    client = client_of("dynamodb", 1)
    with inject(client, "UpdateItem", [read_timeout()]), pytest.raises(ReadTimeoutError):
        add_one(client, table)
    assert stored(client, table) == 1


def test_the_sdk_repeats_what_it_believes_lost(table: str) -> None:
    client = client_of("dynamodb", 3)
    with inject(client, "UpdateItem", [read_timeout()]) as injection:
        reply = add_one(client, table)
    assert (injection.attempts, injection.struck) == (2, 1)
    assert reply["Attributes"]["n"]["N"] == "2"
    assert reply["ResponseMetadata"]["RetryAttempts"] == 1


def test_the_sdk_repeats_a_throttled_call_as_often_as_it_is_told_to(table: str) -> None:
    client = client_of("dynamodb", 2)
    throttle = refused("ProvisionedThroughputExceededException")
    with inject(client, "UpdateItem", [throttle, throttle, through()]) as injection:
        with pytest.raises(client.exceptions.ProvisionedThroughputExceededException):
            add_one(client, table)
        add_one(client, table)
    assert (injection.attempts, injection.struck) == (3, 3)
    assert stored(client, table) == 1


def test_a_refusal_carries_what_the_service_would_say(table: str) -> None:
    client = client_of("dynamodb", 1)
    reasons = [{"Code": "None"}, {"Code": "TransactionConflict", "Message": "ongoing"}]
    put = {"Put": {"TableName": table, "Item": {"pk": {"S": "x"}}}}
    conflict = refused("TransactionCanceledException", CancellationReasons=reasons)
    with inject(client, "TransactWriteItems", [conflict]), pytest.raises(ClientError) as raised:
        client.transact_write_items(TransactItems=[put])
    assert raised.value.response["CancellationReasons"] == reasons
    assert raised.value.response["Error"]["Code"] == "TransactionCanceledException"
    assert "Item" not in client.get_item(TableName=table, Key={"pk": {"S": "x"}})


def test_a_reply_can_be_made_up_or_changed(table: str) -> None:
    client = client_of("dynamodb", 1)
    with inject(client, "UpdateItem", [replaced({"Attributes": {"n": {"N": "9"}}}), edited(lambda _reply: {"Attributes": {}})]):
        assert add_one(client, table)["Attributes"]["n"]["N"] == "9"
        assert stored(client, table) == 0
        assert add_one(client, table)["Attributes"] == {}
        assert stored(client, table) == 1


def test_other_operations_and_later_attempts_pass(table: str) -> None:
    client = client_of("dynamodb", 1)
    injection = inject(client, "UpdateItem", [connect_timeout(), connect_timeout()])
    assert stored(client, table) == 0
    with pytest.raises(ConnectTimeoutError):
        add_one(client, table)
    injection.remove()
    add_one(client, table)
    assert (injection.attempts, injection.struck) == (1, 1)
    assert stored(client, table) == 1


def test_two_injections_into_one_client_both_hold(table: str) -> None:
    client = client_of("dynamodb", 1)
    with inject(client, "UpdateItem", [connect_timeout()]), inject(client, "GetItem", [read_timeout()]):
        with pytest.raises(ConnectTimeoutError):
            add_one(client, table)
        with pytest.raises(ReadTimeoutError):
            stored(client, table)


def test_a_call_can_be_held_on_its_way(table: str) -> None:
    client = client_of("dynamodb", 1)
    arrived, go_on = threading.Event(), threading.Event()
    with inject(client, "UpdateItem", [held(arrived, go_on)]):
        late = threading.Thread(target=add_one, args=(client, table))
        late.start()
        assert arrived.wait(10)
        assert stored(client, table) == 0
        go_on.set()
        late.join(10)
    assert stored(client, table) == 1


def test_an_operation_the_service_does_not_have_is_refused() -> None:
    with pytest.raises(ValueError, match="UpdateItems"):
        inject(client_of("dynamodb", 1), "UpdateItems", [])
