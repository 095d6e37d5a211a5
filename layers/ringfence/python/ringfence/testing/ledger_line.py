"""The part of the ledger's contract that is about parking: the line of a queue, and many changes in one call."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ringfence import transitions
from ringfence.change import Change, Refused, Written, apply
from ringfence.ids import shard_of
from ringfence.job import LINE_MARK, Job, Millis, State
from ringfence.ports import DUE_SHARDS, Group, Ledger
from ringfence.testing.given import Given
from ringfence.wire import record_of


def parking(given: Given, job: Job, place: Millis) -> Change:
    due_id = LINE_MARK + given.mark()
    return transitions.park(record_of(job), write_id=given.mark(), run_at=place, due_id=due_id)


class LedgerLine:
    """Parking, and who stands in line."""

    @pytest.fixture
    def queue(self, given: Given) -> str:
        """A queue that no other test parks jobs of, with what separates the parts of an index key in its name."""
        return f"q#%{given.mark()}"

    def _parked(self, given: Given, queue: str, count: int) -> list[Job]:
        start = given.clock.now()
        jobs = [given.queued(queue=queue, tenant="a#b") for _ in range(count)]
        return [given.done(parking(given, job, start + place)) for place, job in enumerate(jobs)]

    def test_a_parked_job_waits_on_its_row_and_in_the_line_of_its_queue(self, given: Given, ledger: Ledger, queue: str) -> None:
        accepted = given.queued(queue=queue)
        job = given.exactly_done(parking(given, accepted, given.clock.now()), accepted)
        assert (job.state, job.in_line, job.run_at) == (State.SCHEDULED, True, given.clock.now())
        assert [there.job_id for there in ledger.line(queue, 10)] == [job.job_id]
        assert ledger.line(queue + "x", 10) == []

    def test_the_first_are_first_whatever_their_shards(self, given: Given, ledger: Ledger, queue: str) -> None:
        jobs = self._parked(given, queue, 60)
        assert len({shard_of(job.job_id, DUE_SHARDS) for job in jobs}) > 1
        assert [job.job_id for job in ledger.line(queue, 100)] == [job.job_id for job in jobs]
        assert [job.job_id for job in ledger.line(queue, 7)] == [job.job_id for job in jobs[:7]]

    def test_a_line_tells_enough_to_push_a_ticket_and_to_clear_the_mark(self, given: Given, ledger: Ledger, queue: str) -> None:
        (job,) = self._parked(given, queue, 1)
        (there,) = ledger.line(queue, 1)
        assert (there.tenant, there.queue, there.name) == (job.tenant, queue, job.name)
        cleared = given.done(transitions.clear_mark(there, write_id=given.mark()))
        assert (cleared.state, cleared.due_id) == (State.QUEUED, None)
        assert ledger.line(queue, 1) == []

    def test_whoever_has_left_is_no_hole_in_the_line(self, given: Given, ledger: Ledger, queue: str) -> None:
        jobs = self._parked(given, queue, 30)
        for job in jobs[:25]:
            given.done(transitions.clear_mark(job, write_id=given.mark()))
        assert [job.job_id for job in ledger.line(queue, 5)] == [job.job_id for job in jobs[25:]]

    def test_who_stands_in_line_is_not_due_and_the_other_way_round(self, given: Given, ledger: Ledger, queue: str) -> None:
        (job,) = self._parked(given, queue, 1)
        later = given.clock.now() + 10**9
        shard = shard_of(job.job_id, DUE_SHARDS)
        assert job.job_id not in [mark.job_id for mark in ledger.due(shard, later, 10_000)]
        waiting = given.scheduled(in_seconds=0, queue=queue)
        assert [there.job_id for there in ledger.line(queue, 10)] == [job.job_id]
        place = given.clock.now() + 1
        joined = transitions.join_line(waiting, write_id=given.mark(), place=place, due_id=LINE_MARK + given.mark())
        given.exactly_done(joined, waiting)
        assert [there.job_id for there in ledger.line(queue, 10)] == [job.job_id, waiting.job_id]
        shard = shard_of(waiting.job_id, DUE_SHARDS)
        assert waiting.job_id not in [mark.job_id for mark in ledger.due(shard, later, 10_000)]

    def test_a_job_parked_until_its_time_is_due_then_and_not_in_line(self, given: Given, ledger: Ledger, queue: str) -> None:
        job = given.queued(queue=queue)
        at = given.clock.now() + 60_000
        given.done(transitions.park(record_of(job), write_id=given.mark(), run_at=at, due_id=given.mark()))
        shard = shard_of(job.job_id, DUE_SHARDS)
        assert job.job_id in [mark.job_id for mark in ledger.due(shard, at, 10_000)]
        assert ledger.line(queue, 10) == []

    def test_an_ended_job_leaves_the_line(self, given: Given, ledger: Ledger, queue: str) -> None:
        (job,) = self._parked(given, queue, 1)
        now = given.clock.now()
        given.done(transitions.cancel_seen(job, write_id=given.mark(), now=now, expires_at=given.expiry()))
        assert ledger.line(queue, 10) == []

    @pytest.mark.parametrize("state", ["running", "retried", "parked", "ended"])
    def test_only_a_job_that_nobody_has_claimed_yet_is_parked(self, given: Given, state: str) -> None:
        """A record that is read again must not park a job that runs, or set back one that wants a retry."""
        job = given.queued()
        again = parking(given, job, given.clock.now())
        now = given.clock.now()
        match state:
            case "running":
                given.claimed(job)
            case "retried":
                given.done(transitions.retry_soon(given.claimed(job), "x", write_id=given.mark(), now=now, run_at=now))
            case "parked":
                given.done(parking(given, job, now))
            case "ended":
                given.done(transitions.cancel_seen(job, write_id=given.mark(), now=now, expires_at=given.expiry()))
        given.refused(again)

    def test_a_park_whose_reply_was_lost_is_our_own(self, given: Given, ledger: Ledger) -> None:
        job = given.queued()
        change = parking(given, job, given.clock.now())
        assert ledger.write(change) == ledger.write(change) == Written(apply(change, job))


class LedgerGroups:
    """Jobs that stand in line as one."""

    @pytest.fixture
    def queue(self, given: Given) -> str:
        """A queue that no other test parks jobs of."""
        return f"q#%{given.mark()}"

    def _group(self, given: Given, queue: str, count: int, *, behind: Millis = 0) -> Group:
        job_ids = [f"job-{given.mark()}" for _ in range(count)]
        return Group(queue, given.clock.now() + behind, job_ids)

    def test_the_first_group_is_the_one_with_the_first_place(self, given: Given, ledger: Ledger, queue: str) -> None:
        groups = [self._group(given, queue, 3, behind=behind) for behind in (0, 3, 9_999_999_999)]
        for group in (groups[1], groups[2], groups[0]):
            ledger.join_line(group)
        assert ledger.groups(queue, 10) == groups
        assert ledger.groups(queue, 2) == groups[:2]
        assert ledger.groups(queue + "x", 10) == []
        assert ledger.groups(queue[:-1], 10) == []
        assert ledger.line(queue, 10) == []

    def test_a_group_tells_who_waits_and_in_what_places(self, given: Given, ledger: Ledger, queue: str) -> None:
        group = self._group(given, queue, 4)
        ledger.join_line(group)
        (there,) = ledger.groups(queue, 1)
        assert there.waiting == [(job_id, group.first_place + index) for index, job_id in enumerate(group.job_ids)]
        ledger.leave_line(there, 3)
        (there,) = ledger.groups(queue, 1)
        assert there.waiting == [(group.job_ids[3], group.first_place + 3)]
        assert (there.first_place, there.last_place) == (group.first_place, group.first_place + 3)

    def test_who_has_left_does_not_come_back(self, given: Given, ledger: Ledger, queue: str) -> None:
        """Neither by the same group once more, nor by somebody who knows of fewer."""
        group = self._group(given, queue, 4)
        ledger.join_line(group)
        ledger.leave_line(group, 2)
        ledger.join_line(group)
        ledger.leave_line(group, 1)
        assert [there.left for there in ledger.groups(queue, 1)] == [2]

    def test_a_group_that_all_have_left_is_gone(self, given: Given, ledger: Ledger, queue: str) -> None:
        group, behind = self._group(given, queue, 2), self._group(given, queue, 2, behind=2)
        ledger.join_line(group)
        ledger.join_line(behind)
        ledger.leave_line(group, 2)
        ledger.leave_line(group, 1)
        ledger.leave_line(group, 2)
        assert ledger.groups(queue, 10) == [behind]

    def test_a_hundred_jobs_with_the_longest_ids_fit(self, given: Given, ledger: Ledger, queue: str) -> None:
        group = Group(queue, given.clock.now(), [f"{number:064}" for number in range(100)])
        ledger.join_line(group)
        assert ledger.groups(queue, 1) == [group]


class LedgerManyChanges:
    """`write_many`: as many `write`s and `register`s."""

    def test_each_change_is_decided_for_itself(self, given: Given, ledger: Ledger) -> None:
        jobs = [given.queued() for _ in range(60)]
        changes = [parking(given, job, given.clock.now() + place) for place, job in enumerate(jobs)]
        running = given.claimed(jobs[7])
        unknown = given.row()
        changes[40] = parking(given, unknown, given.clock.now())
        outcomes = ledger.write_many(changes)
        assert outcomes[7] == Refused(running)
        assert outcomes[40] == Refused(None)
        others = [index for index in range(60) if index not in (7, 40)]
        assert all(isinstance(outcomes[index], Written) for index in others)
        assert [ledger.get(jobs[index].job_id) for index in others] == [apply(changes[index], jobs[index]) for index in others]
        assert ledger.get(running.job_id) == running
        assert ledger.get(unknown.job_id) is None

    def test_changes_that_were_written_before_are_our_own(self, given: Given, ledger: Ledger) -> None:
        jobs = [given.queued() for _ in range(3)]
        changes = [parking(given, job, given.clock.now()) for job in jobs]
        ledger.write_many(changes)
        outcomes = ledger.write_many(changes)
        assert outcomes == [Written(apply(change, job)) for change, job in zip(changes, jobs, strict=True)]

    def test_one_change_and_none(self, given: Given, ledger: Ledger) -> None:
        job = given.queued()
        change = parking(given, job, given.clock.now())
        assert ledger.write_many([change]) == [Written(apply(change, job))]
        assert ledger.write_many([]) == []

    def test_a_change_with_a_large_text_is_written_with_it(self, given: Given, ledger: Ledger) -> None:
        rows = [given.running(), given.running()]
        large = "[" + "1" * 3_000 + "]"
        assert all(isinstance(outcome, Written) for outcome in ledger.write_many([given.success(job, large) for job in rows]))
        assert [(there := ledger.get(job.job_id)) and there.result for job in rows] == [large, large]

    def test_an_expired_row_is_not_written(self, given: Given, ledger: Ledger) -> None:
        jobs = [given.succeeded(), given.queued()]
        given.clock.advance(10**7)
        changes = [parking(given, replace(job, state=State.QUEUED), given.clock.now()) for job in jobs]
        outcomes = ledger.write_many(changes)
        assert outcomes[0] == Refused(None)
        assert isinstance(outcomes[1], Written)

    # --- new rows --------------------------------------------------------------------------------------------------------

    def test_new_rows_are_put_beside_changes_and_each_is_decided_for_itself(
        self, given: Given, ledger: Ledger, queue: str
    ) -> None:
        start = given.clock.now()
        new = [given.parked_row(queue=queue, run_at=start + place) for place in range(0, 60, 2)]
        accepted = [given.queued(queue=queue) for _ in range(30)]
        changes = [parking(given, job, start + 1 + 2 * place) for place, job in enumerate(accepted)]
        running = given.running()
        there = replace(running, state=State.SCHEDULED, write_id=given.mark())
        outcomes = ledger.write_many([*(write for pair in zip(new, changes, strict=True) for write in pair), there])
        assert outcomes[:-1:2] == [Written(job) for job in new]
        assert all(isinstance(outcome, Written) for outcome in outcomes[1::2])
        assert outcomes[-1] == Refused(running)
        assert [ledger.get(job.job_id) for job in new] == new
        assert ledger.get(running.job_id) == running
        in_line = [job.job_id for pair in zip(new, accepted, strict=True) for job in pair]
        assert [job.job_id for job in ledger.line(queue, 100)] == in_line

    def test_a_row_that_was_put_before_is_our_own_until_somebody_writes_it(self, given: Given, ledger: Ledger) -> None:
        new = [given.parked_row() for _ in range(3)]
        ledger.write_many(new)
        assert ledger.write_many(new) == [Written(job) for job in new]
        claimed = given.claimed(new[1])
        assert ledger.write_many(new) == [Written(new[0]), Refused(claimed), Written(new[2])]
        others = [replace(job, write_id=given.mark(), run_at=(job.run_at or 0) + 1) for job in new]
        assert ledger.write_many(others) == [Refused(new[0]), Refused(claimed), Refused(new[2])]
        assert ledger.write_many(others[:1]) == [Refused(new[0])], "alone as together"

    def test_a_new_row_with_a_large_payload_is_put_with_it(self, given: Given, ledger: Ledger) -> None:
        new = [given.parked_row("[" + "1" * 3_000 + "]"), given.parked_row()]
        assert ledger.write_many(new) == [Written(job) for job in new]
        assert [ledger.get(job.job_id) for job in new] == new
        again = [replace(job, write_id=given.mark()) for job in new]
        assert ledger.write_many(again) == [Refused(job) for job in new]

    def test_a_new_row_takes_the_place_of_an_expired_one(self, given: Given, ledger: Ledger) -> None:
        ended = given.succeeded()
        given.clock.advance(10**7)
        new = [replace(given.parked_row(), job_id=ended.job_id), given.parked_row()]
        assert ledger.write_many(new) == [Written(job) for job in new]
        assert ledger.get(ended.job_id) == new[0]
