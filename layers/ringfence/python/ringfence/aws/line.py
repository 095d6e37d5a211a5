"""Reading the line of a queue: its parked jobs, the first first, from the sharded due index."""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from itertools import islice
from typing import Any

from ringfence.aws import rows
from ringfence.aws.dynamo_calls import calling, get_all
from ringfence.job import Job, Millis
from ringfence.ports import DUE_SHARDS, Clock

LEAST_PER_READ = 10
"""Index entries read from a partition at once: all that fit in 4 KB cost the same half unit."""


class LineReader:
    """Reads the lines in one ledger table."""

    def __init__(self, client: Any, table: str, clock: Clock) -> None:
        self._client, self._table, self._clock = client, table, clock

    def first(self, queue: str, limit: int) -> list[Job]:
        """See `ports.Ledger.line`. The index lags a little, the rows do not: who has left the line is not in it."""
        # Twice an even share, so that most lines need one read of each partition.
        page_entries = max(LEAST_PER_READ, 2 * limit // DUE_SHARDS)
        places = heapq.merge(*(self._places(queue, shard, page_entries) for shard in range(DUE_SHARDS)))
        while entries := list(islice(places, limit)):
            keys = [rows.row_key(job_id) for _, job_id in entries]
            found = get_all(self._client, self._table, keys, self._clock, consistent=True)
            jobs = [job for job in (rows.from_item(row, {}) for row in found) if job.in_line and job.queue == queue]
            if jobs:
                return sorted(jobs, key=lambda job: (job.run_at, job.created_at))
        return []

    def _places(self, queue: str, shard: int, page_entries: int) -> Iterator[tuple[Millis, str]]:
        query: dict[str, Any] = {
            "TableName": self._table,
            "IndexName": rows.DUE_INDEX,
            "KeyConditionExpression": "dk = :line",
            "ExpressionAttributeValues": {":line": rows.line_key(queue, shard)},
            "Limit": page_entries,
        }
        while True:
            with calling(f"read the line of queue {queue}"):
                reply = self._client.query(**query)
            yield from ((int(entry["da"]["N"]), entry["pk"]["S"]) for entry in reply["Items"])
            if "LastEvaluatedKey" not in reply:
                return
            query["ExclusiveStartKey"] = reply["LastEvaluatedKey"]
