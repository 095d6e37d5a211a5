"""The part of the ledger's contract that is about who may write: every transition, in its order, taken and refused."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from ringfence import transitions
from ringfence.change import Change, Refused, Written
from ringfence.job import Job, Progress, State
from ringfence.ports import Ledger
from ringfence.testing.given import LEASE_MS, Given

ChangeOf = Callable[[Given, Job], Change]


def _heartbeat(given: Given, job: Job) -> Change:
    until = given.clock.now() + 2 * LEASE_MS
    return transitions.heartbeat(job, write_id=given.mark(), lease_until=until, progress=Progress(3, 10))


def _checkpoint(given: Given, job: Job) -> Change:
    return transitions.checkpoint(job, '{"page":7}', write_id=given.mark())


def _retry_soon(given: Given, job: Job) -> Change:
    now = given.clock.now() + 500
    return transitions.retry_soon(job, "flaky", write_id=given.mark(), now=now, run_at=now + 2_000)


def _retry_later(given: Given, job: Job) -> Change:
    now = given.clock.now() + 500
    due_id = given.mark()
    return transitions.retry_later(job, "down", write_id=given.mark(), now=now, run_at=now + 3_600_000, due_id=due_id)


def _hand_over(given: Given, job: Job) -> Change:
    return transitions.hand_over(job, counted=True, write_id=given.mark(), now=given.clock.now() + 500)


def _give_up(given: Given, job: Job) -> Change:
    return transitions.give_up(job, "no use", write_id=given.mark(), now=given.clock.now(), expires_at=given.expiry())


def _cancel_mine(given: Given, job: Job) -> Change:
    return transitions.cancel_mine(job, write_id=given.mark(), now=given.clock.now(), expires_at=given.expiry())


OWNERS_WRITES: dict[str, ChangeOf] = {
    "heartbeat": _heartbeat,
    "checkpoint": _checkpoint,
    "succeed": lambda given, job: given.success(job),
    "retry soon": _retry_soon,
    "retry later": _retry_later,
    "hand over": _hand_over,
    "give up": _give_up,
    "cancel": _cancel_mine,
}


def _claim_seen(given: Given, job: Job) -> Change:
    return transitions.claim_seen(job, given.owner(job), counted=False, write_id=given.mark())


def _bury_used_up(given: Given, job: Job) -> Change:
    return transitions.bury_used_up(job, write_id=given.mark(), now=given.clock.now(), expires_at=given.expiry())


def _cancel_seen(given: Given, job: Job) -> Change:
    return transitions.cancel_seen(job, write_id=given.mark(), now=given.clock.now(), expires_at=given.expiry())


OTHERS_WRITES: dict[str, ChangeOf] = {
    "take over": _claim_seen,
    "bury used up": _bury_used_up,
    "cancel seen": _cancel_seen,
    "request cancel": lambda given, job: transitions.request_cancel(job, write_id=given.mark()),
}
"""Writes over a running row by somebody who is not its owner: conditional on the state and version seen."""

MEANWHILE: dict[str, Callable[[Given, Job], Job]] = {
    "heartbeat": lambda given, seen: given.done(_heartbeat(given, seen)),
    "commit": lambda given, seen: given.done(given.success(seen)),
    "hand over and next claim": lambda given, seen: given.claimed(given.done(_hand_over(given, seen))),
    "cancel request": lambda given, seen: given.done(transitions.request_cancel(seen, write_id=given.mark())),
    "cancel": lambda given, seen: given.done(_cancel_mine(given, seen)),
}
"""What may become of a running row that somebody has looked at."""

TERMINAL: dict[str, Callable[[Given], Job]] = {
    "succeeded": Given.succeeded,
    "dead": Given.dead,
    "cancelled": Given.cancelled,
}

NOT_TO_BE_CLAIMED: dict[str, Callable[[Given], Job]] = {
    "running": Given.running,
    "early": lambda given: given.queued(run_at=given.clock.now() + 1),
    "scheduled": Given.scheduled,
    "used up": lambda given: given.queued(attempts=5, max_attempts=5),
    "to be cancelled": lambda given: given.queued(cancel_requested=True),
    **TERMINAL,
}

by_owner = pytest.mark.parametrize("change_of", OWNERS_WRITES.values(), ids=OWNERS_WRITES)
by_another = pytest.mark.parametrize("change_of", OTHERS_WRITES.values(), ids=OTHERS_WRITES)
over_running = pytest.mark.parametrize(
    "change_of", [*OWNERS_WRITES.values(), *OTHERS_WRITES.values()], ids=[*OWNERS_WRITES, *OTHERS_WRITES]
)
in_each_terminal_state = pytest.mark.parametrize("given_row", TERMINAL.values(), ids=TERMINAL)


class LedgerTransitions:
    """Claims, the owner's writes, everybody else's, and how a write knows itself."""

    # --- claiming ----------------------------------------------------------------------------------------------------

    def test_a_claim_mints_the_token_and_owns_the_row(self, given: Given) -> None:
        before = given.queued()
        after = given.exactly_done(given.claim(before), before)
        assert (after.state, after.token, after.attempts, after.version) == (State.RUNNING, 1, 1, 2)

    def test_a_scheduled_job_is_claimed_once_it_is_due_and_keeps_its_mark(self, given: Given) -> None:
        before = given.scheduled(in_seconds=1)
        given.refused(given.claim(before))
        given.clock.advance(1)
        after = given.exactly_done(given.claim(before), before)
        assert after.due_id == before.due_id

    @pytest.mark.parametrize("given_row", NOT_TO_BE_CLAIMED.values(), ids=NOT_TO_BE_CLAIMED)
    def test_a_claim_is_refused_by_the_row_that_stands_in_its_way(
        self, given: Given, given_row: Callable[[Given], Job]
    ) -> None:
        given.refused(given.claim(given_row(given)))

    def test_a_job_nobody_accepted_is_neither_claimed_nor_found(self, given: Given, ledger: Ledger) -> None:
        unknown = given.row()
        assert ledger.write(given.claim(unknown)) == Refused(None)
        assert ledger.get(unknown.job_id) is None

    @pytest.mark.parametrize("job_id", ["", "x" * 3_000, "\udcff", "key#0", "q#0"])
    def test_an_id_from_a_foreign_ticket_is_only_unknown(self, given: Given, ledger: Ledger, job_id: str) -> None:
        assert ledger.get(job_id) is None
        assert ledger.write(given.claim(given.row(job_id=job_id))) == Refused(None)

    @pytest.mark.parametrize(("counted", "attempts"), [(True, 2), (False, 1)])
    def test_a_take_over_raises_the_token_and_remembers_the_lost_attempt(
        self, given: Given, counted: bool, attempts: int
    ) -> None:
        before = given.running()
        after = given.exactly_done(
            transitions.claim_seen(before, given.owner(before), counted=counted, write_id=given.mark()), before
        )
        assert (after.token, after.attempts, [a.outcome for a in after.history]) == (2, attempts, ["lost"])

    # --- the owner ---------------------------------------------------------------------------------------------------

    @by_owner
    def test_the_owner_may_write(self, given: Given, change_of: ChangeOf) -> None:
        before = given.running()
        given.exactly_done(change_of(given, before), before)

    @by_owner
    def test_a_late_owner_may_not(self, given: Given, change_of: ChangeOf) -> None:
        """C28: whoever claimed last may write; everybody else's late write is refused by the row as it is."""
        late = given.running()
        current = given.taken_over(late)
        assert given.refused(change_of(given, late)) == current

    @by_owner
    def test_an_owner_of_an_earlier_attempt_may_not_after_a_retry(self, given: Given, change_of: ChangeOf) -> None:
        late = given.running()
        given.done(_hand_over(given, late))
        given.refused(change_of(given, late))

    @by_owner
    def test_an_equal_token_without_the_attempt_is_not_enough(self, given: Given, change_of: ChangeOf) -> None:
        before = given.running()
        impostor = dataclasses.replace(before, attempt_id=given.mark())
        given.refused(change_of(given, impostor))

    def test_an_owner_writes_over_what_others_changed_beside_it(self, given: Given) -> None:
        """A cancel request raises the version; the owner relies on token and attempt alone."""
        mine = given.running()
        asked = given.done(transitions.request_cancel(mine, write_id=given.mark()))
        after = given.exactly_done(_heartbeat(given, mine), asked)
        assert after.cancel_requested

    def test_three_attempts_are_remembered(self, given: Given) -> None:
        job = given.running()
        for _ in range(4):
            job = given.exactly_done(_hand_over(given, job), job)
            job = given.claimed(job)
        assert [attempt.token for attempt in job.history] == [2, 3, 4]

    # --- everybody else ----------------------------------------------------------------------------------------------

    @by_another
    def test_others_write_over_the_row_they_saw(self, given: Given, change_of: ChangeOf) -> None:
        before = given.running()
        given.exactly_done(change_of(given, before), before)

    @by_another
    @pytest.mark.parametrize("meanwhile", MEANWHILE.values(), ids=MEANWHILE)
    def test_others_do_not_write_over_a_row_that_has_moved_on(
        self, given: Given, change_of: ChangeOf, meanwhile: Callable[[Given, Job], Job]
    ) -> None:
        """C29: a rescuer paused between its look and its write changes nothing."""
        seen = given.running()
        now = meanwhile(given, seen)
        assert given.refused(change_of(given, seen)) == now

    def test_an_unreadable_ticket_buries_only_a_waiting_job(self, given: Given) -> None:
        now, expires_at = given.clock.now(), given.expiry()
        waiting, running = given.queued(), given.running()
        bury = transitions.bury_unreadable
        given.exactly_done(bury(waiting, "what?", write_id=given.mark(), now=now, expires_at=expires_at), waiting)
        given.refused(bury(running, "what?", write_id=given.mark(), now=now, expires_at=expires_at))

    def test_a_redrive_gives_a_dead_job_its_attempts_back_and_keeps_its_token(self, given: Given) -> None:
        dead = given.dead()
        change = transitions.redrive(dead, write_id=given.mark(), now=given.clock.now(), due_id=given.mark())
        after = given.exactly_done(change, dead)
        assert (after.state, after.attempts, after.token, after.expires_at) == (State.SCHEDULED, 0, dead.token, None)

    @pytest.mark.parametrize("given_row", [Given.queued, Given.running, Given.succeeded, Given.cancelled])
    def test_only_a_dead_job_is_redriven(self, given: Given, given_row: Callable[[Given], Job]) -> None:
        seen = given_row(given)
        given.refused(transitions.redrive(seen, write_id=given.mark(), now=given.clock.now(), due_id=given.mark()))

    def test_a_cleared_mark_queues_a_scheduled_job(self, given: Given) -> None:
        before = given.scheduled()
        after = given.exactly_done(transitions.clear_mark(before, write_id=given.mark()), before)
        assert (after.state, after.due_id) == (State.QUEUED, None)

    def test_a_cleared_mark_leaves_a_running_job_running(self, given: Given) -> None:
        marked = given.scheduled(in_seconds=0)
        before = given.claimed(marked)
        after = given.exactly_done(transitions.clear_mark(before, write_id=given.mark()), before)
        assert (after.state, after.due_id) == (State.RUNNING, None)

    def test_a_newer_mark_is_not_cleared(self, given: Given) -> None:
        pushed = given.scheduled(in_seconds=0)
        given.done(_retry_later(given, given.claimed(pushed)))
        given.refused(transitions.clear_mark(pushed, write_id=given.mark()))

    @in_each_terminal_state
    @over_running
    def test_a_terminal_state_absorbs(self, given: Given, given_row: Callable[[Given], Job], change_of: ChangeOf) -> None:
        """Even a writer whose token is the row's: the state is part of every condition."""
        ended = given_row(given)
        still_running = dataclasses.replace(ended, state=State.RUNNING, attempt_id=given.mark())
        given.refused(change_of(given, still_running))

    # --- own writes --------------------------------------------------------------------------------------------------

    def test_a_claim_whose_reply_was_lost_is_our_own(self, given: Given, ledger: Ledger) -> None:
        before = given.queued()
        change = given.claim(before)
        first = ledger.write(change)
        assert isinstance(first, Written)
        assert ledger.write(change) == first
        assert first.job.token == 1

    @over_running
    def test_a_write_whose_reply_was_lost_is_our_own(self, given: Given, ledger: Ledger, change_of: ChangeOf) -> None:
        """Sent twice, as the SDK does when a reply is lost. Where the condition still holds it is simply written again."""
        before = given.running()
        change = change_of(given, before)
        first, second = ledger.write(change), ledger.write(change)
        assert isinstance(first, Written)
        assert isinstance(second, Written)
        assert dataclasses.replace(second.job, version=first.job.version) == first.job
        assert ledger.get(before.job_id) == second.job

    def test_our_write_is_not_recognised_under_somebody_elses(self, given: Given) -> None:
        seen = given.running()
        mine = transitions.request_cancel(seen, write_id=given.mark())
        given.done(mine)
        given.done(_heartbeat(given, seen))
        given.refused(mine)

    def test_a_lost_claim_that_somebody_took_over_is_no_longer_ours(self, given: Given) -> None:
        change = given.claim(given.queued())
        claimed = given.done(change)
        given.taken_over(claimed)
        given.refused(change)
