"""Many rows changed or put, a transaction for every 25: a tenth of the SDK's work, at twice the units for each row."""

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
from ringfence.job import Job
from ringfence.ports import Clock

TOGETHER = 25
"""Rows in one transaction; 100 would be taken, but one that is in conflict sets all of them back."""

Outcome = Written | Refused | None


class ManyWrites:
    """``alone`` carries out one write by itself, ``judged`` says what a refusal by this row means."""

    def __init__(
        self,
        client: Any,
        table: str,
        clock: Clock,
        *,
        alone: Callable[[Change | Job], Written | Refused],
        judged: Callable[[Change | Job, Item | None], Written | Refused],
    ) -> None:
        self._client, self._table, self._clock, self._alone, self._judged = client, table, clock, alone, judged

    def write(self, writes: Sequence[Change | Job]) -> list[Outcome]:
        """See `ports.Ledger.write_many`. What a transaction leaves undecided is tried by itself."""
        outcomes: dict[int, Outcome] = {}
        fitting = [index for index, write in enumerate(writes) if _fits(write)]
        for start in range(0, len(fitting), TOGETHER):
            together = fitting[start : start + TOGETHER]
            decided = self._transact([writes[index] for index in together]) if len(together) > 1 else {}
            outcomes |= {together[place]: outcome for place, outcome in decided.items()}
        return [outcomes[index] if index in outcomes else self._alone_or_none(write) for index, write in enumerate(writes)]

    def _transact(self, writes: Sequence[Change | Job]) -> dict[int, Outcome]:
        """What is decided, by index; a whole transaction out of reach is decided to be undecided."""
        now_seconds = self._clock.now() // 1000
        actions = [self._action(write, now_seconds) for write in writes]
        try:
            with calling("write many jobs"):
                self._client.transact_write_items(TransactItems=actions)
        except Unavailable:
            return dict.fromkeys(range(len(writes)))
        except ClientError as failure:
            if code_of(failure) != "TransactionCanceledException":
                raise
            return self._refused(writes, failure.response.get("CancellationReasons", []))
        return {index: Written(_row_after(write)) for index, write in enumerate(writes)}

    def _action(self, write: Change | Job, now_seconds: int) -> dict[str, Any]:
        old_row: dict[str, Any] = {"TableName": self._table, "ReturnValuesOnConditionCheckFailure": "ALL_OLD"}
        if isinstance(write, Job):
            return {"Put": old_row | expressions.put_arguments(rows.to_item(write, {}), expired_before_seconds=now_seconds)}
        arguments = expressions.update_arguments(write, {}, expired_before_seconds=now_seconds)
        return {"Update": {**old_row, "Key": rows.row_key(write.job_id), **arguments}}

    def _refused(self, writes: Sequence[Change | Job], reasons: Sequence[dict[str, Any]]) -> dict[int, Outcome]:
        refused = [index for index, reason in enumerate(reasons) if reason.get("Code") == REFUSED]
        return {index: self._judged(writes[index], reasons[index].get("Item") or None) for index in refused}

    def _alone_or_none(self, write: Change | Job) -> Outcome:
        try:
            return self._alone(write)
        except Unavailable:
            return None


def _fits(write: Change | Job) -> bool:
    """Whether it can be part of a transaction: that returns no rows, and large texts are written beforehand."""
    if isinstance(write, Job):
        return not layout.texts_apart_of_row(write)
    return write.seen is not None and rows.is_storable_id(write.job_id) and not layout.texts_apart_of_change(write)


def _row_after(write: Change | Job) -> Job:
    if isinstance(write, Job):
        return write
    if write.seen is None:
        raise ValueError("a transaction does not return the row, so a change in one must name the row it saw")
    return apply(write, write.seen)
