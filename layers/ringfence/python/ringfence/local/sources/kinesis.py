"""Kinesis as an event source: each shard read in order, one batch at a time, children after their parents.

https://docs.aws.amazon.com/lambda/latest/dg/with-kinesis.html
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError

from ringfence.local.event_sources import KinesisMapping
from ringfence.local.invocation import Outcome
from ringfence.local.sources.batch_response import failed_items
from ringfence.local.sources.failed_batches import Condition, FailedBatches
from ringfence.local.sources.kinesis_batch import Piece, Record, after, event_of, fitting, too_old
from ringfence.local.sources.pulse import Pulse

_log = logging.getLogger(__name__)

_RETRY_SECONDS = (0.2, 10.0)
"""The first and the longest pause before a batch is tried again."""
_FAULT_PAUSE_SECONDS = 1.0
_RELIST_SECONDS = 5.0
"""How often shards are listed, for one that was closed without an end (moto's never end)."""


class KinesisSource:
    """One mapping. ``checkpoints`` tells, shard by shard, the last sequence number that is done with."""

    def __init__(
        self,
        mapping: KinesisMapping,
        kinesis: Any,
        invoke: Callable[[bytes], Outcome],
        failed: FailedBatches,
        pulse: Pulse,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.mapping, self.kinesis, self.invoke, self.failed, self.pulse, self.now = (
            mapping,
            kinesis,
            invoke,
            failed,
            pulse,
            now,
        )
        self._shards: dict[str, _Shard] = {}
        self._look = threading.Event()
        self._thread = threading.Thread(target=self._follow, name=mapping.name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        self._look.set()
        self._thread.join()
        for shard in list(self._shards.values()):
            shard.thread.join()

    @property
    def checkpoints(self) -> Mapping[str, str]:
        return {name: shard.checkpoint for name, shard in self._shards.items() if shard.checkpoint}

    def shard_ended(self) -> None:
        self._look.set()

    def _follow(self) -> None:
        """Starts a reader for every shard whose parents have been read to their end, and goes on looking for new ones."""
        position = self.mapping.starting_position
        while not self.pulse.stopped():
            self._look.clear()
            try:
                self._start_readers(self._list_shards(), position)
                # A shard that appears later is read from its beginning: nothing in it is older than the mapping.
                position = "TRIM_HORIZON"
            except (BotoCoreError, ClientError) as fault:
                _log.warning("%s: %s", self.mapping.name, fault)
            self._look.wait(_RELIST_SECONDS)

    def _list_shards(self) -> list[dict[str, Any]]:
        asked: dict[str, Any] = {"StreamName": self.mapping.arn.rpartition("/")[2]}
        shards: list[dict[str, Any]] = []
        while True:
            answer = self.kinesis.list_shards(**asked)
            shards += answer["Shards"]
            if not answer.get("NextToken"):
                return shards
            asked = {"NextToken": answer["NextToken"]}

    def _start_readers(self, listed: Sequence[dict[str, Any]], position: str) -> None:
        there = {shard["ShardId"] for shard in listed}
        for name, known in self._shards.items():
            known.forgotten = name not in there
        for shard in listed:
            name = shard["ShardId"]
            parents = {shard.get("ParentShardId"), shard.get("AdjacentParentShardId")} & there
            if name not in self._shards and all(parent in self._shards and self._shards[parent].ended for parent in parents):
                self._shards[name] = _Shard(self, name, position)
                self._shards[name].thread.start()
            if name in self._shards and "EndingSequenceNumber" in shard.get("SequenceNumberRange", {}):
                self._shards[name].closed = True


class _Shard:
    """Reads one shard."""

    def __init__(self, source: KinesisSource, name: str, position: str) -> None:
        self.name = name
        self.checkpoint: str | None = None
        self.closed = False
        """No more records will be added."""
        self.forgotten = False
        """No longer listed: its records are past their retention, or (MiniStack, after a split) thrown away."""
        self.ended = False
        """Closed, and everything that was in it is done with: its children may be read."""
        self.thread = threading.Thread(target=self._run, name=f"{source.mapping.name}-{name}", daemon=True)
        self._source, self._mapping, self._pulse = source, source.mapping, source.pulse
        self._start_at: dict[str, str] = {"ShardIteratorType": position}
        self._iterator: str | None = None
        self._read_all = False
        self._buffer: deque[Record] = deque()

    def _run(self) -> None:
        while not self._pulse.stopped():
            records = self._next_batch()
            if records:
                self._handle(Piece(records))
            elif self._read_all:
                self._ends()
                return

    def _ends(self) -> None:
        if not self.ended:
            self.ended = True
            self._source.shard_ended()

    # --- reading -------------------------------------------------------------------------------------------------------

    def _next_batch(self) -> tuple[Record, ...]:
        """The next batch, waiting for it; empty when there is none because of an end."""
        idle_rounds = 0
        window_ends: float | None = None
        while not self._pulse.stopped() and len(self._buffer) < self._mapping.batch_size and not self._read_all:
            since = self._pulse.beats
            read = self._read()
            if self._buffer and window_ends is None:
                window_ends = time.monotonic() + self._mapping.window_seconds
            if window_ends is not None and time.monotonic() >= window_ends:
                break
            if not read:
                idle_rounds += 1
                self._pulse.wait(since, 0 if self._buffer else idle_rounds)
        taken = fitting(tuple(self._buffer), self._mapping.batch_size)
        return tuple(self._buffer.popleft() for _ in range(taken))

    def _read(self) -> int:
        """Read once into the buffer. Returns the number of records."""
        kinesis = self._source.kinesis
        try:
            if self._iterator is None:
                stream = self._mapping.arn.rpartition("/")[2]
                answer = kinesis.get_shard_iterator(StreamName=stream, ShardId=self.name, **self._start_at)
                self._iterator = answer["ShardIterator"]
            closed = self.closed
            answer = kinesis.get_records(ShardIterator=self._iterator, Limit=self._mapping.batch_size)
        except (BotoCoreError, ClientError) as fault:
            self._iterator = None
            self._has_failed(fault)
            return 0
        records = [
            Record(each["SequenceNumber"], each["PartitionKey"], each["Data"], each["ApproximateArrivalTimestamp"])
            for each in answer["Records"]
        ]
        self._buffer.extend(records)
        if records:
            last = records[-1].sequence_number
            self._start_at = {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "StartingSequenceNumber": last}
        self._iterator = answer.get("NextShardIterator")
        self._read_all = self._iterator is None
        if closed and not self._buffer and not answer.get("MillisBehindLatest"):
            # moto's shards never end, and it still puts records into closed ones: the children may start, we go on reading.
            self._ends()
        return len(records)

    def _has_failed(self, fault: BotoCoreError | ClientError) -> None:
        code = fault.response["Error"]["Code"] if isinstance(fault, ClientError) else ""
        # An iterator lives five minutes; a fresh one goes on where the last record was read.
        if self._pulse.stopped() or code == "ExpiredIteratorException":
            return
        _log.warning("%s %s: %s", self._mapping.name, self.name, fault)
        if code == "ResourceNotFoundException" and self.forgotten:
            self._read_all = True
        else:
            self._pulse.pause(_FAULT_PAUSE_SECONDS)

    # --- invoking ------------------------------------------------------------------------------------------------------

    def _handle(self, batch: Piece) -> None:
        """Invoke until every record of the batch is done with or given up."""
        todo = deque([batch])
        while todo and not self._pulse.stopped():
            old, piece = too_old(todo.popleft(), self._source.now(), self._mapping.maximum_age_seconds)
            if old is not None:
                self._give_up(old, "RecordAgeExceeded", None)
            if piece is None:
                continue
            outcome = self._source.invoke(json.dumps(event_of(piece, self._mapping.arn, self.name)).encode())
            if self._pulse.stopped():
                return
            numbers = [record.sequence_number for record in piece.records]
            failed = failed_items(outcome, numbers, self._mapping.reports_failures)
            if outcome.error is not None:
                _log.warning("%s: a batch of %d failed: %s", self._mapping.name, len(numbers), outcome.told())
            step = after(piece, failed, bisects=self._mapping.bisects, maximum_retries=self._mapping.maximum_retries)
            if step.discarded is not None:
                self._give_up(step.discarded, "RetryAttemptsExhausted", outcome.error)
            todo.extendleft(reversed(step.todo))
            self._advance(piece, step.todo)
            if step.pause:
                first, longest = _RETRY_SECONDS
                self._pulse.pause(min(first * 2 ** min(step.todo[0].failures - 1, 10), longest))

    def _advance(self, piece: Piece, todo: Sequence[Piece]) -> None:
        """Move the checkpoint to the last record of ``piece`` that is not to be done again."""
        left = sum(len(each.records) for each in todo)
        if done := len(piece.records) - left:
            self.checkpoint = piece.records[done - 1].sequence_number

    def _give_up(self, piece: Piece, condition: Condition, error: str | None) -> None:
        """Keep it in the destination before passing over it."""
        while not self._pulse.stopped():
            try:
                self._source.failed.put(self.name, piece, condition, error)
            except (BotoCoreError, ClientError) as fault:
                _log.warning("%s: %s", self._mapping.name, fault)
                self._pulse.pause(_FAULT_PAUSE_SECONDS)
                continue
            _log.warning("%s: gave up %d records (%s)", self._mapping.name, len(piece.records), condition)
            self.checkpoint = piece.records[-1].sequence_number
            return
