"""The log on Kinesis Data Streams."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from ringfence.aws.chunks import chunks
from ringfence.aws.failures import FAILURES, code_of, may_pass
from ringfence.ports import Clock, LogEntry, Telemetry
from ringfence.retry import Backoff, Pauses

MAX_RECORDS = 500
"""https://docs.aws.amazon.com/kinesis/latest/APIReference/API_PutRecords.html"""

MAX_REQUEST_BYTES = 4 * 1024 * 1024
"""PutRecords takes 10 MiB, 5 until 2025 and on most emulators; a shard takes 1 MB a second: larger requests gain nothing."""

ATTEMPTS = 6
BACKOFF = Backoff(base_seconds=0.05, cap_seconds=1.0)

BUDGET_SECONDS = 3.0
"""No call starts later than this after the first: an HTTP client is waiting, and its 503 says when to come again."""


class KinesisLog:
    """Appends with PutRecords. A record whose reply was lost may be in the log twice: its jobs' ids make that harmless.

    Records of one partition key keep their order only while none of them has to be sent again.
    """

    def __init__(
        self,
        client: Any,
        stream: str,
        clock: Clock,
        random_source: random.Random | None = None,
        telemetry: Telemetry | None = None,
    ) -> None:
        self._client, self._stream = client, stream
        self._clock, self._random = clock, random_source or random.Random()
        self._telemetry = telemetry

    def append(self, entries: Sequence[LogEntry]) -> list[str | None]:
        """See `ringfence.ports.Log.append`. Takes at most about `BUDGET_SECONDS` and one call's timeouts."""
        attempt = _Append(self._client, self._stream, entries, self._clock.monotonic() + BUDGET_SECONDS, self._clock)
        pauses = Pauses(BACKOFF, self._clock, self._random, seconds=BUDGET_SECONDS, tries=ATTEMPTS)
        while True:
            attempt.put_pending()
            if not attempt.pending:
                break
            if attempt.hopeless or not pauses.another_try():
                self._tell_failed(attempt)
                break
        return attempt.sequences

    def _tell_failed(self, attempt: _Append) -> None:
        if self._telemetry is not None:
            self._telemetry.event(
                "aws_call_failed",
                operation="PutRecords",
                stream=self._stream,
                reason=attempt.reason,
                count=len(attempt.pending),
            )


class _Append:
    """One call of `KinesisLog.append`: what has its sequence number, and what has yet to get one."""

    def __init__(self, client: Any, stream: str, entries: Sequence[LogEntry], give_up_at: float, clock: Clock) -> None:
        self._client, self._stream, self._entries = client, stream, entries
        self._give_up_at, self._clock = give_up_at, clock
        self.sequences: list[str | None] = [None] * len(entries)
        self.pending = list(range(len(entries)))
        self.reason = ""
        self.hopeless = False
        """The service said no in a way that asking again will not change."""

    def put_pending(self) -> None:
        """Send every pending entry once, in as few requests as the limits allow."""
        for chunk in list(chunks(self.pending, self._bytes_of, max_items=MAX_RECORDS, max_bytes=MAX_REQUEST_BYTES)):
            if self.hopeless or self._clock.monotonic() > self._give_up_at:
                break
            self._put(chunk)
        self.pending = [index for index in self.pending if self.sequences[index] is None]

    def _put(self, chunk: Sequence[int]) -> None:
        records = [{"Data": self._entries[i].data, "PartitionKey": self._entries[i].partition_key} for i in chunk]
        try:
            reply = self._client.put_records(StreamName=self._stream, Records=records)
        except FAILURES as failure:
            self.reason, self.hopeless = code_of(failure), not may_pass(failure)
            return
        # Answers come in the order of the request, whatever has become of each.
        for index, answer in zip(chunk, reply["Records"], strict=True):
            if answer.get("SequenceNumber") and not answer.get("ErrorCode"):
                self.sequences[index] = answer["SequenceNumber"]
            else:
                self.reason = answer.get("ErrorCode") or "no sequence number"

    def _bytes_of(self, index: int) -> int:
        entry = self._entries[index]
        return len(entry.data) + len(entry.partition_key.encode())
