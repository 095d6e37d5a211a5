"""The failed batches that the relay's event-source mapping has put into the bucket.

https://docs.aws.amazon.com/lambda/latest/dg/kinesis-on-failure-destination.html
"""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import msgspec

from ringfence.aws.failures import FAILURES, code_of, may_pass, unavailable
from ringfence.errors import RingfenceError
from ringfence.ports import LogEntry
from ringfence.replay import FailedBatch, UnreadableBatch

PREFIX = "aws/lambda/"
"""Lambda's own: ``aws/lambda/<mapping>/<shard>/<year>/<month>/<day>/<time>-<random>``, so names sort by time within a shard."""


# The names are Lambda's.
class _Info(msgspec.Struct):
    streamArn: str
    approximateArrivalOfFirstRecord: str = ""


class _Context(msgspec.Struct):
    condition: str = ""


class _Invocation(msgspec.Struct):
    KinesisBatchInfo: _Info
    payload: str
    """The event as text."""
    requestContext: _Context = msgspec.field(default_factory=_Context)


class _Data(msgspec.Struct):
    partitionKey: str
    data: str


class _Record(msgspec.Struct):
    kinesis: _Data


class _Event(msgspec.Struct):
    Records: list[_Record]


_invocations, _events = msgspec.json.Decoder(_Invocation), msgspec.json.Decoder(_Event)


class S3FailedBatches:
    """See `ringfence.replay.FailedBatches`. Needs ``s3:ListBucket``, ``GetObject`` and ``DeleteObject`` below `PREFIX`."""

    def __init__(self, client: Any, bucket: str, stream: str) -> None:
        """``stream`` is the name of the log: a batch of another one is not read."""
        self._client, self._bucket, self._stream = client, bucket, stream

    def names(self) -> Iterator[str]:
        request: dict[str, Any] = {"Bucket": self._bucket, "Prefix": PREFIX}
        while True:
            page = self._call("list", self._client.list_objects_v2, **request)
            yield from (each["Key"] for each in page.get("Contents", ()))
            if not page.get("IsTruncated"):
                return
            request["ContinuationToken"] = page["NextContinuationToken"]

    def read(self, name: str) -> FailedBatch:
        answer = self._call("read", self._client.get_object, Bucket=self._bucket, Key=name)
        try:
            with answer["Body"] as body:
                text = body.read()
        except FAILURES as failure:
            raise unavailable(failure, f"read {name}") from failure
        try:
            invocation = _invocations.decode(text)
            records = _events.decode(invocation.payload).Records
            entries = [
                LogEntry(base64.b64decode(each.kinesis.data, validate=True), each.kinesis.partitionKey) for each in records
            ]
        except (msgspec.DecodeError, ValueError, RecursionError) as fault:
            raise UnreadableBatch(f"{name} is no failed batch: {fault}") from None
        if (stream := invocation.KinesisBatchInfo.streamArn.rpartition("/")[2]) != self._stream:
            raise UnreadableBatch(f"{name} is of the stream {stream}, not of {self._stream}")
        return FailedBatch(
            entries, invocation.KinesisBatchInfo.approximateArrivalOfFirstRecord, invocation.requestContext.condition
        )

    def remove(self, name: str) -> None:
        self._call("remove", self._client.delete_object, Bucket=self._bucket, Key=name)

    def _call(self, doing: str, operation: Any, **request: Any) -> Any:
        where = request.get("Key") or f"bucket {self._bucket}"
        try:
            return operation(**request)
        except FAILURES as failure:
            if may_pass(failure):
                raise unavailable(failure, f"{doing} {where}") from failure
            raise RingfenceError(f"cannot {doing} {where}: {code_of(failure)}") from failure
