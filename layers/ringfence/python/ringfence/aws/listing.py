"""Pages of jobs on DynamoDB: the order from an index, the jobs from the table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ringfence.aws import rows
from ringfence.aws.dynamo_calls import get_all
from ringfence.aws.newest_first import newest_first
from ringfence.aws.rows import Item, ListIndex
from ringfence.aws.texts import TEXT
from ringfence.job import Job, State
from ringfence.listing import EXAMINED_PER_PAGE, Query, page_of
from ringfence.ports import DUE_SHARDS, Clock, Page

LEAST_PER_READ = 10
"""Index entries read from a partition at once: all that fit in 4 KB cost the same half unit."""

ERROR_REFERENCE = rows.TEXTS["error"].reference


def _where(query: Query) -> tuple[ListIndex, list[str]]:
    """The index, and its partitions that hold all that the query takes."""
    shards = range(DUE_SHARDS)
    if query.by_end:
        return rows.DEAD_INDEX, [rows.dead_key(query.tenant, shard) for shard in shards]
    return rows.LISTING_INDEX, [rows.listing_key(query.tenant, queue, shard) for queue in query.queues for shard in shards]


class Listing:
    """Lists the jobs of one ledger table. Index and rows are read eventually consistent, at half the price."""

    def __init__(self, client: Any, table: str, clock: Clock) -> None:
        self._client, self._table, self._clock = client, table, clock

    def page(self, query: Query, cursor: str | None, limit: int) -> Page:
        """The page at the cursor. Raises `Rejected` (``bad-cursor``) for a cursor that is not of this query."""
        before = None if cursor is None else query.position_of(cursor)
        index, partitions = _where(query)
        # Twice an even share, so that most pages need one read of each partition.
        page_items = max(LEAST_PER_READ, 2 * min(limit, EXAMINED_PER_PAGE) // max(1, len(partitions)))
        positions = newest_first(self._client, self._table, index, partitions, before=before, page_items=page_items)
        return page_of(query, positions, lambda job_ids: self._load(job_ids, query.state), limit)

    def _load(self, job_ids: Sequence[str], state: State | None) -> dict[str, Job]:
        found = get_all(self._client, self._table, [rows.row_key(job_id) for job_id in job_ids], self._clock)
        now = self._clock.now()
        jobs = [(row, rows.from_item(row, {})) for row in found]
        shown = [(row, job) for row, job in jobs if not job.expired(now) and state in (None, job.state)]
        errors = self._errors([row for row, _ in shown if ERROR_REFERENCE in row])
        return {job.job_id: rows.from_item(row, errors.get(job.job_id, {})) for row, job in shown}

    def _errors(self, found: Sequence[Item]) -> dict[str, dict[str, str]]:
        """The errors that lie apart from their rows: the one kind of text a listing shows."""
        keys = [{"pk": row["pk"], "sk": row[ERROR_REFERENCE]} for row in found]
        items = get_all(self._client, self._table, keys, self._clock)
        return {item["pk"]["S"]: {"error": item[TEXT]["S"]} for item in items}
