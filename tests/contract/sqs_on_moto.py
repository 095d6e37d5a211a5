"""Queues of moto, in this process, that live by a test's clock, and a client that takes receipts as SQS does."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import moto.sqs.models
import pytest

from ringfence.memory.clock import ManualClock


def live_by(clock: ManualClock, patch: pytest.MonkeyPatch) -> None:
    """No test has to wait. A little passes at each look: moto shows a message only after its time, not at it."""
    looks = itertools.count()
    patch.setattr(moto.sqs.models, "unix_time", lambda: clock.now() / 1000)
    patch.setattr(moto.sqs.models, "unix_time_millis", lambda: clock.now() + next(looks) / 1000)


class WithReceiptsOfSqs:
    """moto's client for one queue, but for receipts whose lease is over. moto takes them: a late extension steals the message
    back, a late delete removes it from under whoever has it now. SQS says that the message is not in flight, or does nothing.

    https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ChangeMessageVisibility.html
    https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_DeleteMessage.html
    """

    def __init__(self, client: Any, clock: ManualClock) -> None:
        self._client, self._clock = client, clock
        self._message_of: dict[str, str] = {}
        """By receipt."""
        self._latest: dict[str, tuple[str, float]] = {}
        """By message, its newest receipt and when that lease ends."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def receive_message(self, **request: Any) -> Any:
        reply = self._client.receive_message(**request)
        for message in reply.get("Messages", ()):
            self._message_of[message["ReceiptHandle"]] = message["MessageId"]
            self._hold(message["ReceiptHandle"], request["VisibilityTimeout"])
        return reply

    def change_message_visibility_batch(self, *, QueueUrl: str, Entries: Sequence[Mapping[str, Any]]) -> Any:
        held = [entry for entry in Entries if self._is_latest(entry) and self._ends_at(entry) > self._clock.monotonic()]
        reply = self._carry_out(self._client.change_message_visibility_batch, QueueUrl, held)
        for entry in held:
            self._hold(entry["ReceiptHandle"], entry["VisibilityTimeout"])
        code = "AWS.SimpleQueueService.MessageNotInflight"
        failed = [{"Id": entry["Id"], "Code": code, "SenderFault": True} for entry in Entries if entry not in held]
        return {**reply, "Failed": [*reply.get("Failed", ()), *failed]}

    def delete_message_batch(self, *, QueueUrl: str, Entries: Sequence[Mapping[str, Any]]) -> Any:
        latest = [entry for entry in Entries if self._is_latest(entry)]
        reply = self._carry_out(self._client.delete_message_batch, QueueUrl, latest)
        done = [{"Id": entry["Id"]} for entry in Entries if entry not in latest]
        return {**reply, "Successful": [*reply.get("Successful", ()), *done]}

    def _carry_out(self, call: Any, url: str, entries: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
        return call(QueueUrl=url, Entries=entries) if entries else {}

    def _hold(self, receipt: str, seconds: float) -> None:
        self._latest[self._message_of[receipt]] = receipt, self._clock.monotonic() + seconds

    def _is_latest(self, entry: Mapping[str, Any]) -> bool:
        return self._latest[self._message_of[entry["ReceiptHandle"]]][0] == entry["ReceiptHandle"]

    def _ends_at(self, entry: Mapping[str, Any]) -> float:
        return self._latest[self._message_of[entry["ReceiptHandle"]]][1]
