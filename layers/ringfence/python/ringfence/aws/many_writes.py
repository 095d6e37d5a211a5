"""Changes of many rows, a transaction for every 25: a tenth of the SDK's work, at twice the units for each row."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from botocore.exceptions import ClientError

from ringfence.aws import expressions, layout, rows
from ringfence.aws.cancellation import REFUSED
from ringfence.aws.dynamo_calls import calling
from ringfence.aws.failures import code_of
from ringfence.aws.rows import Item
from ringfence.change import Change, Refused, Written, apply
from ringfence.errors import Unavailable
from ringfence.ports import Clock

TOGETHER = 25
"""Rows in one transaction; 100 would be taken, but one that is in conflict sets all of them back."""

Outcome = Written | Refused | None


class ManyWrites:
    """``alone`` carries out one change by itself, ``judged`` says what a refusal by this row means."""

    def __init__(
        self,
        client: Any,
        table: str,
        clock: Clock,
        *,
        alone: Callable[[Change], Written | Refused],
        judged: Callable[[Change, Item | None], Written | Refused],
    ) -> None:
        self._client, self._table, self._clock, self._alone, self._judged = client, table, clock, alone, judged

    def write(self, changes: Sequence[Change]) -> list[Outcome]:
        """See `ports.Ledger.write_many`. What a transaction leaves undecided is tried by itself."""
        outcomes: dict[int, Outcome] = {}
        fitting = [index for index, change in enumerate(changes) if _fits(change)]
        for start in range(0, len(fitting), TOGETHER):
            together = fitting[start : start + TOGETHER]
            decided = self._transact([changes[index] for index in together]) if len(together) > 1 else {}
            outcomes |= {together[place]: outcome for place, outcome in decided.items()}
        return [outcomes[index] if index in outcomes else self._alone_or_none(change) for index, change in enumerate(changes)]

    def _transact(self, changes: Sequence[Change]) -> dict[int, Outcome]:
        """What is decided, by index; a whole transaction out of reach is decided to be undecided."""
        now_seconds = self._clock.now() // 1000
        actions = [
            {
                "Update": {
                    "TableName": self._table,
                    "Key": rows.row_key(change.job_id),
                    "ReturnValuesOnConditionCheckFailure": "ALL_OLD",
                    **expressions.update_arguments(change, {}, expired_before_seconds=now_seconds),
                }
            }
            for change in changes
        ]
        try:
            with calling("write many jobs"):
                self._client.transact_write_items(TransactItems=actions)
        except Unavailable:
            return dict.fromkeys(range(len(changes)))
        except ClientError as failure:
            if code_of(failure) != "TransactionCanceledException":
                raise
            return self._refused(changes, failure.response.get("CancellationReasons", []))
        return {index: Written(apply(change, change.seen)) for index, change in enumerate(changes) if change.seen is not None}

    def _refused(self, changes: Sequence[Change], reasons: Sequence[dict[str, Any]]) -> dict[int, Outcome]:
        refused = [index for index, reason in enumerate(reasons) if reason.get("Code") == REFUSED]
        return {index: self._judged(changes[index], reasons[index].get("Item") or None) for index in refused}

    def _alone_or_none(self, change: Change) -> Outcome:
        try:
            return self._alone(change)
        except Unavailable:
            return None


def _fits(change: Change) -> bool:
    """Whether it can be part of a transaction: that returns no rows, and large texts are written beforehand."""
    return change.seen is not None and rows.is_storable_id(change.job_id) and not layout.texts_apart_of_change(change)
