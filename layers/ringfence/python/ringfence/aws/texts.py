"""Large texts: items of their own beside the job's row, written once and never changed."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

from ringfence.aws.itemsize import item_bytes
from ringfence.aws.rows import AttributeValue, Item, references
from ringfence.errors import Poisoned, Rejected
from ringfence.job import Job, Millis

MAX_ITEM_BYTES = 350 * 1024
"""A margin below the 400 KB that DynamoDB takes.
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html"""

KEPT_SECONDS = 400 * 24 * 3600
"""How long a text outlives the time its job is due: longer than any job, for it only sweeps up what nobody names any more."""

TEXT = "x"
REMEMBERED = 64
"""Texts kept in memory, of 32 KiB at most each. They never change, so a heartbeat or commit need not read the payload again."""


def text_item(job_id: str, sort_key: str, text: str, *, now: Millis, run_at: Millis | None) -> Item:
    """Raises `Rejected` (413) when the item would be too large for the store."""
    expires_at = max(now, run_at or 0) // 1000 + KEPT_SECONDS
    item: Item = {"pk": {"S": job_id}, "sk": {"S": sort_key}, TEXT: {"S": text}, "ttl": {"N": str(expires_at)}}
    if item_bytes(item) > MAX_ITEM_BYTES:
        raise Rejected(f"a text of more than {MAX_ITEM_BYTES} bytes cannot be kept", kind="too-large", status=413)
    return item


class Texts:
    """Reads and writes the texts of one ledger table."""

    def __init__(self, client: Any, table: str) -> None:
        self._client, self._table = client, table
        self._lock = threading.Lock()
        self._remembered: OrderedDict[tuple[str, str], str] = OrderedDict()

    def put(self, item: Item) -> None:
        """Write a text, before the row that names it. Writing it again changes nothing."""
        self._client.put_item(TableName=self._table, Item=item)
        self.remember(item)

    def remember(self, item: Mapping[str, AttributeValue]) -> None:
        with self._lock:
            self._remembered[item["pk"]["S"], item["sk"]["S"]] = item[TEXT]["S"]
            if len(self._remembered) > REMEMBERED:
                self._remembered.popitem(last=False)

    def of_row(self, row: Mapping[str, AttributeValue], *, lost_is_none: bool = False) -> dict[str, str]:
        """The texts this row names, strongly consistent.

        A text that is gone is `Poisoned`, for a job must not run without its payload; with ``lost_is_none`` it is left out,
        so that the rules can still bury such a job.
        """
        job_id = row["pk"]["S"]
        texts = {}
        for field, sort_key in references(row).items():
            text = self._get(job_id, sort_key)
            if text is not None:
                texts[field] = text
            elif not lost_is_none:
                raise Poisoned(f"the {field} of job {job_id} is gone from the ledger", job_id=job_id)
        return texts

    def _get(self, job_id: str, sort_key: str) -> str | None:
        with self._lock:
            if (job_id, sort_key) in self._remembered:
                self._remembered.move_to_end((job_id, sort_key))
                return self._remembered[job_id, sort_key]
        key = {"pk": {"S": job_id}, "sk": {"S": sort_key}}
        item = self._client.get_item(TableName=self._table, Key=key, ConsistentRead=True).get("Item")
        if item is None:
            return None
        self.remember(item)
        return str(item[TEXT]["S"])


def text_items_of_row(job: Job, apart: Mapping[str, str], now: Millis) -> list[Item]:
    """The items of those texts of a new row that lie apart."""
    return [
        text_item(job.job_id, sort_key, getattr(job, field), now=now, run_at=job.run_at) for field, sort_key in apart.items()
    ]
