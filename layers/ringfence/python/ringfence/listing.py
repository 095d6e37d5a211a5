"""Pages of a tenant's jobs: the order, the cursor, and how far a filtered page looks. Every ledger shares it.

Jobs are listed by their creation, the newest first. Dead ones alone are listed by their end, for they have an index of their
own: what died last comes first, and a page of them is full however few of the jobs there were have died.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import msgspec

from ringfence.errors import Rejected
from ringfence.job import Job, Millis, State
from ringfence.ports import Page
from ringfence.wire import JobId, Time

EXAMINED_PER_PAGE = 200
"""Rows a page looks at: a rare state must not read a whole history in one request."""

CHUNK = 100
"""Rows loaded at once: what one BatchGetItem takes.
https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchGetItem.html"""


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A job's place in the order of a listing; a listing runs from the greatest to the least."""

    at: Millis
    """When it was created or, in a list of dead jobs, when it ended."""
    job_id: str


class _Cursor(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """Whoever sends it may have made it himself: it names a place that a store can be asked for, whatever it says."""

    query: str
    at: Time
    job_id: JobId


@dataclass(frozen=True, slots=True)
class Query:
    """What is listed. A cursor is bound to all of it."""

    tenant: str
    queues: Sequence[str]
    state: State | None = None

    def cursor_after(self, position: Position) -> str:
        """Opaque text from which `position_of` finds the place again: base64url of JSON."""
        fields = _Cursor(self._digest(), position.at, position.job_id)
        return base64.urlsafe_b64encode(msgspec.json.encode(fields)).decode().rstrip("=")

    def position_of(self, cursor: str) -> Position:
        """Raises `Rejected` (400, ``bad-cursor``) for a cursor that is not one, or of another query."""
        try:
            # validate=True: the lenient decoder would read a mangled cursor as a shorter one.
            raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
            found = msgspec.json.decode(raw, type=_Cursor)
        except (ValueError, msgspec.DecodeError):
            raise Rejected("this is not a cursor", kind="bad-cursor", status=400, pointer="/cursor") from None
        if found.query != self._digest():
            raise Rejected("this cursor is of another listing", kind="bad-cursor", status=400, pointer="/cursor")
        return Position(found.at, found.job_id)

    @property
    def by_end(self) -> bool:
        """Whether the index of the dead jobs answers it."""
        return self.state is State.DEAD

    def position(self, job: Job) -> Position | None:
        """Its place in the index that answers the query, though the query may not take it; None if it is not in there."""
        if job.tenant != self.tenant or not (job.state is State.DEAD if self.by_end else job.queue in self.queues):
            return None
        return Position((job.finished_at or 0) if self.by_end else job.created_at, job.job_id)

    def takes(self, job: Job) -> bool:
        return job.tenant == self.tenant and job.queue in self.queues and self.state in (None, job.state)

    def _digest(self) -> str:
        named = json.dumps([self.tenant, sorted(set(self.queues)), self.state])
        return hashlib.sha256(named.encode()).hexdigest()[:16]


def page_of(
    query: Query, positions: Iterator[Position], load: Callable[[Sequence[str]], Mapping[str, Job]], limit: int
) -> Page:
    """The next page: up to ``limit`` jobs that the query takes, of the next `EXAMINED_PER_PAGE` positions.

    ``load`` returns the rows there are (absent and expired ones are left out). A page may hold fewer jobs than ``limit``, even
    none, and still have a cursor.
    """
    wanted = max(1, min(limit, EXAMINED_PER_PAGE))
    jobs: list[Job] = []
    examined = 0
    while len(jobs) < wanted and examined < EXAMINED_PER_PAGE:
        missing = wanted - len(jobs)
        chunk = list(islice(positions, min(missing if query.state is None else CHUNK, CHUNK, EXAMINED_PER_PAGE - examined)))
        rows = load([position.job_id for position in chunk])
        for index, position in enumerate(chunk):
            examined += 1
            row = rows.get(position.job_id)
            if row is not None and query.takes(row):
                jobs.append(_brief(row))
            if len(jobs) == wanted and index + 1 < len(chunk):
                return Page(jobs, query.cursor_after(position))
        if not chunk:
            return Page(jobs, None)
    more = next(positions, None) is not None
    return Page(jobs, query.cursor_after(position) if more else None)


def _brief(job: Job) -> Job:
    return dataclasses.replace(job, payload=None, checkpoint=None, result=None)
