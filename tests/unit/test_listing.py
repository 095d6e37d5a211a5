"""Pages over a list of positions: how many rows are loaded, and where the next page begins."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence

import pytest

from ringfence.errors import Rejected
from ringfence.job import Job, State
from ringfence.listing import CHUNK, EXAMINED_PER_PAGE, Position, Query, page_of
from ringfence.ports import Page

QUERY = Query("acme", ["default"])


def row(number: int, state: State = State.QUEUED, tenant: str = "acme") -> Job:
    return Job(
        job_id=f"job{number:04}",
        tenant=tenant,
        queue="default",
        name="n",
        payload="{}",
        payload_sha256="00" * 32,
        state=state,
        created_at=number,
    )


class Rows:
    """Rows by number, newest first, and how they were loaded."""

    def __init__(self, *jobs: Job) -> None:
        self._jobs = {job.job_id: job for job in jobs}
        self.loads: list[int] = []

    def page(self, query: Query, limit: int, cursor: str | None = None) -> Page:
        before = None if cursor is None else query.position_of(cursor)
        positions = sorted((Position(job.created_at, job.job_id) for job in self._jobs.values()), reverse=True)
        return page_of(query, (p for p in positions if before is None or p < before), self._load, limit)

    def _load(self, job_ids: Sequence[str]) -> Mapping[str, Job]:
        self.loads.append(len(job_ids))
        return {job_id: self._jobs[job_id] for job_id in job_ids}


def test_an_unfiltered_page_loads_no_more_than_it_shows() -> None:
    rows = Rows(*(row(n) for n in range(30)))
    assert len(rows.page(QUERY, 7).jobs) == 7
    assert rows.loads == [7]


def test_a_filtered_page_loads_by_the_batch_and_ends_after_so_many() -> None:
    rows = Rows(*(row(n) for n in range(EXAMINED_PER_PAGE + 50)))
    page = rows.page(Query("acme", ["default"], State.DEAD), 10)
    assert page.jobs == []
    assert page.cursor is not None
    assert rows.loads == [CHUNK, EXAMINED_PER_PAGE - CHUNK]


def test_a_page_that_ends_within_a_batch_goes_on_from_there() -> None:
    query = Query("acme", ["default"], State.DEAD)
    rows = Rows(*(row(n, State.DEAD if n % 3 == 0 else State.QUEUED) for n in range(60)))
    first = rows.page(query, 4)
    second = rows.page(query, 100, first.cursor)
    assert [job.created_at for job in first.jobs] == [57, 54, 51, 48]
    assert [job.created_at for job in second.jobs] == list(range(45, -1, -3))
    assert second.cursor is None


@pytest.mark.parametrize("limit", [-1, 0, 1])
def test_a_page_shows_at_least_one_job(limit: int) -> None:
    assert len(Rows(row(1), row(2)).page(QUERY, limit).jobs) == 1


def test_a_page_never_examines_more_than_its_share_whatever_is_asked() -> None:
    rows = Rows(*(row(n) for n in range(EXAMINED_PER_PAGE + 1)))
    assert len(rows.page(QUERY, 10**9).jobs) == EXAMINED_PER_PAGE


def test_a_row_of_another_tenant_is_never_shown() -> None:
    """Even if an index led to it."""
    assert Rows(row(1, tenant="other"), row(2)).page(QUERY, 10).jobs[0].created_at == 2
    assert len(Rows(row(1, tenant="other"), row(2)).page(QUERY, 10).jobs) == 1


def test_a_cursor_tells_no_tenant_and_fits_a_url() -> None:
    cursor = Rows(row(1), row(2)).page(QUERY, 1).cursor
    assert cursor is not None
    assert cursor.replace("-", "").replace("_", "").isalnum()
    assert "acme" not in base64.urlsafe_b64decode(cursor + "==").decode()


def test_the_order_of_queues_does_not_matter_to_a_cursor() -> None:
    cursor = Query("acme", ["a", "b"]).cursor_after(Position(1, "x"))
    assert Query("acme", ["b", "a", "b"]).position_of(cursor) == Position(1, "x")


@pytest.mark.parametrize("fields", [[], ["x", 1], ["x", "1", "j"], ["x", 1.5, "j"], ["x", 1, 2], ["x", 1, "j", 0], {}])
def test_json_that_is_no_cursor_is_refused(fields: object) -> None:
    cursor = base64.urlsafe_b64encode(json.dumps(fields).encode()).decode().rstrip("=")
    with pytest.raises(Rejected) as refusal:
        QUERY.position_of(cursor)
    assert refusal.value.status == 400


@pytest.mark.parametrize(
    ("created_at", "job_id"), [(-1, "j"), (10**39, "j"), (10**400, "j"), (1, ""), (1, "q#0"), (1, "j" * 65), (1, "é")]
)
def test_a_cursor_of_ones_own_making_names_a_place_that_a_store_can_be_asked_for(created_at: int, job_id: str) -> None:
    """DynamoDB answers a number of 39 digits with an error that would be ours."""
    query, _, _ = json.loads(base64.urlsafe_b64decode(QUERY.cursor_after(Position(1, "j")) + "=="))
    cursor = base64.urlsafe_b64encode(json.dumps([query, created_at, job_id]).encode()).decode().rstrip("=")
    with pytest.raises(Rejected) as refusal:
        QUERY.position_of(cursor)
    assert (refusal.value.status, refusal.value.kind) == (400, "bad-cursor")
