"""A bucket in which the relay's mapping has put what it gave up."""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Mapping
from typing import Any

from ringfence.aws.failed_batches import PREFIX, S3FailedBatches

STREAM_ARN = "arn:aws:kinesis:eu-west-1:123456789012:stream/log"


class Bucket:
    """As much of S3's client as is asked for failed batches."""

    def __init__(self, *bodies: bytes) -> None:
        self._bodies = {f"{PREFIX}mapping/shardId-0/{number}": body for number, body in enumerate(bodies)}

    def list_objects_v2(self, **_: Any) -> Mapping[str, Any]:
        return {"Contents": [{"Key": key} for key in self._bodies], "IsTruncated": False}

    def get_object(self, *, Key: str, **_: Any) -> Mapping[str, Any]:
        return {"Body": io.BytesIO(self._bodies[Key])}

    def delete_object(self, *, Key: str, **_: Any) -> None:
        del self._bodies[Key]


def failed_batches(*bodies: bytes) -> S3FailedBatches:
    return S3FailedBatches(Bucket(*bodies), "bucket", "log")


def invocation(payload: Any) -> dict[str, Any]:
    """What is put there for an event. https://docs.aws.amazon.com/lambda/latest/dg/kinesis-on-failure-destination.html"""
    return {
        "requestContext": {"condition": "RecordAgeExceeded"},
        "KinesisBatchInfo": {"streamArn": STREAM_ARN, "approximateArrivalOfFirstRecord": "2026-11-05T00:38:06.021Z"},
        "payload": payload,
    }


def event_of(*datas: bytes) -> dict[str, Any]:
    """A batch of these records, as far as it is read again."""
    return {"Records": [{"kinesis": {"partitionKey": "p", "data": base64.b64encode(data).decode()}} for data in datas]}


def failed_batch(*datas: bytes) -> bytes:
    return json.dumps(invocation(json.dumps(event_of(*datas)))).encode()
