"""SQS as an event source: receives with the queue's own visibility timeout, invokes, deletes what did not fail.

https://docs.aws.amazon.com/lambda/latest/dg/with-sqs.html
"""

from __future__ import annotations

import base64
import json
import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from ringfence.local.event_sources import SqsMapping
from ringfence.local.invocation import Outcome
from ringfence.local.sources.batch_response import failed_items
from ringfence.local.sources.pulse import Pulse

_log = logging.getLogger(__name__)

_MOST_PER_CALL = 10
"""https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ReceiveMessage.html"""
_FAULT_PAUSE_SECONDS = 1.0


class SqsSource:
    """One mapping: ``pollers`` threads, each with at most one batch at a time, so that many batches are in flight at once."""

    def __init__(
        self, mapping: SqsMapping, sqs: Any, region: str, pollers: int, invoke: Callable[[bytes], Outcome], pulse: Pulse
    ) -> None:
        self._mapping, self._sqs, self._region, self._invoke, self._pulse = mapping, sqs, region, invoke, pulse
        self._url: str = sqs.get_queue_url(QueueName=mapping.arn.rpartition(":")[2])["QueueUrl"]
        self._looking = threading.Lock()
        """Held by the poller that waits for messages: of an empty queue one question is enough."""
        names = [f"{mapping.name}-{n}" for n in range(pollers)]
        self._threads = [threading.Thread(target=self._poll, name=name, daemon=True) for name in names]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def join(self) -> None:
        for thread in self._threads:
            thread.join()

    def _poll(self) -> None:
        while not self._pulse.stopped():
            try:
                with self._looking:
                    messages = self._await_messages()
                if messages:
                    self._handle(self._filled(messages))
            except (BotoCoreError, ClientError) as fault:
                if not self._pulse.stopped():
                    _log.warning("%s: %s", self._mapping.name, fault)
                self._pulse.pause(_FAULT_PAUSE_SECONDS)

    def _await_messages(self) -> list[dict[str, Any]]:
        """The next messages; none at the end."""
        idle_rounds = 0
        while not self._pulse.stopped():
            since = self._pulse.beats
            if messages := self._receive(self._mapping.batch_size):
                return messages
            idle_rounds += 1
            self._pulse.wait(since, idle_rounds)
        return []

    def _filled(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Up to a batch of messages, with what comes within the window after the first."""
        ends = time.monotonic() + self._mapping.window_seconds
        while len(messages) < self._mapping.batch_size and time.monotonic() < ends and not self._pulse.stopped():
            self._pulse.wait(self._pulse.beats, 0)
            messages += self._receive(self._mapping.batch_size - len(messages))
        return messages

    def _receive(self, most: int) -> list[dict[str, Any]]:
        # No long poll: behind moto's one lock it would keep everybody else waiting.
        answer = self._sqs.receive_message(
            QueueUrl=self._url,
            MaxNumberOfMessages=min(most, _MOST_PER_CALL),
            MessageSystemAttributeNames=["All"],
            MessageAttributeNames=["All"],
            WaitTimeSeconds=0,
        )
        messages: list[dict[str, Any]] = answer.get("Messages", [])
        return messages

    def _handle(self, messages: Sequence[dict[str, Any]]) -> None:
        event = {"Records": [self._record(message) for message in messages]}
        outcome = self._invoke(json.dumps(event).encode())
        failed = failed_items(outcome, [message["MessageId"] for message in messages], self._mapping.reports_failures)
        if failed is None:
            # Nothing is deleted: they come again when their visibility timeout ends.
            if not self._pulse.stopped():
                _log.warning("%s: a batch of %d failed: %s", self._mapping.name, len(messages), outcome.told())
            return
        self._delete([message for message in messages if message["MessageId"] not in failed])

    def _delete(self, messages: Sequence[dict[str, Any]]) -> None:
        for first in range(0, len(messages), _MOST_PER_CALL):
            entries = [
                {"Id": str(n), "ReceiptHandle": message["ReceiptHandle"]}
                for n, message in enumerate(messages[first : first + _MOST_PER_CALL])
            ]
            answer = self._sqs.delete_message_batch(QueueUrl=self._url, Entries=entries)
            for failed in answer.get("Failed", ()):
                _log.info("%s: not deleted: %s %s", self._mapping.name, failed.get("Code"), failed.get("Message"))

    def _record(self, message: dict[str, Any]) -> dict[str, Any]:
        return {
            "messageId": message["MessageId"],
            "receiptHandle": message["ReceiptHandle"],
            "body": message["Body"],
            "attributes": message.get("Attributes", {}),
            "messageAttributes": {name: _attribute(value) for name, value in message.get("MessageAttributes", {}).items()},
            "md5OfBody": message.get("MD5OfBody", ""),
            "eventSource": "aws:sqs",
            "eventSourceARN": self._mapping.arn,
            "awsRegion": self._region,
        }


def _attribute(value: dict[str, Any]) -> dict[str, Any]:
    attribute: dict[str, Any] = {"dataType": value["DataType"], "stringListValues": [], "binaryListValues": []}
    if "StringValue" in value:
        attribute["stringValue"] = value["StringValue"]
    if "BinaryValue" in value:
        attribute["binaryValue"] = base64.b64encode(value["BinaryValue"]).decode()
    return attribute
