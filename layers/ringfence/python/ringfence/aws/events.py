"""What Lambda's event-source mappings hand over, read into the core's own types."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any

from ringfence.errors import RingfenceError
from ringfence.relay import Read


class UnknownQueue(RingfenceError):
    """An event came from a queue that the settings do not name."""


def reads_from_event(event: Mapping[str, Any]) -> list[Read]:
    """The records of a Kinesis batch. Broken base64 becomes a `Read` with a fault, for the quarantine, never an error.

    https://docs.aws.amazon.com/lambda/latest/dg/with-kinesis.html
    """
    return [_read(record) for record in event["Records"]]


def queue_of_event(record: Mapping[str, Any], queues: Mapping[str, str]) -> str:
    """The name of the queue an SQS record came from, found by the last part of its ARN. Raises `UnknownQueue`.

    https://docs.aws.amazon.com/lambda/latest/dg/with-sqs.html
    """
    physical = record["eventSourceARN"].rpartition(":")[2]
    for name, url in queues.items():
        if not url.startswith(("redis://", "rediss://")) and url.rpartition("/")[2] == physical:
            return name
    raise UnknownQueue(f"an event came from {physical}, which RINGFENCE_QUEUES does not name")


def _read(record: Mapping[str, Any]) -> Read:
    kinesis = record["kinesis"]
    sequence = kinesis["sequenceNumber"]
    shard = record.get("eventID", "").partition(":")[0] or "unknown"
    encoded = kinesis.get("data") or ""
    try:
        return Read(base64.b64decode(encoded, validate=True), sequence, shard)
    except (binascii.Error, ValueError) as fault:
        return Read(str(encoded).encode(errors="surrogatepass"), sequence, shard, fault=f"broken base64: {fault}")
