"""What Lambda's event-source mappings hand over, read into the core's own types.

Two kinds of faults are told apart. A record that its source has numbered, and whose content is no good, is read: the core sets
it aside, and its neighbours go on. An event of another shape is none of its source's, so nobody could be told which part of it
is done: it is refused as a whole, before anything of it is handled, and `WrongEvent` says where it is wrong.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import reprlib
from collections.abc import Mapping
from typing import Annotated, Any, TypeVar

import msgspec

from ringfence.errors import RingfenceError
from ringfence.ports import Lease
from ringfence.relay import Read


class WrongEvent(RingfenceError):
    """An event is not of the shape in which the function's source sends them."""


class UnknownQueue(RingfenceError):
    """An event came from a queue that the settings do not name."""


_SequenceNumber = Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,129}\Z")]
"""https://docs.aws.amazon.com/kinesis/latest/APIReference/API_Record.html (MiniStack's begin with zeros)"""

_Handle = Annotated[str, msgspec.Meta(pattern=r"^[!-~]+\Z")]
"""An id or a receipt, which goes back to where it came from."""

_SHARD = re.compile(r"[!-~]{1,128}")

_COUNT = re.compile(r"[1-9][0-9]{0,8}")


# The names are the mappings'.
class _Kinesis(msgspec.Struct):
    sequenceNumber: _SequenceNumber
    data: Any = None


class _Record(msgspec.Struct):
    kinesis: _Kinesis
    eventID: Any = None


class _Batch(msgspec.Struct):
    Records: list[_Record]


class _Message(msgspec.Struct):
    messageId: _Handle
    receiptHandle: _Handle
    eventSourceARN: str
    body: Any = None
    attributes: Any = None


class _Messages(msgspec.Struct):
    Records: list[_Message]


_Event = TypeVar("_Event")


def reads_from_event(event: Mapping[str, Any]) -> list[Read]:
    """The records of a Kinesis batch. Data that is no base64 becomes a `Read` with a fault, for the quarantine.

    Raises `WrongEvent`. https://docs.aws.amazon.com/lambda/latest/dg/with-kinesis.html
    """
    return [_read(record) for record in _converted(event, _Batch, "Kinesis").Records]


def leases_from_event(event: Mapping[str, Any], queues: Mapping[str, str]) -> list[Lease]:
    """The messages of an SQS batch. ``queues`` is `Settings.queues`: a message's queue is found by the last part of its ARN.

    A body that is no text comes as JSON that is no ticket; a count of receives that is none is 1, for it is approximate anyway.
    Raises `WrongEvent` and `UnknownQueue`. https://docs.aws.amazon.com/lambda/latest/dg/with-sqs.html
    """
    return [
        Lease(
            body=message.body if isinstance(message.body, str) else _kept({"body": message.body}),
            receipt=message.receiptHandle,
            deliveries=_deliveries(message.attributes),
            message_id=message.messageId,
            queue=_queue_of(message.eventSourceARN, queues),
        )
        for message in _converted(event, _Messages, "SQS").Records
    ]


def _converted(event: Any, shape: type[_Event], source: str) -> _Event:
    try:
        return msgspec.convert(event, shape)
    except (msgspec.ValidationError, UnicodeError) as fault:
        raise WrongEvent(f"this is no event of {source}: {fault}") from None


def _read(record: _Record) -> Read:
    sequence, data = record.kinesis.sequenceNumber, record.kinesis.data
    shard = _shard(record.eventID)
    if data is None:
        data = ""
    if not isinstance(data, str):
        return Read(_kept(data).encode(errors="surrogatepass"), sequence, shard, fault="its data is no text")
    try:
        return Read(base64.b64decode(data, validate=True), sequence, shard)
    except (binascii.Error, ValueError) as fault:
        return Read(data.encode(errors="surrogatepass"), sequence, shard, fault=f"broken base64: {fault}")


def _shard(event_id: Any) -> str:
    """An id of an event is the shard's, a colon, and the sequence number."""
    shard = event_id.partition(":")[0] if isinstance(event_id, str) else ""
    return shard if _SHARD.fullmatch(shard) else "unknown"


def _deliveries(attributes: Any) -> int:
    count = attributes.get("ApproximateReceiveCount") if isinstance(attributes, Mapping) else None
    return int(count) if isinstance(count, str) and _COUNT.fullmatch(count) else 1


def _queue_of(arn: str, queues: Mapping[str, str]) -> str:
    physical = arn.rpartition(":")[2]
    for name, url in queues.items():
        if not url.startswith(("redis://", "rediss://")) and url.rpartition("/")[2] == physical:
            return name
    raise UnknownQueue(f"an event came from {physical!r}, which RINGFENCE_QUEUES does not name")


def _kept(value: Any) -> str:
    """What came in the place of a text, as JSON; shortened where it is nested too deeply for that."""
    try:
        return json.dumps(value)
    except RecursionError:
        return json.dumps(reprlib.repr(value))
