"""The ledger on DynamoDB: every decision is one conditional request, its condition checked where the row lies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from botocore.exceptions import ClientError, ParamValidationError

from ringfence.aws import expressions, layout, rows, texts
from ringfence.aws.cancellation import row_that_refused
from ringfence.aws.dynamo_calls import calling, get_all
from ringfence.aws.effects import deserialized, serialized, transact_action
from ringfence.aws.expressions import Placeholders
from ringfence.aws.failures import code_of
from ringfence.aws.groups import Groups
from ringfence.aws.line import LineReader
from ringfence.aws.listing import Listing
from ringfence.aws.many_writes import ManyWrites
from ringfence.aws.rows import Item
from ringfence.aws.unmarked import UnmarkedReader
from ringfence.change import Change, Refused, Written, apply, holds, is_own_write
from ringfence.effect_rules import bad_effect, unknown_tables
from ringfence.effects import MAX_EFFECTS, Effect
from ringfence.effects import Item as UserItem
from ringfence.errors import Rejected, RingfenceError
from ringfence.itemvalues import BAD_EFFECT
from ringfence.job import Job, Millis, State
from ringfence.listing import Query
from ringfence.ports import Clock, DueMark, Group, Page, Unmarked


class DynamoLedger:
    """Jobs in one table. ``client`` is boto3's low-level DynamoDB client; ``tables`` maps the table names that jobs use to
    physical ones, and a name it does not list is used as it is."""

    def __init__(self, client: Any, table_name: str, tables: Mapping[str, str], clock: Clock) -> None:
        self._client, self._table, self._tables, self._clock = client, table_name, tables, clock
        self._texts = texts.Texts(client, table_name)
        self._listing = Listing(client, table_name, clock)
        self._lines = LineReader(client, table_name, clock)
        self._unmarked = UnmarkedReader(client, table_name)
        self._groups = Groups(client, table_name)
        self._many = ManyWrites(client, table_name, clock, alone=self._write_alone, judged=self._judged)

    # --- registering -------------------------------------------------------------------------------------------------

    def register(self, job: Job) -> Job | None:
        """Put the row if there is none. See `ports.Ledger.register`."""
        with calling("register a job"):
            row = self._put(job)
            if row is None or is_own_write(job, rows.from_item(row, {})):
                return None
            return rows.from_item(row, self._texts.of_row(row))

    def _put(self, job: Job) -> Item | None:
        """Put the row unless there is one. Returns that one."""
        now = self._clock.now()
        apart = layout.texts_apart_of_row(job)
        for item in texts.text_items_of_row(job, apart, now):
            self._texts.put(item)
        arguments = expressions.put_arguments(rows.to_item(job, apart), expired_before_seconds=now // 1000)
        try:
            self._client.put_item(TableName=self._table, ReturnValuesOnConditionCheckFailure="ALL_OLD", **arguments)
        except ClientError as failure:
            if code_of(failure) != "ConditionalCheckFailedException":
                raise
            refusing: Item = failure.response["Item"]
            return refusing
        return None

    # --- reading -----------------------------------------------------------------------------------------------------

    def get(self, job_id: str) -> Job | None:
        """The whole row. See `ports.Ledger.get`. Raises `Poisoned` if one of its texts is gone."""
        if not rows.is_storable_id(job_id):
            return None
        with calling("read a job"):
            row = self._row(job_id)
            if row is None or rows.from_item(row, {}).expired(self._clock.now()):
                return None
            return rows.from_item(row, self._texts.of_row(row))

    def _row(self, job_id: str) -> Item | None:
        key = rows.row_key(job_id)
        row: Item | None = self._client.get_item(TableName=self._table, Key=key, ConsistentRead=True).get("Item")
        return row

    def read_item(self, table: str, key: UserItem) -> Mapping[str, Any] | None:
        """One item of the user's. See `ports.Ledger.read_item`. Raises `Rejected` (``bad-effect``) for a key or table that
        cannot be."""
        physical = self._physical(table)
        request = {"TableName": physical, "Key": serialized(key), "ConsistentRead": True}
        with calling(f"read from the table {table}"):
            try:
                item = self._client.get_item(**request).get("Item")
            except (ClientError, ParamValidationError) as failure:
                if _is_at_fault(failure):
                    raise Rejected(f"cannot read from {table}: {self._told(failure, [table])}", kind=BAD_EFFECT) from failure
                raise
        return None if item is None else deserialized(item)

    def peek(self, job_ids: Sequence[str]) -> list[Job]:
        """The rows alone. See `ports.Ledger.peek`."""
        keys = [rows.row_key(job_id) for job_id in job_ids if rows.is_storable_id(job_id)]
        found = get_all(self._client, self._table, keys, self._clock, consistent=True)
        now = self._clock.now()
        return [job for job in (rows.from_item(row, {}) for row in found) if not job.expired(now)]

    def due(self, shard: int, now: Millis, limit: int, after: DueMark | None = None) -> list[DueMark]:
        """Marks whose time has come. See `ports.Ledger.due`."""
        query: dict[str, Any] = {
            "TableName": self._table,
            "IndexName": rows.DUE_INDEX,
            "KeyConditionExpression": "dk = :shard AND da <= :now",
            "ExpressionAttributeValues": {":shard": rows.due_key(shard), ":now": {"N": str(now)}},
        }
        if after is not None:
            at = {"dk": rows.due_key(shard), "da": {"N": str(after.run_at)}}
            query["ExclusiveStartKey"] = {**rows.row_key(after.job_id), **at}
        found: list[DueMark] = []
        while len(found) < limit:
            with calling("look for due jobs"):
                reply = self._client.query(**query, Limit=limit - len(found))
            found += [DueMark(int(entry["da"]["N"]), entry["pk"]["S"]) for entry in reply["Items"]]
            if "LastEvaluatedKey" not in reply:
                break
            query["ExclusiveStartKey"] = reply["LastEvaluatedKey"]
        return found

    def line(self, queue: str, limit: int) -> list[Job]:
        """Who stands in line, the first first. See `ports.Ledger.line`."""
        return self._lines.first(queue, limit)

    def join_line(self, group: Group) -> None:
        """Let many stand in line as one. See `ports.Ledger.join_line`."""
        self._groups.put(group)

    def groups(self, queue: str, limit: int) -> list[Group]:
        """The first groups in line. See `ports.Ledger.groups`."""
        return self._groups.first(queue, limit)

    def leave_line(self, group: Group, left: int) -> None:
        """Some of a group have left it, or all. See `ports.Ledger.leave_line`."""
        self._groups.leave(group, left)

    def list_jobs(
        self, tenant: str, queues: Sequence[str], state: State | None = None, cursor: str | None = None, limit: int = 50
    ) -> Page:
        """A tenant's jobs, newest first; the index and the rows may be a little stale. See `ports.Ledger.list_jobs`."""
        query = Query(tenant, sorted(set(queues)), state)
        with calling("list jobs"):
            return self._listing.page(query, cursor, limit)

    def unmarked(self, segment: int, segments: int, cursor: str | None, limit: int) -> Unmarked:
        """Who may have no ticket. See `ports.Ledger.unmarked`."""
        return self._unmarked.page(segment, segments, cursor, limit)

    # --- writing -----------------------------------------------------------------------------------------------------

    def write(self, change: Change, effects: Sequence[Effect] = (), *, request_token: str | None = None) -> Written | Refused:
        """Carry out a change, with the effects in the same transaction. See `ports.Ledger.write`.

        Raises `Rejected` (``bad-effect``) for an effect that can never be carried out.
        """
        if not rows.is_storable_id(change.job_id):
            return Refused(None)
        actions = self._actions(effects)
        apart = layout.texts_apart_of_change(change)
        with calling("write a job"):
            self._put_texts(change, apart)
            if effects:
                return self._transact(change, apart, effects, actions, request_token)
            return self._update(change, apart)

    def _put_texts(self, change: Change, apart: Mapping[str, str]) -> None:
        run_at = change.set.get("run_at") or (change.seen.run_at if change.seen is not None else None)
        for field, sort_key in apart.items():
            item = texts.text_item(change.job_id, sort_key, change.set[field], now=self._clock.now(), run_at=run_at)
            self._texts.put(item)

    def _update(self, change: Change, apart: Mapping[str, str]) -> Written | Refused:
        arguments = expressions.update_arguments(change, apart, expired_before_seconds=self._clock.now() // 1000)
        try:
            reply = self._client.update_item(
                TableName=self._table,
                Key=rows.row_key(change.job_id),
                ReturnValues="ALL_NEW",
                ReturnValuesOnConditionCheckFailure="ALL_OLD",
                **arguments,
            )
        except ClientError as failure:
            if code_of(failure) != "ConditionalCheckFailedException":
                raise
            return self._judged(change, failure.response.get("Item") or None)
        row = reply["Attributes"]
        return Written(rows.from_item(row, self._texts.of_row(row)))

    def _transact(
        self,
        change: Change,
        apart: Mapping[str, str],
        effects: Sequence[Effect],
        actions: Sequence[dict[str, Any]],
        request_token: str | None,
    ) -> Written | Refused:
        if change.seen is None:
            raise ValueError("a transaction does not return the row, so a change with effects must name the row it saw")
        # No clock in this request: the same token with other content would be refused. Only running rows commit effects, and
        # those never expire.
        arguments = expressions.update_arguments(change, apart, expired_before_seconds=None)
        row = {"Update": self._on_row(change.job_id, arguments)}
        try:
            self._send([row, *actions], request_token, effects)
        except ClientError as failure:
            match code_of(failure):
                case "TransactionCanceledException":
                    return self._judged(change, row_that_refused(failure, effects))
                case "IdempotentParameterMismatchException":
                    return self._after_mismatch(change, failure)
            raise
        return Written(apply(change, change.seen))

    def write_many(self, writes: Sequence[Change | Job]) -> list[Written | Refused | None]:
        """Write the rows of many jobs. See `ports.Ledger.write_many`."""
        return self._many.write(writes)

    def _write_alone(self, write: Change | Job) -> Written | Refused:
        if isinstance(write, Change):
            return self.write(write)
        with calling("register a job"):
            row = self._put(write)
            return Written(write) if row is None else self._judged(write, row)

    def write_effects(self, held: Change, effects: Sequence[Effect], *, request_token: str) -> Refused | None:
        """Carry out effects while the row's condition holds. See `ports.Ledger.write_effects`."""
        if not rows.is_storable_id(held.job_id):
            return Refused(None)
        placeholders = Placeholders()
        condition = expressions.row_condition(held.condition, placeholders, expired_before_seconds=None)
        check = {"ConditionExpression": condition, **placeholders.arguments()}
        row = {"ConditionCheck": self._on_row(held.job_id, check)}
        actions = self._actions(effects)
        with calling("write effects"):
            try:
                self._send([row, *actions], request_token, effects)
            except ClientError as failure:
                if code_of(failure) != "TransactionCanceledException":
                    raise
                return Refused(self._seen(row_that_refused(failure, effects)))
        return None

    def _on_row(self, job_id: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        key = rows.row_key(job_id)
        return {"TableName": self._table, "Key": key, "ReturnValuesOnConditionCheckFailure": "ALL_OLD", **arguments}

    def _send(self, actions: Sequence[dict[str, Any]], request_token: str | None, effects: Sequence[Effect]) -> None:
        token = {} if request_token is None else {"ClientRequestToken": request_token}
        try:
            self._client.transact_write_items(TransactItems=list(actions), **token)
        except (ClientError, ParamValidationError) as failure:
            if _is_at_fault(failure):
                told = self._told(failure, [effect.table for effect in effects])
                raise Rejected(f"the effects cannot be carried out: {told}", kind=BAD_EFFECT) from failure
            raise

    def _told(self, failure: Exception, tables: Sequence[str]) -> str:
        missing = code_of(failure) == "ResourceNotFoundException"
        return (unknown_tables(tables, self._tables) if missing else "") or str(failure)

    def _judged(self, write: Change | Job, row: Item | None) -> Written | Refused:
        """Our own write, applied before its reply was lost; or somebody else's row."""
        seen = None if row is None else rows.from_item(row, {})
        if row is not None and is_own_write(write, seen):
            return Written(rows.from_item(row, self._texts.of_row(row)))
        return Refused(self._seen(row))

    def _seen(self, row: Item | None) -> Job | None:
        if row is None or rows.from_item(row, {}).expired(self._clock.now()):
            return None
        return rows.from_item(row, self._texts.of_row(row, lost_is_none=True))

    def _after_mismatch(self, change: Change, failure: ClientError) -> Written | Refused:
        """The token was used within ten minutes for a request of other content. Tokens are made from the attempt, so that
        should be impossible; the row tells what is true."""
        judged = self._judged(change, self._row(change.job_id))
        if isinstance(judged, Refused) and judged.seen is not None and holds(change.condition, judged.seen):
            raise RingfenceError(f"job {change.job_id}: a request token was used for two different transactions") from failure
        return judged

    # --- effects -----------------------------------------------------------------------------------------------------

    def _actions(self, effects: Sequence[Effect]) -> list[dict[str, Any]]:
        if len(effects) > MAX_EFFECTS:
            raise Rejected(f"a transaction takes at most {MAX_EFFECTS} effects", kind="too-many-effects")
        actions = []
        for effect in effects:
            try:
                actions.append(transact_action(effect, self._physical(effect.table)))
            except Rejected as fault:
                raise bad_effect(effect, str(fault)) from fault
        return actions

    def _physical(self, table: str) -> str:
        physical = self._tables.get(table, table)
        if physical == self._table:
            raise Rejected("a job may not touch the ledger's own table", kind=BAD_EFFECT)
        return physical


def _is_at_fault(failure: Exception) -> bool:
    """Whether DynamoDB will never take what the job asked for: a wrong key, a type that does not fit, a table that is not."""
    if isinstance(failure, ParamValidationError):
        return True
    return code_of(failure) in ("ValidationException", "ResourceNotFoundException", "ItemCollectionSizeLimitExceededException")
