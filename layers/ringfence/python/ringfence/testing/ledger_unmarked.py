"""The part of the ledger's contract that is about finding jobs that may have no ticket: a page of all rows after another."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ringfence import transitions
from ringfence.job import Job, State
from ringfence.ports import Ledger, Unmarked
from ringfence.testing.given import Given


def pages(ledger: Ledger, segment: int, segments: int, limit: int) -> Iterator[Unmarked]:
    """A whole segment."""
    cursor = None
    while True:
        page = ledger.unmarked(segment, segments, cursor, limit)
        yield page
        cursor = page.cursor
        if cursor is None:
            return


def found(ledger: Ledger, segments: int = 4, limit: int = 200) -> list[Job]:
    """All of them, in whatever order."""
    return [job for segment in range(segments) for page in pages(ledger, segment, segments, limit) for job in page.jobs]


class LedgerUnmarked:
    """`unmarked`: unfinished jobs without a due mark."""

    @pytest.fixture
    def queue(self, given: Given) -> str:
        """A queue of which no other test has jobs."""
        return f"q#%{given.mark()}"

    def test_they_are_those_that_are_unfinished_and_have_no_mark(self, given: Given, ledger: Ledger, queue: str) -> None:
        now = given.clock.now()
        retried = transitions.retry_soon(given.running(queue=queue), "no", write_id=given.mark(), now=now, run_at=now + 9)
        wanted = [given.queued(queue=queue), given.running(queue=queue), given.done(retried)]
        given.scheduled(queue=queue)
        for end in (given.dead, given.succeeded, given.cancelled):
            end(queue=queue)
        marked = given.queued(queue=queue)
        given.done(transitions.mark_again(marked, write_id=given.mark(), run_at=now, due_id=given.mark()))

        there = [job for job in found(ledger) if job.queue == queue]
        assert sorted(job.job_id for job in there) == sorted(job.job_id for job in wanted)

    def test_they_tell_enough_to_push_a_ticket_and_to_know_their_age(self, given: Given, ledger: Ledger, queue: str) -> None:
        job = given.running(queue=queue, tenant="a#b", name="index")
        (there,) = [each for each in found(ledger) if each.queue == queue]
        assert (there.tenant, there.name, there.state, there.token) == ("a#b", "index", State.RUNNING, 1)
        assert (there.created_at, there.lease_until, there.version) == (job.created_at, job.lease_until, job.version)

    def test_each_is_in_one_page_of_one_segment(self, given: Given, ledger: Ledger, queue: str) -> None:
        wanted = sorted(given.queued("[" + "1" * 3_000 * (number % 2) + "]", queue=queue).job_id for number in range(16))
        segments = [list(pages(ledger, segment, 3, 3)) for segment in range(3)]
        assert all(page.examined <= 3 for of_segment in segments for page in of_segment)
        in_segments = [[job.job_id for page in each for job in page.jobs if job.queue == queue] for each in segments]
        assert sorted(job_id for each in in_segments for job_id in each) == wanted
        assert len(wanted) == 16

    def test_a_change_on_the_way_hides_no_other(self, given: Given, ledger: Ledger, queue: str) -> None:
        wanted = {given.queued(queue=queue).job_id for _ in range(12)}
        seen: set[str] = set()
        for page in pages(ledger, 0, 1, 3):
            mine = [job for job in page.jobs if job.queue == queue]
            seen |= {job.job_id for job in mine}
            for job in mine:
                due_id = given.mark()
                given.done(transitions.mark_again(job, write_id=given.mark(), run_at=given.clock.now(), due_id=due_id))
        assert seen == wanted

    def test_a_mark_put_on_again_brings_the_job_where_timers_look(self, given: Given, ledger: Ledger, queue: str) -> None:
        waiting, running = given.queued(queue=queue), given.running(queue=queue)
        for job, state in ((waiting, State.SCHEDULED), (running, State.RUNNING)):
            change = transitions.mark_again(job, write_id=given.mark(), run_at=given.clock.now(), due_id=f"+{given.mark()}")
            assert given.exactly_done(change, job).state is state
            given.refused(transitions.mark_again(job, write_id=given.mark(), run_at=0, due_id=given.mark()))
        assert {job.job_id for job in ledger.line(queue, 9)} == {waiting.job_id, running.job_id}
        assert [job for job in found(ledger) if job.queue == queue] == []
