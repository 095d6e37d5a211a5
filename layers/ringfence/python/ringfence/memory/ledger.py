"""The ledger in memory: the core's own `holds` and `apply` under one lock."""

from __future__ import annotations

import dataclasses
import heapq
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from ringfence.change import Change, Refused, Written, apply, holds, is_own_write
from ringfence.effects import MAX_EFFECTS, Effect, Item, Put
from ringfence.errors import Rejected, RingfenceError
from ringfence.ids import shard_of
from ringfence.job import Job, Millis, State
from ringfence.listing import Query, page_of
from ringfence.memory.user_tables import UserTables
from ringfence.ports import DUE_SHARDS, Clock, DueMark, Group, Page, Unmarked

TOKENS_REMEMBERED = 10_000


class MemoryLedger:
    """Jobs and the user's tables of one process; safe to share between threads.

    ``tables`` maps the names of the user's tables to their key attributes: ``{"Users": ("email",)}``.
    """

    def __init__(self, clock: Clock, tables: Mapping[str, Sequence[str]] | None = None) -> None:
        self._clock = clock
        self._rows: dict[str, Job] = {}
        self._groups: dict[tuple[str, Millis], Group] = {}
        self._tables = UserTables(tables or {})
        self._done: dict[str, tuple[Change, tuple[Effect, ...]]] = {}
        self._lock = threading.RLock()

    def register(self, job: Job) -> Job | None:
        """See `ports.Ledger.register`."""
        with self._lock:
            there = self._row(job.job_id)
            if there is not None:
                return None if there.write_id == job.write_id else there
            self._rows[job.job_id] = job
            return None

    def get(self, job_id: str) -> Job | None:
        """See `ports.Ledger.get`."""
        with self._lock:
            return self._row(job_id)

    def write(self, change: Change, effects: Sequence[Effect] = (), *, request_token: str | None = None) -> Written | Refused:
        """See `ports.Ledger.write`. Raises `Rejected` (``bad-effect``) for an effect that can never be carried out."""
        if effects and change.seen is None:
            raise ValueError("a change with effects must name the row it saw")
        with self._lock:
            places = self._prepared(effects)
            row = self._row(change.job_id)
            if row is None or not holds(change.condition, row):
                there = self._rows.get(change.job_id)  # it was written, even if it has expired since
                return Written(there) if there is not None and is_own_write(change, there) else Refused(row)
            self._tables.carry_out(effects, places)
            written = self._rows[change.job_id] = apply(change, row)
            return Written(written)

    def write_many(self, writes: Sequence[Change | Job]) -> list[Written | Refused | None]:
        """See `ports.Ledger.write_many`."""
        return [self._put(write) if isinstance(write, Job) else self.write(write) for write in writes]

    def _put(self, job: Job) -> Written | Refused:
        there = self.register(job)
        return Written(job) if there is None else Refused(there)

    def write_effects(self, held: Change, effects: Sequence[Effect], *, request_token: str) -> Refused | None:
        """See `ports.Ledger.write_effects`. A token that was used is remembered: the same request again has no effect."""
        with self._lock:
            places = self._prepared(effects)
            if request_token in self._done:
                self._ensure_same(held, effects, request_token)
                return None
            row = self._row(held.job_id)
            if row is None or not holds(held.condition, row):
                return Refused(row)
            self._tables.carry_out(effects, places)
            self._remember(held, effects, request_token)
            return None

    def read_item(self, table: str, key: Item) -> Mapping[str, Any] | None:
        """See `ports.Ledger.read_item`."""
        with self._lock:
            return self._tables.read(table, key)

    def peek(self, job_ids: Sequence[str]) -> list[Job]:
        """See `ports.Ledger.peek`."""
        with self._lock:
            return [job for job_id in job_ids if (job := self._row(job_id)) is not None]

    def due(self, shard: int, now: Millis, limit: int, after: DueMark | None = None) -> list[DueMark]:
        """See `ports.Ledger.due`."""
        with self._lock:
            marks = [
                DueMark(job.run_at, job.job_id)
                for job in self._rows.values()
                if job.due_id is not None and not job.in_line and job.run_at is not None and job.run_at <= now
            ]
        in_shard = sorted(mark for mark in marks if shard_of(mark.job_id, DUE_SHARDS) == shard)
        return [mark for mark in in_shard if after is None or mark > after][:limit]

    def line(self, queue: str, limit: int) -> list[Job]:
        """See `ports.Ledger.line`."""
        with self._lock:
            parked = [job for job in self._rows.values() if job.in_line and job.queue == queue]
        return heapq.nsmallest(limit, parked, key=lambda job: (job.run_at, job.created_at))

    def join_line(self, group: Group) -> None:
        """See `ports.Ledger.join_line`."""
        with self._lock:
            self._groups.setdefault((group.queue, group.first_place), group)

    def groups(self, queue: str, limit: int) -> list[Group]:
        """See `ports.Ledger.groups`."""
        with self._lock:
            there = [group for group in self._groups.values() if group.queue == queue]
        return heapq.nsmallest(limit, there, key=lambda group: group.first_place)

    def leave_line(self, group: Group, left: int) -> None:
        """See `ports.Ledger.leave_line`."""
        key = group.queue, group.first_place
        with self._lock:
            there = self._groups.get(key)
            if there is None or left <= there.left:
                return
            if left < len(there.job_ids):
                self._groups[key] = dataclasses.replace(there, left=left)
            else:
                del self._groups[key]

    def list_jobs(
        self, tenant: str, queues: Sequence[str], state: State | None = None, cursor: str | None = None, limit: int = 50
    ) -> Page:
        """See `ports.Ledger.list_jobs`."""
        query = Query(tenant, sorted(set(queues)), state)
        before = None if cursor is None else query.position_of(cursor)
        with self._lock:
            rows = {job_id: job for job_id in self._rows if (job := self._row(job_id)) is not None}
        places = (query.position(job) for job in rows.values())
        positions = sorted((place for place in places if place is not None), reverse=True)
        after_cursor = (position for position in positions if before is None or position < before)
        return page_of(query, after_cursor, lambda job_ids: {job_id: rows[job_id] for job_id in job_ids}, limit)

    def unmarked(self, segment: int, segments: int, cursor: str | None, limit: int) -> Unmarked:
        """See `ports.Ledger.unmarked`."""
        with self._lock:
            here = [job_id for job_id in self._rows if shard_of(job_id, segments) == segment]
            rest = heapq.nsmallest(limit + 1, (job_id for job_id in here if cursor is None or job_id > cursor))
            page = [self._rows[job_id] for job_id in rest[:limit]]
        jobs = [job for job in page if not job.state.terminal and job.due_id is None]
        return Unmarked(jobs, len(page), page[-1].job_id if len(rest) > limit else None)

    def put_item(self, table: str, item: Item) -> None:
        """Write one item of the user's without a condition, and fenced by nothing: what a test begins with."""
        with self._lock:
            effects = [Put(table=table, item=item)]
            self._tables.carry_out(effects, self._prepared(effects))

    def items(self, table: str) -> list[dict[str, Any]]:
        """All items of one of the user's tables; numbers are int or Decimal."""
        with self._lock:
            return self._tables.items(table)

    def all_jobs(self) -> list[Job]:
        """Every row there is, expired ones included, in no order: for checks of a whole history."""
        with self._lock:
            return list(self._rows.values())

    def _row(self, job_id: str) -> Job | None:
        job = self._rows.get(job_id)
        return None if job is None or job.expired(self._clock.now()) else job

    def _prepared(self, effects: Sequence[Effect]) -> list[Any]:
        if len(effects) > MAX_EFFECTS:
            raise Rejected(f"a transaction takes at most {MAX_EFFECTS} effects", kind="too-many-effects")
        return list(self._tables.prepare(effects))

    def _ensure_same(self, held: Change, effects: Sequence[Effect], request_token: str) -> None:
        if self._done[request_token] != (dataclasses.replace(held, seen=None), tuple(effects)):
            raise RingfenceError(f"job {held.job_id}: a request token was used for two different transactions")

    def _remember(self, held: Change, effects: Sequence[Effect], request_token: str) -> None:
        self._done[request_token] = dataclasses.replace(held, seen=None), tuple(effects)
        if len(self._done) > TOKENS_REMEMBERED:
            self._done.pop(next(iter(self._done)))
