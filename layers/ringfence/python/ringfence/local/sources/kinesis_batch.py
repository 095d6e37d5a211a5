"""What becomes of a batch of stream records after an invocation. Decisions only; `kinesis` carries them out.

https://docs.aws.amazon.com/lambda/latest/dg/kinesis-on-failure-destination.html
https://docs.aws.amazon.com/lambda/latest/dg/services-kinesis-batchfailurereporting.html
"""

from __future__ import annotations

import base64
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

MAX_EVENT_BYTES = 6 * 1024 * 1024
"""https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html"""
_ENVELOPE_BYTES = 1024
"""More than what an event holds of one record beside its data."""


@dataclass(frozen=True, slots=True)
class Record:
    """A record as it was read from a shard."""

    sequence_number: str
    partition_key: str
    data: bytes
    arrived: datetime

    @property
    def event_bytes(self) -> int:
        return len(self.data) * 4 // 3 + len(self.partition_key) + _ENVELOPE_BYTES


@dataclass(frozen=True, slots=True)
class Piece:
    """Records that are, or will be, one invocation; ``failures`` counts those that made no progress."""

    records: tuple[Record, ...]
    failures: int = 0


@dataclass(frozen=True, slots=True)
class Step:
    """``todo`` comes next, in this order; ``discarded`` is given up; ``pause`` if nothing was gained."""

    todo: tuple[Piece, ...] = ()
    discarded: Piece | None = None
    pause: bool = False


def after(piece: Piece, failed: Collection[str] | None, *, bisects: bool, maximum_retries: int) -> Step:
    """``failed``: sequence numbers that the function reported; None when it failed as a whole."""
    if failed is not None:
        first = next((n for n, record in enumerate(piece.records) if record.sequence_number in failed), None)
        if first is None:
            return Step()
        if first > 0:
            # The checkpoint moves to the first failure; the rest is a new batch.
            return Step((Piece(piece.records[first:]),))
    elif bisects and len(piece.records) > 1:
        # Splitting costs no retry, and is itself the way forward.
        middle = len(piece.records) // 2
        halves = piece.records[:middle], piece.records[middle:]
        return Step(tuple(Piece(half, piece.failures) for half in halves))
    again = Piece(piece.records, piece.failures + 1)
    if 0 <= maximum_retries < again.failures:
        return Step(discarded=again)
    return Step((again,), pause=True)


def too_old(piece: Piece, now: datetime, maximum_age_seconds: float) -> tuple[Piece | None, Piece | None]:
    """The piece in two: what has passed its age, and what has not. Negative: nothing is ever too old."""
    if maximum_age_seconds < 0:
        return None, piece
    old = [record for record in piece.records if (now - record.arrived).total_seconds() > maximum_age_seconds]
    if not old:
        return None, piece
    # Records of a shard are in the order of their arrival.
    rest = piece.records[len(old) :]
    return Piece(tuple(old), piece.failures), Piece(rest, piece.failures) if rest else None


def fitting(records: Sequence[Record], batch_size: int) -> int:
    """How many of these fit into one invocation: at least one, at most ``batch_size``, within `MAX_EVENT_BYTES`."""
    size = 0
    for n, record in enumerate(records[:batch_size]):
        size += record.event_bytes
        if n and size > MAX_EVENT_BYTES:
            return n
    return min(len(records), batch_size)


def event_of(piece: Piece, stream_arn: str, shard: str) -> dict[str, Any]:
    """The event that Lambda would send. https://docs.aws.amazon.com/lambda/latest/dg/with-kinesis.html"""
    return {
        "Records": [
            {
                "kinesis": {
                    "kinesisSchemaVersion": "1.0",
                    "partitionKey": record.partition_key,
                    "sequenceNumber": record.sequence_number,
                    "data": base64.b64encode(record.data).decode(),
                    "approximateArrivalTimestamp": record.arrived.timestamp(),
                },
                "eventSource": "aws:kinesis",
                "eventVersion": "1.0",
                "eventID": f"{shard}:{record.sequence_number}",
                "eventName": "aws:kinesis:record",
                "invokeIdentityArn": "arn:aws:iam::000000000000:role/ringfence-dev",
                "awsRegion": stream_arn.split(":")[3],
                "eventSourceARN": stream_arn,
            }
            for record in piece.records
        ]
    }
