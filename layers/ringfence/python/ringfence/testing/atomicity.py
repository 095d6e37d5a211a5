"""Is the test bed itself atomic? Asked before any fault test, so that an emulator's race is not taken for the product's.

moto's threads, for one, let two writers win one put-if-absent (measured), and every promise of fencing then breaks by itself.
"""

from __future__ import annotations

import functools
import threading
import uuid
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from botocore.exceptions import ClientError

Answer = TypeVar("Answer")

ROUNDS = 10
WRITERS = 8
"""Ten rounds of eight show the races of moto without its lock in most runs, and take one to three seconds."""
MESSAGES = 30
_FILLERS = 200
"""Items that lie about: moto copies the table for each transaction, and the longer that takes the more comes between."""
_BATCH = 10
"""Messages per call. https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ReceiveMessage.html"""
_HIDDEN_SECONDS = 120
"""Longer than the check takes: a message seen twice was not hidden."""


def anomalies(dynamodb: Any, sqs: Any, *, rounds: int = ROUNDS, writers: int = WRITERS, messages: int = MESSAGES) -> list[str]:
    """What this DynamoDB and SQS (boto3's low-level clients) do with concurrent calls that AWS's never do; empty when sound.

    Makes a table and a queue of its own, and removes them.
    """
    name = f"ringfence-test-bed-{uuid.uuid4().hex[:12]}"
    dynamodb.create_table(
        TableName=name,
        BillingMode="PAY_PER_REQUEST",
        KeySchema=[{"AttributeName": "pk", "KeyType": "HASH"}],
        AttributeDefinitions=[{"AttributeName": "pk", "AttributeType": "S"}],
    )
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    try:
        dynamodb.get_waiter("table_exists").wait(TableName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 30})
        _fill(dynamodb, name)
        with ThreadPoolExecutor(writers) as pool:
            crowd = _Crowd(pool, writers)
            return [*_table_anomalies(dynamodb, name, crowd, rounds), *_queue_anomalies(sqs, url, crowd, messages)]
    finally:
        dynamodb.delete_table(TableName=name)
        sqs.delete_queue(QueueUrl=url)


class _Crowd:
    """Threads that start at the same moment."""

    def __init__(self, pool: ThreadPoolExecutor, size: int) -> None:
        self._pool, self._size = pool, size

    def at_once(self, act: Callable[[int], Answer]) -> list[Answer]:
        """The answers of all; each is given its number, from 0."""
        start = threading.Barrier(self._size)

        def together(number: int) -> Answer:
            start.wait()
            return act(number)

        return [future.result() for future in [self._pool.submit(together, number) for number in range(self._size)]]


# --- DynamoDB --------------------------------------------------------------------------------------------------------


def _table_anomalies(dynamodb: Any, table: str, crowd: _Crowd, rounds: int) -> list[str]:
    contests = _Contests(dynamodb, table)
    found: list[str] = []
    counted: list[int] = []
    for number in range(rounds):
        outcomes = crowd.at_once(functools.partial(contests.enter, number))
        for contest in contests.names:
            winners = sum(outcome[contest] for outcome in outcomes)
            if winners != 1:
                found.append(f"{contest}: {winners} winners in round {number}")
        found += contests.lost(number)
        counted += [outcome["addition"] for outcome in outcomes]
    if sorted(counted) != list(range(1, len(counted) + 1)):
        found.append(f"addition: {len(counted)} of them gave {sorted(counted)}")
    return found


class _Contests:
    """Writes of which one only may win, and an addition that must not be lost, all at the same time."""

    names = ("put-if-absent", "conditional update", "transaction")

    def __init__(self, dynamodb: Any, table: str) -> None:
        self._dynamodb, self._table = dynamodb, table
        self._acts: list[tuple[str, Callable[[int], int]]] = [
            ("put-if-absent", self._put_if_absent),
            ("conditional update", self._update_if_first),
            ("transaction", self._put_both),
            ("addition", self._add_one),
        ]

    def enter(self, number: int, writer: int) -> dict[str, int]:
        """One writer's part in a round: 1 for what it won, and what the counter was after its addition."""
        first = writer % len(self._acts)  # each begins with another, so that different ones meet
        return {name: act(number) for name, act in self._acts[first:] + self._acts[:first]}

    def lost(self, number: int) -> list[str]:
        """What was won in this round, and is not there."""
        keys = [f"put-{number}", f"update-{number}", f"both-a-{number}", f"both-b-{number}"]
        asked = {self._table: {"Keys": [{"pk": {"S": key}} for key in keys], "ConsistentRead": True}}
        there = self._dynamodb.batch_get_item(RequestItems=asked)["Responses"][self._table]
        missing = sorted(set(keys) - {item["pk"]["S"] for item in there})
        return [f"a write was lost: {key} is not there" for key in missing]

    def _put_if_absent(self, number: int) -> int:
        return _wins(lambda: self._dynamodb.put_item(**self._new(f"put-{number}")))

    def _update_if_first(self, number: int) -> int:
        update = {"UpdateExpression": "ADD wins :one", "ConditionExpression": "attribute_not_exists(wins)"}
        return _wins(lambda: self._dynamodb.update_item(**self._one(f"update-{number}"), **update))

    def _put_both(self, number: int) -> int:
        puts = [{"Put": self._new(f"both-{half}-{number}")} for half in ("a", "b")]
        return _wins(lambda: self._dynamodb.transact_write_items(TransactItems=puts))

    def _add_one(self, _number: int) -> int:
        update = {"UpdateExpression": "ADD additions :one", "ReturnValues": "UPDATED_NEW"}
        reply = self._dynamodb.update_item(**self._one("counter"), **update)
        return int(reply["Attributes"]["additions"]["N"])

    def _new(self, key: str) -> dict[str, Any]:
        return {"TableName": self._table, "Item": {"pk": {"S": key}}, "ConditionExpression": "attribute_not_exists(pk)"}

    def _one(self, key: str) -> dict[str, Any]:
        return {"TableName": self._table, "Key": {"pk": {"S": key}}, "ExpressionAttributeValues": {":one": {"N": "1"}}}


def _fill(dynamodb: Any, table: str) -> None:
    for first in range(
        0, _FILLERS, 25
    ):  # https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchWriteItem.html
        puts = [{"PutRequest": {"Item": {"pk": {"S": f"filler-{n}"}}}} for n in range(first, first + 25)]
        while puts:
            puts = dynamodb.batch_write_item(RequestItems={table: puts}).get("UnprocessedItems", {}).get(table, [])


def _wins(write: Callable[[], Any]) -> int:
    """1 if the write's condition held, else 0. A conflict says nothing yet, so it is sent again."""
    while True:
        try:
            write()
        except ClientError as failure:
            code = failure.response["Error"]["Code"]
            reasons = {reason.get("Code") for reason in failure.response.get("CancellationReasons", ())}
            if code == "ConditionalCheckFailedException" or "ConditionalCheckFailed" in reasons:
                return 0
            if code != "TransactionConflictException" and "TransactionConflict" not in reasons:
                raise
        else:
            return 1


# --- SQS -------------------------------------------------------------------------------------------------------------


def _queue_anomalies(sqs: Any, url: str, crowd: _Crowd, messages: int) -> list[str]:
    sent = [f"message {number}" for number in range(messages)]
    for first in range(0, messages, _BATCH):
        entries = [{"Id": str(n), "MessageBody": body} for n, body in enumerate(sent[first : first + _BATCH])]
        sqs.send_message_batch(QueueUrl=url, Entries=entries)
    received = Counter(body for bodies in crowd.at_once(lambda _: _receive_all(sqs, url)) for body in bodies)
    found = [f"queue: {body!r} was received {count} times" for body, count in received.items() if count > 1]
    if lost := sorted(set(sent) - set(received)):
        found.append(f"queue: never received: {lost}")
    return found


def _receive_all(sqs: Any, url: str) -> Sequence[str]:
    """The bodies of what one receiver gets until there is nothing left."""
    bodies: list[str] = []
    while True:
        # Few at a time, so that the receivers meet. With a wait, real SQS asks all of its servers before it says "none".
        reply = sqs.receive_message(QueueUrl=url, MaxNumberOfMessages=2, VisibilityTimeout=_HIDDEN_SECONDS, WaitTimeSeconds=0)
        if not reply.get("Messages"):
            return bodies
        bodies += [message["Body"] for message in reply["Messages"]]
