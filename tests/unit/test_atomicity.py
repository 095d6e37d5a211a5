"""The check of the test bed: quiet over a sound one, and loud over each way in which one can be unsound."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import boto3
import pytest
from moto import mock_aws

from ringfence.testing.atomicity import anomalies

Call = Callable[..., Any]

SESSION = boto3.session.Session("testing", "testing", region_name="us-east-1")


class Bed:
    """A boto3 client of moto's, one call at a time, with one operation that does something else."""

    def __init__(self, client: Any, operation: str = "", instead: Callable[[Call], Call] = lambda real: real) -> None:
        self._client, self._turn = client, threading.Lock()
        self._unsound = {operation: instead(getattr(client, operation))} if operation else {}

    def __getattr__(self, name: str) -> Any:
        call = self._unsound.get(name, getattr(self._client, name))

        def one_at_a_time(*args: Any, **kwargs: Any) -> Any:
            with self._turn:
                return call(*args, **kwargs)

        return one_at_a_time


@pytest.fixture
def clients() -> Iterator[tuple[Any, Any]]:
    with mock_aws():
        yield SESSION.client("dynamodb"), SESSION.client("sqs")


def found(dynamodb: Any, sqs: Any) -> str:
    return "; ".join(anomalies(dynamodb, sqs, rounds=2, writers=3, messages=10))


def without_condition(real: Call) -> Call:
    return lambda **asked: real(**{key: value for key, value in asked.items() if key != "ConditionExpression"})


def without_conditions(real: Call) -> Call:
    def call(TransactItems: list[dict[str, Any]]) -> Any:
        for item in TransactItems:
            item["Put"].pop("ConditionExpression")
        return real(TransactItems=TransactItems)

    return call


def nothing(_real: Call) -> Call:
    return lambda **_asked: {}


def read_too_early(real: Call) -> Call:
    """An addition that answers with what was there before it."""

    def call(**asked: Any) -> Any:
        reply = real(**asked)
        if "additions" in reply.get("Attributes", {}):
            reply["Attributes"]["additions"]["N"] = str(int(reply["Attributes"]["additions"]["N"]) // 2)
        return reply

    return call


def not_hidden(real: Call) -> Call:
    """The first messages that are handed out are so twice."""
    handed_out: list[Any] = []

    def call(**asked: Any) -> Any:
        if len(handed_out) == 1:
            handed_out.append(handed_out[0])
            return handed_out[0]
        handed_out.append(real(**asked))
        return handed_out[-1]

    return call


def forgetful(real: Call) -> Call:
    """Every batch loses its first message."""
    return lambda QueueUrl, Entries: real(QueueUrl=QueueUrl, Entries=Entries[1:])


def test_c47_a_sound_bed_has_no_anomalies_and_is_left_as_it_was(clients: tuple[Any, Any]) -> None:
    dynamodb, sqs = clients
    assert found(Bed(dynamodb), Bed(sqs)) == ""
    assert dynamodb.list_tables()["TableNames"] == []
    assert sqs.list_queues().get("QueueUrls", []) == []


@pytest.mark.parametrize(
    ("operation", "instead", "told"),
    [
        ("put_item", without_condition, "put-if-absent: 3 winners in round 0"),
        ("update_item", without_condition, "conditional update: 3 winners in round 1"),
        ("transact_write_items", without_conditions, "transaction: 3 winners in round 0"),
        ("transact_write_items", nothing, "a write was lost: both-a-1 is not there"),
        ("update_item", read_too_early, "addition: 6 of them gave [0, 1, 1, 2, 2, 3]"),
    ],
)
def test_c47_a_table_that_is_not_atomic_is_found_out(
    clients: tuple[Any, Any], operation: str, instead: Callable[[Call], Call], told: str
) -> None:
    dynamodb, sqs = clients
    assert told in found(Bed(dynamodb, operation, instead), Bed(sqs))


@pytest.mark.parametrize(
    ("operation", "instead", "told"),
    [
        ("receive_message", not_hidden, "was received 2 times"),
        ("send_message_batch", forgetful, "never received: ['message 0']"),
    ],
)
def test_c47_a_queue_that_is_not_atomic_is_found_out(
    clients: tuple[Any, Any], operation: str, instead: Callable[[Call], Call], told: str
) -> None:
    dynamodb, sqs = clients
    assert told in found(Bed(dynamodb), Bed(sqs, operation, instead))
