"""Looking through the whole table for unfinished jobs without a due mark: no index leads to them.

https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Scan.html
"""

from __future__ import annotations

import json
from typing import Any

from ringfence.aws import rows
from ringfence.aws.dynamo_calls import calling
from ringfence.aws.expressions import Placeholders
from ringfence.job import TERMINAL, State
from ringfence.ports import Unmarked

UNFINISHED = tuple(state for state in State if state not in TERMINAL)


class UnmarkedReader:
    """Reads one ledger table, texts, keys and the quarantine included: the filter saves the way to us, not the reading."""

    def __init__(self, client: Any, table: str) -> None:
        self._client, self._table = client, table

    def page(self, segment: int, segments: int, cursor: str | None, limit: int) -> Unmarked:
        """See `ports.Ledger.unmarked`. A page ends at 1 MB, too."""
        placeholders = Placeholders()
        scan: dict[str, Any] = {
            "TableName": self._table,
            "Segment": segment,
            "TotalSegments": segments,
            "Limit": limit,
            "ConsistentRead": True,
            "FilterExpression": _unfinished_without_mark(placeholders),
            **placeholders.arguments(),
        }
        if cursor is not None:
            partition_key, sort_key = json.loads(cursor)
            scan["ExclusiveStartKey"] = {"pk": {"S": partition_key}, "sk": {"S": sort_key}}
        with calling("look through the ledger"):
            reply = self._client.scan(**scan)
        end = reply.get("LastEvaluatedKey")
        return Unmarked(
            jobs=[rows.from_item(row, {}) for row in reply["Items"]],
            examined=reply["ScannedCount"],
            cursor=None if end is None else json.dumps([end["pk"]["S"], end["sk"]["S"]]),
        )


def _unfinished_without_mark(placeholders: Placeholders) -> str:
    state = rows.COLUMNS["state"]
    codes = ", ".join(placeholders.value(state.encode(each)) for each in UNFINISHED)
    is_row = f"{placeholders.name('sk')} = {placeholders.value({'S': rows.ROW_SORT_KEY})}"
    unfinished = f"{placeholders.name(state.attribute)} IN ({codes})"
    no_mark = f"attribute_not_exists({placeholders.name(rows.COLUMNS['due_id'].attribute)})"
    return f"{is_row} AND {unfinished} AND {no_mark}"
