"""The on-failure destination of a stream: what was given up is kept in S3, with its records, as Lambda keeps it.

https://docs.aws.amazon.com/lambda/latest/dg/kinesis-on-failure-destination.html
"""

from __future__ import annotations

import json
import uuid
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from ringfence.local.sources.kinesis_batch import Piece, event_of

Condition = Literal["RetryAttemptsExhausted", "RecordAgeExceeded"]


@dataclass(frozen=True, slots=True)
class FailedBatches:
    """Puts failed batches of one mapping into ``bucket``; nowhere if it is None."""

    s3: Any
    bucket: str | None
    stream_arn: str
    function_arn: str
    mapping_id: str = field(default_factory=lambda: str(uuid.uuid4()))

    def put(self, shard: str, piece: Piece, condition: Condition, error: str | None) -> None:
        if self.bucket is None:
            return
        now = datetime.now(UTC)
        key = f"aws/lambda/{self.mapping_id}/{shard}/{now:%Y/%m/%d}/{now:%Y-%m-%dT%H.%M.%S}-{uuid.uuid4()}"
        self.s3.put_object(
            Bucket=self.bucket, Key=key, Body=json.dumps(self._invocation(shard, piece, condition, error, now)).encode()
        )

    def _invocation(self, shard: str, piece: Piece, condition: Condition, error: str | None, now: datetime) -> dict[str, Any]:
        first, last = piece.records[0], piece.records[-1]
        return {
            "requestContext": {
                "requestId": str(uuid.uuid4()),
                "functionArn": self.function_arn,
                "condition": condition,
                "approximateInvokeCount": piece.failures,
            },
            "responseContext": {"statusCode": 200, "executedVersion": "$LATEST", "functionError": error},
            "version": "1.0",
            "timestamp": _iso(now),
            "KinesisBatchInfo": {
                "shardId": shard,
                "startSequenceNumber": first.sequence_number,
                "endSequenceNumber": last.sequence_number,
                "approximateArrivalOfFirstRecord": _iso(first.arrived),
                "approximateArrivalOfLastRecord": _iso(last.arrived),
                "batchSize": len(piece.records),
                "streamArn": self.stream_arn,
            },
            # The event as text, so that it can be replayed as it was.
            "payload": json.dumps(event_of(piece, self.stream_arn, shard)),
        }


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z"
