"""The store's own account of what was written: each version of each row, and how often each effect has landed.

It is in the change streams of the tables. The deployment's tables have none, for nothing of the product reads one.
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Streams.html
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ringfence.aws import rows
from ringfence.job import Job

from .inside.recorder import added_to
from .inside.traces import COUNTER_KEY, COUNTERS

LOOK_SECONDS = 0.05

Versions = Mapping[str, Sequence[Job]]
"""Job id → its rows, by version; their texts only where these lie in the row."""


@dataclass(frozen=True, slots=True)
class Trail:
    """All that has landed since some time."""

    versions: Versions
    landings: Mapping[str, int] = field(default_factory=dict)
    """How often each item to which jobs add was written, by what they do to it, as `inside.recorder` tells it."""


def trail_of(ledger: Stream, counters: Stream, is_ours: Callable[[str], bool]) -> Trail:
    """What the two streams hold; of the counters those with these keys. To be asked when nobody writes any more."""
    versions: dict[str, list[Job]] = defaultdict(list)
    for image in ledger.images():
        if image.get("sk", {}).get("S") == rows.ROW_SORT_KEY:
            job = rows.from_item(image, {})
            versions[job.job_id].append(job)
    counted = (image[COUNTER_KEY]["S"] for image in counters.images())
    landings = Counter(added_to(COUNTERS, {COUNTER_KEY: key}) for key in counted if is_ours(key))
    return Trail({job_id: sorted(jobs, key=lambda job: job.version) for job_id, jobs in versions.items()}, landings)


class Stream:
    """The changes of one table, from `begin` on."""

    def __init__(self, dynamodb: Any, streams: Any, table: str) -> None:
        self._dynamodb, self._streams, self._table = dynamodb, streams, table

    def begin(self) -> None:
        """A new stream, in which there is nothing yet."""
        if self._described().get("StreamSpecification", {}).get("StreamEnabled"):
            self._set({"StreamEnabled": False})
        self._set({"StreamEnabled": True, "StreamViewType": "NEW_IMAGE"})

    def images(self) -> Iterator[Mapping[str, Any]]:
        """Each item as it was after each write; those of one item in their order."""
        arn = self._described()["LatestStreamArn"]
        for shard in self._shards(arn):
            asked = {"StreamArn": arn, "ShardId": shard, "ShardIteratorType": "TRIM_HORIZON"}
            iterator = self._streams.get_shard_iterator(**asked)["ShardIterator"]
            while iterator is not None:
                answer = self._streams.get_records(ShardIterator=iterator)
                yield from (each["dynamodb"]["NewImage"] for each in answer["Records"] if "NewImage" in each["dynamodb"])
                iterator = answer.get("NextShardIterator") if answer["Records"] else None

    def _shards(self, arn: str) -> Iterator[str]:
        more: dict[str, str] = {}
        while True:
            described = self._streams.describe_stream(StreamArn=arn, **more)["StreamDescription"]
            yield from (shard["ShardId"] for shard in described["Shards"])
            if "LastEvaluatedShardId" not in described:
                return
            more = {"ExclusiveStartShardId": described["LastEvaluatedShardId"]}

    def _set(self, specification: Mapping[str, Any]) -> None:
        self._dynamodb.update_table(TableName=self._table, StreamSpecification=specification)
        while self._described()["TableStatus"] != "ACTIVE":
            time.sleep(LOOK_SECONDS)

    def _described(self) -> Mapping[str, Any]:
        described: Mapping[str, Any] = self._dynamodb.describe_table(TableName=self._table)["Table"]
        return described
