"""The rules of a claim, line by line (DESIGN §5), and what each transition writes."""

from __future__ import annotations

import ast
import dataclasses
from pathlib import Path
from typing import Any

import pytest

from ringfence import transitions
from ringfence.change import Unset, apply, holds
from ringfence.job import TERMINAL, Job, PastAttempt, Progress, State
from ringfence.verdict import CLOCK_SKEW_MS, CancelNow, Early, Finished, Free, Held, Missing, UsedUp, Verdict, judge
from ringfence.wire import Ticket

NOW = 1_000_000
LONG_AGO = NOW - CLOCK_SKEW_MS - 1
TICKET = Ticket(ticket_id="t1", job_id="j1", tenant="default")


def job(**fields: Any) -> Job:
    defaults: dict[str, Any] = {
        "job_id": "j1",
        "tenant": "default",
        "queue": "default",
        "name": "noop",
        "payload": "{}",
        "payload_sha256": "0" * 64,
        "state": State.QUEUED,
        "version": 3,
        "write_id": "w0",
    }
    return Job(**{**defaults, **fields})


def running(**fields: Any) -> Job:
    defaults: dict[str, Any] = {
        "state": State.RUNNING,
        "token": 4,
        "attempt_id": "a4",
        "attempts": 1,
        "ticket_id": "t1",
        "ticket_deliveries": 2,
        "worker": "w",
        "started_at": 5,
        "lease_until": NOW + 10_000,
    }
    return job(**{**defaults, **fields})


VERDICTS: dict[str, tuple[Job | None, int, Verdict]] = {
    "1 no row": (None, 1, Missing()),
    "1 succeeded": (job(state=State.SUCCEEDED), 1, Finished()),
    "1 dead": (job(state=State.DEAD), 1, Finished()),
    "1 cancelled": (job(state=State.CANCELLED), 1, Finished()),
    "1 cancel asked of a waiting job": (job(cancel_requested=True), 1, CancelNow()),
    "1 cancel asked, the runner is gone": (running(cancel_requested=True), 3, CancelNow()),
    "1 cancel asked, the runner is healthy": (running(cancel_requested=True), 2, Held(NOW + 15_000)),
    "2 held by another ticket": (running(ticket_id="t0"), 9, Held(NOW + 15_000)),
    "2 held by this very delivery": (running(), 2, Held(NOW + 15_000)),
    "2 the lease ended, but clocks may differ": (running(ticket_id="t0", lease_until=NOW - 1), 1, Held(NOW + 4_999)),
    "3 early": (job(run_at=NOW + 1), 1, Early(NOW + 1)),
    "3 early though scheduled": (job(state=State.SCHEDULED, run_at=NOW + 7), 1, Early(NOW + 7)),
    "3 due to the millisecond": (job(run_at=NOW), 1, Free(counted=True)),
    "4 the ticket came again": (running(), 3, Free(counted=True)),
    "4 the lease has lapsed": (running(ticket_id="t0", lease_until=LONG_AGO), 1, Free(counted=False)),
    "4 both signs": (running(lease_until=LONG_AGO), 3, Free(counted=True)),
    "5 used up while waiting": (job(attempts=5), 1, UsedUp()),
    "5 used up, both signs": (running(attempts=5, lease_until=LONG_AGO), 3, UsedUp()),
    "5 used up, only the ticket says so": (running(attempts=5), 3, Held(NOW + 15_000)),
    "5 used up, only the clock says so, time and again": (
        running(attempts=5, ticket_id="t0", lease_until=LONG_AGO, hand_overs=2),
        1,
        UsedUp(),
    ),
    "4 only the clock says so, time and again": (
        running(ticket_id="t0", lease_until=LONG_AGO, hand_overs=2),
        1,
        Free(counted=True),
    ),
    "5 used up, only the clock says so": (running(attempts=5, ticket_id="t0", lease_until=LONG_AGO), 1, Free(counted=False)),
    "6 free": (job(), 1, Free(counted=True)),
    "6 free though scheduled and marked": (job(state=State.SCHEDULED, run_at=NOW - 1, due_id="d"), 1, Free(counted=True)),
}


@pytest.mark.parametrize(("seen", "deliveries", "verdict"), VERDICTS.values(), ids=VERDICTS.keys())
def test_what_stands_in_the_way_of_a_claim(seen: Job | None, deliveries: int, verdict: Verdict) -> None:
    assert judge(seen, TICKET, deliveries, NOW) == verdict


def test_the_jobs_code_may_allow_fewer_attempts_than_the_submission() -> None:
    assert judge(job(attempts=1, max_attempts=5), TICKET, 1, NOW, max_attempts=1) == UsedUp()
    assert judge(job(attempts=1, max_attempts=5), TICKET, 1, NOW, max_attempts=9) == Free(counted=True)
    once = dataclasses.replace(owner(), max_attempts=1)
    claim = transitions.claim_waiting(once, write_id="w")
    assert holds(claim.condition, job(attempts=0))
    assert not holds(claim.condition, job(attempts=1))


def owner() -> transitions.Owner:
    return transitions.Owner(ticket=TICKET, deliveries=2, attempt_id="a", worker="w", now=NOW, lease_until=NOW + 29_000)


@pytest.mark.parametrize(("seen", "deliveries", "verdict"), VERDICTS.values(), ids=VERDICTS.keys())
def test_the_common_claim_takes_exactly_the_waiting_rows_that_are_free(
    seen: Job | None, deliveries: int, verdict: Verdict
) -> None:
    if seen is not None:
        claim = transitions.claim_waiting(owner(), write_id="w1")
        assert holds(claim.condition, seen) == (verdict == Free(counted=True) and seen.state is not State.RUNNING)


def test_a_claim_mints_the_next_token_and_counts_the_attempt() -> None:
    claimed = apply(transitions.claim_waiting(owner(), write_id="w1"), job(token=7, attempts=2))
    assert (claimed.token, claimed.attempts, claimed.attempt_id, claimed.state) == (8, 3, "a", State.RUNNING)
    assert (claimed.version, claimed.write_id, claimed.lease_until) == (4, "w1", NOW + 29_000)


def test_a_take_over_raises_the_token_and_remembers_the_lost_attempt() -> None:
    taken = apply(transitions.claim_seen(running(), owner(), counted=False, write_id="w1"), running())
    assert (taken.token, taken.attempts) == (5, 1)
    assert taken.history == (PastAttempt(4, 5, NOW, "lost"),)


def test_a_row_that_its_owner_gives_back_before_it_can_be_taken_over_keeps_its_count_of_hand_overs() -> None:
    """Or three hand-overs without a newer checkpoint would never be counted where two tickets meet."""
    given_back = job(token=2, hand_overs=2)
    claimed = apply(transitions.claim_seen(given_back, owner(), counted=True, write_id="w1"), given_back)
    assert (claimed.token, claimed.attempts, claimed.hand_overs, claimed.history) == (3, 1, 2, ())


def owners_changes(mine: Job) -> dict[str, Any]:
    common = {"write_id": "w1"}
    end = {**common, "now": NOW, "expires_at": 9_999}
    return {
        "heartbeat": transitions.heartbeat(mine, **common, lease_until=NOW + 1, progress=Progress(1, 2)),
        "checkpoint": transitions.checkpoint(mine, "[1]", **common),
        "succeed": transitions.succeed(mine, "null", **end),
        "retry soon": transitions.retry_soon(mine, "e", **common, now=NOW, run_at=NOW + 5),
        "retry later": transitions.retry_later(mine, "e", **common, now=NOW, run_at=NOW + 5, due_id="d"),
        "hand over": transitions.hand_over(mine, counted=True, **common, now=NOW),
        "give up": transitions.give_up(mine, "e", **end),
        "cancel": transitions.cancel_mine(mine, **end),
    }


@pytest.mark.parametrize("name", owners_changes(running()))
@pytest.mark.parametrize(
    "now_there",
    [
        running(token=5),
        running(token=3),
        running(attempt_id="another"),
        *(running(state=state) for state in State if state is not State.RUNNING),
    ],
    ids=str,
)
def test_an_owners_write_relies_on_token_attempt_and_running(name: str, now_there: Job) -> None:
    change = owners_changes(running())[name]
    assert holds(change.condition, running())
    assert not holds(change.condition, now_there)


@pytest.mark.parametrize("name", ["succeed", "give up", "cancel"])
def test_a_terminal_write_sets_the_expiry_and_takes_the_due_mark_away(name: str) -> None:
    ended = apply(owners_changes(running(due_id="d", run_at=5))[name], running(due_id="d", run_at=5))
    assert ended.state in TERMINAL
    assert (ended.expires_at, ended.due_id, ended.attempt_id, ended.finished_at) == (9_999, None, None, NOW)
    assert ended.token == 4


@pytest.mark.parametrize("name", ["heartbeat", "checkpoint", "retry soon", "retry later", "hand over"])
def test_nothing_but_a_terminal_write_sets_the_expiry(name: str) -> None:
    assert apply(owners_changes(running())[name], running()).expires_at is None


def test_three_hand_overs_without_a_newer_checkpoint_count_as_an_attempt() -> None:
    seen, attempts = running(attempts=1), []
    for _ in range(6):
        seen = apply(transitions.hand_over(seen, counted=True, write_id="w", now=NOW), seen)
        attempts.append(seen.attempts)
        seen = dataclasses.replace(seen, state=State.RUNNING, attempts=seen.attempts + 1)
    assert attempts == [0, 0, 1, 1, 1, 2]


def test_an_attempt_that_the_claim_did_not_count_is_not_given_back() -> None:
    seen = running(attempts=1)
    assert apply(transitions.hand_over(seen, counted=False, write_id="w", now=NOW), seen).attempts == 1


def test_a_checkpoint_starts_the_count_of_hand_overs_anew() -> None:
    advanced = apply(transitions.checkpoint(running(hand_overs=2), "1", write_id="w"), running(hand_overs=2))
    assert (advanced.hand_overs, advanced.checkpoint) == (0, "1")


def test_a_redrive_keeps_the_token_and_gives_the_attempts_back() -> None:
    dead = job(state=State.DEAD, token=9, attempts=5, expires_at=1, finished_at=2, error="e")
    again = apply(transitions.redrive(dead, write_id="w", now=NOW, due_id="d"), dead)
    assert (again.state, again.token, again.attempts, again.expires_at) == (State.SCHEDULED, 9, 0, None)
    assert (again.due_id, again.run_at, again.payload) == ("d", NOW, "{}")


def test_only_the_dead_are_redriven() -> None:
    for state in State:
        change = transitions.redrive(job(state=state), write_id="w", now=NOW, due_id="d")
        assert holds(change.condition, job(state=state)) == (state is State.DEAD)


def test_c29_a_rescuer_with_an_old_snapshot_is_refused() -> None:
    seen = running(lease_until=LONG_AGO)
    rescue = transitions.claim_seen(seen, owner(), counted=False, write_id="w")
    for changed in (
        dataclasses.replace(seen, state=State.SUCCEEDED, version=4),
        dataclasses.replace(seen, state=State.QUEUED, version=4),
        dataclasses.replace(seen, token=5, attempt_id="b", version=4),
        dataclasses.replace(seen, cancel_requested=True, version=4),
    ):
        assert not holds(rescue.condition, changed)


def test_clearing_a_mark_leaves_a_newer_mark_alone() -> None:
    seen = job(state=State.SCHEDULED, due_id="d1", run_at=1)
    clear = transitions.clear_mark(seen, write_id="w")
    assert apply(clear, seen).state is State.QUEUED
    assert not holds(clear.condition, dataclasses.replace(seen, due_id="d2"))
    assert not holds(clear.condition, dataclasses.replace(seen, state=State.RUNNING))


def test_a_retry_that_left_the_mark_alone_is_not_overtaken_by_a_line() -> None:
    """Due, claimed by its ticket and put off again, all between the timers' look and their write; found by tests/model."""
    seen = job(due_id="d1", run_at=NOW - 1)
    joins = transitions.join_line(seen, write_id="w", place=NOW, due_id="+d2")
    put_off = dataclasses.replace(seen, token=1, run_at=NOW + 60_000)
    assert holds(joins.condition, seen)
    assert not holds(joins.condition, put_off)


def test_clearing_the_mark_of_a_running_job_does_not_move_it() -> None:
    seen = running(due_id="d1", run_at=1)
    assert apply(transitions.clear_mark(seen, write_id="w"), seen).state is State.RUNNING


def test_c34_history_and_error_are_bounded_whatever_a_job_does() -> None:
    seen = running()
    for token in range(10):
        seen = apply(transitions.retry_soon(seen, "x" * 10_000, write_id="w", now=NOW, run_at=NOW), seen)
        seen = dataclasses.replace(seen, state=State.RUNNING, token=token)
    assert len(seen.history) == transitions.HISTORY_LENGTH
    assert len(seen.error or "") == transitions.ERROR_LENGTH


def test_the_rows_lease_ends_before_the_queues_and_never_at_once() -> None:
    assert transitions.lease_end(NOW, 30.0) == NOW + 29_000
    assert transitions.lease_end(NOW, 1.0) == NOW + 500


def test_a_finished_row_outlives_the_log_however_short_the_retention() -> None:
    longest_log_retention_seconds = 120 * 3600
    assert transitions.expiry(job(), 5_000, retention_seconds=1.0) > 5 + longest_log_retention_seconds


def test_c31_a_token_comes_only_from_the_row_itself_one_more_with_each_claim_and_burial() -> None:
    """No clock, no random number and no queue: all that is written of a token is one more than there was, in that write."""
    written: list[tuple[str, str, str]] = []
    for path in Path(transitions.__file__).parent.rglob("*.py"):
        source = path.read_text(encoding="utf-8")
        for node in ast.walk(ast.parse(source)) if '"token":' in source else ():
            if isinstance(node, ast.keyword) and node.arg in ("set", "add"):
                pairs = [(each.keys, each.values) for each in ast.walk(node.value) if isinstance(each, ast.Dict)]
                written += [
                    (path.name, node.arg, ast.unparse(value))
                    for keys, values in pairs
                    for key, value in zip(keys, values, strict=True)
                    if isinstance(key, ast.Constant) and key.value == "token"
                ]
    assert set(written) == {("transitions.py", "add", "1")}


def test_c31_a_clock_that_is_behind_does_not_let_a_row_expire_early() -> None:
    created = job(created_at=10**12)
    assert transitions.expiry(created, 5_000, retention_seconds=9e6) == 10**9 + 9_000_000


def test_a_number_that_is_zero_is_set() -> None:
    assert not holds(Unset("run_at"), job(run_at=0))
    assert holds(Unset("run_at"), job(run_at=None))
    assert holds(Unset("cancel_requested"), job(cancel_requested=False))
