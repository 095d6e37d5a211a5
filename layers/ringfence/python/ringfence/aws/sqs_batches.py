"""SQS's batch calls: ten entries at a time, each with an outcome of its own."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ringfence.aws.chunks import chunks
from ringfence.aws.failures import FAILURES, THROTTLES, code_of, short_code
from ringfence.ports import Clock, Telemetry
from ringfence.retry import Backoff, Pauses

MAX_ENTRIES = 10
"""https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_SendMessageBatch.html"""

MAX_REQUEST_BYTES = 256 * 1024
"""All bodies of a batch together: 1 MiB since August 2025, but a queue may still be set to the old 256 KiB."""

ENTRY_ATTEMPTS = 3
BACKOFF = Backoff(base_seconds=0.05, cap_seconds=0.5)
"""Of the entries that SQS itself failed to handle. A whole call that fails has been repeated by the SDK already."""

_STALE = frozenset({"MessageNotInflight", "ReceiptHandleIsInvalid"})


@dataclass(frozen=True, slots=True)
class EntryFailure:
    """The entry at ``index`` was not carried out."""

    index: int
    code: str
    message: str = ""
    ours: bool = False
    """The entry itself was at fault: sending it again would not help."""

    @property
    def stale(self) -> bool:
        """The receipt is of a lease that is over. An ended handle is reported as a bad parameter.

        https://repost.aws/knowledge-center/sqs-receipt-handle-error
        """
        return self.code in _STALE or (self.code == "InvalidParameterValue" and "ReceiptHandle" in self.message)

    @property
    def beyond_ceiling(self) -> bool:
        """The visibility timeout asked for would end later than twelve hours after the receive."""
        return self.code == "InvalidParameterValue" and "VisibilityTimeout" in self.message and not self.stale


class Batches:
    """Sends entries to one queue and answers by index."""

    def __init__(self, url: str, name: str, clock: Clock, random_source: random.Random, telemetry: Telemetry | None) -> None:
        self._url, self._name = url, name
        self._clock, self._random, self._telemetry = clock, random_source, telemetry

    def send(
        self, call: Callable[..., Mapping[str, Any]], operation: str, entries: Sequence[Mapping[str, Any]]
    ) -> list[EntryFailure]:
        """Returns the entries that were not carried out, in order. After a call that fails as a whole the rest is not tried."""
        failures: list[EntryFailure] = []
        raised: Exception | None = None
        indices = range(len(entries))
        for chunk in chunks(indices, lambda i: _bytes_of(entries[i]), max_items=MAX_ENTRIES, max_bytes=MAX_REQUEST_BYTES):
            if raised is not None:
                failures += _all_failed(chunk, raised)
                continue
            failed, raised = self._send_chunk(call, entries, chunk)
            failures += failed
        self._tell(operation, failures)
        return sorted(failures, key=lambda failure: failure.index)

    def _send_chunk(
        self, call: Callable[..., Mapping[str, Any]], entries: Sequence[Mapping[str, Any]], chunk: Sequence[int]
    ) -> tuple[list[EntryFailure], Exception | None]:
        """The entries that failed, and what the call itself raised, if it did."""
        final: list[EntryFailure] = []
        pending = list(chunk)
        pauses = Pauses(BACKOFF, self._clock, self._random, tries=ENTRY_ATTEMPTS)
        while True:
            try:
                reply = call(QueueUrl=self._url, Entries=[{"Id": str(index), **entries[index]} for index in pending])
            except FAILURES as failure:
                return final + _all_failed(pending, failure), failure
            failures = _failures(reply, pending)
            passing = [failure for failure in failures if not failure.ours]
            final += [failure for failure in failures if failure.ours]
            if not passing or not pauses.another_try():
                return final + passing, None
            pending = [failure.index for failure in passing]

    def _tell(self, operation: str, failures: Sequence[EntryFailure]) -> None:
        worth_telling = [failure for failure in failures if not failure.stale]
        if self._telemetry is None or not worth_telling:
            return
        reasons = ", ".join(sorted({failure.code for failure in worth_telling}))
        self._telemetry.event(
            "aws_call_failed", operation=operation, queue=self._name, reason=reasons, count=len(worth_telling)
        )


def _all_failed(indices: Sequence[int], raised: Exception) -> list[EntryFailure]:
    return [EntryFailure(index, code_of(raised), str(raised)) for index in indices]


def _failures(reply: Mapping[str, Any], sent: Sequence[int]) -> list[EntryFailure]:
    """Whatever was not reported as carried out has failed, said or not."""
    done = {entry["Id"] for entry in reply.get("Successful", [])}
    said = {entry["Id"]: entry for entry in reply.get("Failed", [])}
    return [_failure(index, said.get(str(index), {})) for index in sent if str(index) not in done]


def _failure(index: int, said: Mapping[str, Any]) -> EntryFailure:
    code = short_code(said.get("Code") or "NotReported")
    ours = bool(said.get("SenderFault")) and code not in THROTTLES
    return EntryFailure(index, code, said.get("Message") or "", ours)


def _bytes_of(entry: Mapping[str, Any]) -> int:
    return sum(len(value.encode()) for value in entry.values() if isinstance(value, str))
