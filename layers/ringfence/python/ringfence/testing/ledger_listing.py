"""The part of the ledger's contract that is about finding jobs: registering, expiry, due marks, and pages of a listing."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import replace

import pytest

from ringfence import transitions
from ringfence.change import Refused
from ringfence.errors import Rejected
from ringfence.ids import shard_of
from ringfence.job import Job, PastAttempt, Progress, State
from ringfence.listing import EXAMINED_PER_PAGE
from ringfence.ports import DUE_SHARDS, Ledger
from ringfence.testing.given import RETENTION_SECONDS, Given


class LedgerRegistering:
    """Put-if-absent, and what expiry means."""

    def test_a_row_is_registered_once(self, given: Given, ledger: Ledger) -> None:
        first = given.row()
        second = replace(first, write_id=given.mark())
        assert ledger.register(first) is None
        assert ledger.register(second) == first
        assert ledger.get(first.job_id) == first

    def test_a_registration_whose_reply_was_lost_is_our_own(self, given: Given, ledger: Ledger) -> None:
        job = given.row()
        assert ledger.register(job) is None
        assert ledger.register(job) is None

    def test_a_registration_does_not_set_a_job_back(self, given: Given, ledger: Ledger) -> None:
        accepted = given.row()
        ledger.register(accepted)
        claimed = given.claimed(accepted)
        assert ledger.register(accepted) == claimed
        assert ledger.get(accepted.job_id) == claimed

    def test_every_field_of_a_row_comes_back(self, given: Given, ledger: Ledger) -> None:
        now = given.clock.now()
        full = given.row(
            tenant="a#b%23/é",
            queue="q#1",
            name="näme",
            state=State.SCHEDULED,
            token=7,
            version=12,
            attempts=2,
            max_attempts=9,
            run_at=now + 1,
            due_id=given.mark(),
            created_at=now - 5,
            started_at=now,
            hand_overs=2,
            cancel_requested=True,
            checkpoint="[]",
            error="e",
            progress=Progress(1, 3),
            traceparent="00-" + "a" * 32 + "-" + "b" * 16 + "-01",
            history=(PastAttempt(3, now, now + 9, "retry"), PastAttempt(4, now, now - 1, "odd")),
        )
        assert ledger.register(full) is None
        assert ledger.get(full.job_id) == full

    def test_an_expired_row_counts_as_absent(self, given: Given, ledger: Ledger) -> None:
        dead = given.dead(tenant=f"tenant-{given.mark()}")
        given.clock.advance(RETENTION_SECONDS)
        assert ledger.get(dead.job_id) == dead
        given.clock.advance(1)
        assert ledger.get(dead.job_id) is None
        redrive = transitions.redrive(dead, write_id=given.mark(), now=given.clock.now(), due_id=given.mark())
        assert ledger.write(redrive) == Refused(None)
        assert ledger.list_jobs(dead.tenant, [dead.queue]).jobs == []

    def test_a_row_is_registered_over_an_expired_one(self, given: Given, ledger: Ledger) -> None:
        """An idempotency key lives as long as its row."""
        old = given.succeeded(result="[" + "1" * 700 + "]")
        again = given.row(job_id=old.job_id)
        assert ledger.register(again) == old
        given.clock.advance(RETENTION_SECONDS + 1)
        assert ledger.register(again) is None
        assert ledger.get(old.job_id) == again


class LedgerDue:
    """The due index: a row is in it exactly while it has a due mark."""

    def test_a_marked_row_is_due_from_its_time_on(self, given: Given, ledger: Ledger) -> None:
        job = given.scheduled(in_seconds=10)
        run_at = given.clock.now() + 10_000
        assert not _is_due(ledger, job, run_at - 1)
        assert _is_due(ledger, job, run_at)

    def test_a_waiting_row_without_a_mark_is_never_due(self, given: Given, ledger: Ledger) -> None:
        job = given.queued(run_at=given.clock.now())
        assert not _is_due(ledger, job, given.clock.now() + 10**9)

    def test_a_row_is_in_one_shard_only(self, given: Given, ledger: Ledger) -> None:
        job = given.scheduled(in_seconds=0)
        there = [shard for shard in range(DUE_SHARDS) if job.job_id in _due(ledger, shard, given.clock.now())]
        assert there == [shard_of(job.job_id, DUE_SHARDS)]

    def test_a_mark_lives_from_the_write_that_sets_it_to_the_one_that_clears_it(self, given: Given, ledger: Ledger) -> None:
        later = given.clock.now() + 10**9
        job = given.scheduled(in_seconds=0)
        job = given.claimed(job)
        assert _is_due(ledger, job, later), "a claim leaves the mark alone"
        job = given.done(transitions.clear_mark(job, write_id=given.mark()))
        assert not _is_due(ledger, job, later)
        now, due_id = given.clock.now(), given.mark()
        job = given.done(transitions.retry_later(job, "x", write_id=given.mark(), now=now, run_at=now + 5, due_id=due_id))
        assert _is_due(ledger, job, later)

    def test_a_terminal_write_removes_the_mark_and_a_redrive_sets_one(self, given: Given, ledger: Ledger) -> None:
        later = given.clock.now() + 10**9
        job = given.claimed(given.scheduled(in_seconds=0))
        now, expires_at = given.clock.now(), given.expiry()
        job = given.done(transitions.give_up(job, "x", write_id=given.mark(), now=now, expires_at=expires_at))
        assert not _is_due(ledger, job, later)
        job = given.done(transitions.redrive(job, write_id=given.mark(), now=now, due_id=given.mark()))
        assert _is_due(ledger, job, now)

    def test_the_longest_due_come_first_up_to_the_limit(self, given: Given, ledger: Ledger) -> None:
        # Before every other mark there may be in a shared store.
        start = 1_000_000
        ids = _ids_of_one_shard(given, 5)
        for age, job_id in enumerate(ids):
            run_at = start + (3 * age) % 5
            given.queued(job_id=job_id, state=State.SCHEDULED, run_at=run_at, due_id=given.mark())
        by_age = [ids[0], ids[2], ids[4], ids[1], ids[3]]
        shard = shard_of(ids[0], DUE_SHARDS)
        assert _due(ledger, shard, start + 9) == by_age
        first = ledger.due(shard, start + 9, 2)
        assert [mark.job_id for mark in first] == by_age[:2]
        beyond = ledger.due(shard, start + 9, 10, first[-1])
        assert [mark.job_id for mark in beyond] == by_age[2:]


class LedgerListing:
    """Pages of a tenant's jobs."""

    @pytest.fixture
    def tenant(self, given: Given) -> str:
        """A tenant of its own for each test."""
        return f"tenant-{given.mark()}"

    def test_pages_are_newest_first_complete_and_without_repeats(self, given: Given, ledger: Ledger, tenant: str) -> None:
        jobs = _registered(given, ledger, tenant, [given.clock.now() + n // 3 for n in range(25)])
        expected = sorted(jobs, key=lambda job: (job.created_at, job.job_id), reverse=True)
        pages = _pages(ledger, tenant, ["default", "priority"], limit=4)
        assert [len(page) for page in pages] == [4, 4, 4, 4, 4, 4, 1]
        assert [job for page in pages for job in page] == [replace(job, payload=None) for job in expected]

    @pytest.mark.parametrize("limit", [3, 7, 50])
    def test_jobs_of_one_millisecond_are_listed_each_once(self, given: Given, ledger: Ledger, tenant: str, limit: int) -> None:
        jobs = _registered(given, ledger, tenant, [given.clock.now()] * 20)
        listed = [job.job_id for page in _pages(ledger, tenant, ["default", "priority"], limit) for job in page]
        assert sorted(listed) == sorted(job.job_id for job in jobs)

    def test_the_last_page_has_no_cursor(self, given: Given, ledger: Ledger, tenant: str) -> None:
        _registered(given, ledger, tenant, [given.clock.now()] * 4)
        first = ledger.list_jobs(tenant, ["default", "priority"], limit=2)
        assert first.cursor is not None
        second = ledger.list_jobs(tenant, ["default", "priority"], cursor=first.cursor, limit=2)
        assert (len(second.jobs), second.cursor) == (2, None)
        assert ledger.list_jobs(f"{tenant}x", ["default"]).cursor is None
        assert ledger.list_jobs(tenant, []).jobs == []

    def test_a_job_that_comes_meanwhile_moves_nothing(self, given: Given, ledger: Ledger, tenant: str) -> None:
        jobs = _registered(given, ledger, tenant, [given.clock.now() + n for n in range(4)])
        first = ledger.list_jobs(tenant, ["default", "priority"], limit=2)
        _registered(given, ledger, tenant, [given.clock.now() + 100])
        second = ledger.list_jobs(tenant, ["default", "priority"], cursor=first.cursor, limit=2)
        assert [job.job_id for job in second.jobs] == [jobs[1].job_id, jobs[0].job_id]

    def test_a_queue_and_a_tenant_are_listed_apart(self, given: Given, ledger: Ledger, tenant: str) -> None:
        """C37: names that would run together in an index key belong to different listings."""
        mine = given.queued(tenant=tenant, queue="b#c")
        others = given.queued(tenant=f"{tenant}#b", queue="c")
        assert [job.job_id for job in ledger.list_jobs(tenant, ["b#c"]).jobs] == [mine.job_id]
        assert [job.job_id for job in ledger.list_jobs(f"{tenant}#b", ["c"]).jobs] == [others.job_id]
        assert ledger.list_jobs(tenant, ["c", "b", "default"]).jobs == []

    def test_a_state_is_filtered(self, given: Given, ledger: Ledger, tenant: str) -> None:
        made = {
            State.QUEUED: given.queued(tenant=tenant),
            State.SCHEDULED: given.scheduled(tenant=tenant),
            State.RUNNING: given.running(tenant=tenant),
            State.SUCCEEDED: given.succeeded(tenant=tenant),
            State.DEAD: given.dead(tenant=tenant),
            State.CANCELLED: given.cancelled(tenant=tenant),
        }
        for state, job in made.items():
            page = ledger.list_jobs(tenant, ["default"], state)
            assert ([job.job_id for job in page.jobs], page.cursor) == ([job.job_id], None)

    def test_the_dead_are_listed_by_their_end_and_a_redriven_one_no_more(
        self, given: Given, ledger: Ledger, tenant: str
    ) -> None:
        jobs = [given.running(tenant=tenant, queue=queue) for queue in ("default", "priority", "default")]
        died = []
        for job in (jobs[1], jobs[2], jobs[0]):  # not in the order of their creation
            given.clock.advance(1)
            now, expires_at = given.clock.now(), given.expiry()
            died.append(given.done(transitions.give_up(job, "x", write_id=given.mark(), now=now, expires_at=expires_at)))
        both = ["default", "priority"]
        listed = [job.job_id for page in _pages(ledger, tenant, both, 2, State.DEAD) for job in page]
        assert listed == [job.job_id for job in reversed(died)]
        assert [job.job_id for job in ledger.list_jobs(tenant, ["priority"], State.DEAD).jobs] == [died[0].job_id]
        given.done(transitions.redrive(died[2], write_id=given.mark(), now=given.clock.now(), due_id=given.mark()))
        assert [job.job_id for job in ledger.list_jobs(tenant, both, State.DEAD).jobs] == [died[1].job_id, died[0].job_id]

    def test_a_rare_state_ends_a_page_after_so_many_rows(self, given: Given, ledger: Ledger, tenant: str) -> None:
        rare, dead = given.scheduled(tenant=tenant), given.dead(tenant=tenant)
        given.clock.advance(1)
        _registered(given, ledger, tenant, [given.clock.now()] * EXAMINED_PER_PAGE)
        first = ledger.list_jobs(tenant, ["default", "priority"], State.SCHEDULED, limit=5)
        assert first.jobs == []
        assert first.cursor is not None
        second = ledger.list_jobs(tenant, ["default", "priority"], State.SCHEDULED, first.cursor, limit=5)
        assert [job.job_id for job in second.jobs] == [rare.job_id]
        assert second.cursor is None
        found = ledger.list_jobs(tenant, ["default", "priority"], State.DEAD, limit=5)  # by an index of its own
        assert ([job.job_id for job in found.jobs], found.cursor) == ([dead.job_id], None)

    def test_a_listing_loads_the_error_but_no_other_text(self, given: Given, ledger: Ledger, tenant: str) -> None:
        short = given.dead(error="short", tenant=tenant)
        given.clock.advance(1)
        long = given.dead(error="long " * 300, payload="[" + "1" * 900 + "]", tenant=tenant)
        given.clock.advance(1)
        done = given.succeeded(result="[" + "2" * 900 + "]", tenant=tenant)
        jobs = ledger.list_jobs(tenant, ["default"]).jobs
        assert jobs == [replace(job, payload=None, result=None) for job in (done, long, short)]

    def test_a_cursor_is_only_good_for_its_own_listing(self, given: Given, ledger: Ledger, tenant: str) -> None:
        """C37: a cursor of another tenant's opens nothing."""
        _registered(given, ledger, tenant, [given.clock.now()] * 3)
        cursor = ledger.list_jobs(tenant, ["default", "priority"], limit=1).cursor
        assert cursor is not None
        foreign: list[tuple[str, Sequence[str], State | None]] = [
            (f"{tenant}x", ["default", "priority"], None),
            (tenant, ["default"], None),
            (tenant, ["default", "priority"], State.QUEUED),
        ]
        for other_tenant, queues, state in foreign:
            with pytest.raises(Rejected) as refusal:
                ledger.list_jobs(other_tenant, queues, state, cursor)
            assert (refusal.value.kind, refusal.value.status) == ("bad-cursor", 400)
        assert len(ledger.list_jobs(tenant, ["priority", "default"], None, cursor).jobs) == 2

    @pytest.mark.parametrize("cursor", ["", "x", "\x00", "é", "e30", "bnVsbA", base64.urlsafe_b64encode(b"[1,2,3]").decode()])
    def test_what_is_no_cursor_is_refused(self, ledger: Ledger, tenant: str, cursor: str) -> None:
        with pytest.raises(Rejected) as refusal:
            ledger.list_jobs(tenant, ["default"], cursor=cursor)
        assert (refusal.value.kind, refusal.value.status) == ("bad-cursor", 400)

    def test_a_mangled_cursor_is_refused(self, given: Given, ledger: Ledger, tenant: str) -> None:
        _registered(given, ledger, tenant, [given.clock.now()] * 9)
        cursor = ledger.list_jobs(tenant, ["default", "priority"], limit=1).cursor
        assert cursor is not None
        for mangled in (cursor[:-4], cursor[4:], cursor + "AAAA", cursor + "!", cursor[:8] + "*" + cursor[8:]):
            with pytest.raises(Rejected):
                ledger.list_jobs(tenant, ["default", "priority"], cursor=mangled)


def _is_due(ledger: Ledger, job: Job, at: int) -> bool:
    return job.job_id in _due(ledger, shard_of(job.job_id, DUE_SHARDS), at)


def _due(ledger: Ledger, shard: int, at: int) -> list[str]:
    return [mark.job_id for mark in ledger.due(shard, at, 1_000)]


def _ids_of_one_shard(given: Given, count: int) -> list[str]:
    ids: list[str] = []
    while len(ids) < count:
        candidate = given.row().job_id
        if not ids or shard_of(candidate, DUE_SHARDS) == shard_of(ids[0], DUE_SHARDS):
            ids.append(candidate)
    return ids


def _registered(given: Given, ledger: Ledger, tenant: str, created: Sequence[int]) -> list[Job]:
    """Jobs created at these times, in two queues by turns."""
    jobs = [
        given.row(tenant=tenant, queue=("default", "priority")[index % 2], created_at=at) for index, at in enumerate(created)
    ]
    assert [ledger.register(job) for job in jobs] == [None] * len(jobs)
    return jobs


def _pages(ledger: Ledger, tenant: str, queues: Sequence[str], limit: int, state: State | None = None) -> list[list[Job]]:
    pages, cursor = [], None
    while True:
        page = ledger.list_jobs(tenant, queues, state, cursor, limit)
        pages.append(page.jobs)
        cursor = page.cursor
        if cursor is None:
            return pages
