"""The reckoning of a fault run finds whatever is wrong, and nothing else."""

from __future__ import annotations

import dataclasses
from collections import Counter
from typing import Any

import pytest

from ringfence import transitions
from ringfence.job import Job, PastAttempt, State
from ringfence.wire import JobRecord

from .books import Asked, Kind, Promise
from .inside.traces import shared_counter
from .reckoning import EXCUSED_SECONDS, Found, reckon

ACCEPTED_AT = 1_000.0


def promise(kind: Kind = Kind.TALLY, key: str = "k", **more: Any) -> Promise:
    return Promise(key, kind, more.pop("queue", "default"), f"job-{key}", more.pop("accepted_at", ACCEPTED_AT), **more)


def row(state: State, key: str = "k", token: int = 1) -> Job:
    record = JobRecord(
        job_id=f"job-{key}",
        tenant="t",
        queue="default",
        name="tally",
        payload="{}",
        payload_sha256="",
        created_at=1,
        max_attempts=5,
    )
    return dataclasses.replace(transitions.accept(record, write_id="w", due_id="d"), state=state, token=token)


def found(*promises: Promise, rows: list[Job] | None = None, runs: int = 1, **more: Any) -> Found:
    """One job that has ended well, but for what is said."""
    there = [row(State.SUCCEEDED)] if rows is None else rows
    counters = {"k": {"runs": runs}, shared_counter("k"): {"runs": runs}} if runs else {}
    given: dict[str, Any] = {
        "promises": promises or (promise(),),
        "rows": {each.job_id: each for each in there},
        "counters": counters,
        "last": {"k": {"token": 1}} if runs else {},
        "carried_runs": Counter(),
        "told_succeeded": {"job-k": 1},
        "redis_queues": (),
        "redis_losses": (),
        "contradictions": (),
        "tickets_left": False,
        "clients_left": 0,
    }
    return Found(**{**given, **more})


GOOD = {
    "a success with its effect": found(),
    "a death that was meant": found(promise(Kind.DOOMED), rows=[row(State.DEAD)], runs=0),
    "a redrive whose answer was lost, and that was done": found(promise(Kind.DOOMED, redrive=Asked.PERHAPS)),
    "a redrive whose answer was lost, and that was not": found(
        promise(Kind.DOOMED, redrive=Asked.PERHAPS), rows=[row(State.DEAD)], runs=0
    ),
    "a buried killer": found(promise(Kind.PILL), rows=[row(State.DEAD)], runs=0),
    "a cancelled job": found(promise(cancel=Asked.PERHAPS), rows=[row(State.CANCELLED)], runs=0),
    "a job at-least-once that ran thrice": found(promise(Kind.CARRY), rows=[], runs=0, carried_runs=Counter(k=3)),
    "a job at-least-once that had to wait": found(promise(Kind.CARRY), runs=0, carried_runs=Counter(k=1)),
    "a job that ran, and whose client was not told": found(promise(key="o"), rows=[row(State.SUCCEEDED, "o")], counters={
        "k": {"runs": 1}, "o": {"runs": 1}, shared_counter("k"): {"runs": 1}, shared_counter("o"): {"runs": 1}}),
}  # fmt: skip


@pytest.mark.parametrize("case", GOOD)
def test_nothing_is_wrong_with(case: str) -> None:
    assert list(reckon(GOOD[case]).wrong) == []


BAD = {
    "lost": {
        "a row that is gone": found(rows=[], runs=0),
        "a success without effect": found(runs=0),
        "a death that was not meant": found(rows=[row(State.DEAD)], runs=0),
        "a cancel that was promised": found(promise(cancel=Asked.DONE)),
        "a cancel nobody asked for": found(rows=[row(State.CANCELLED)], runs=0),
        "a redrive that was promised": found(promise(Kind.DOOMED, redrive=Asked.DONE), rows=[row(State.DEAD)], runs=0),
        "a job at-least-once that never ran": found(promise(Kind.CARRY), rows=[], runs=0),
        "a job at-least-once that ended and never ran": found(promise(Kind.CARRY), runs=0),
        "a job at-least-once that died": found(
            promise(Kind.CARRY), rows=[row(State.DEAD)], runs=0, carried_runs=Counter(k=1)
        ),
        "an addition to a shared counter": found(counters={"k": {"runs": 1}}),
    },
    "doubled": {
        "an effect twice": found(runs=2),
        "the effect of a dead job": found(promise(Kind.PILL), rows=[row(State.DEAD)]),
        "the effect of a cancelled job": found(promise(cancel=Asked.DONE), rows=[row(State.CANCELLED)]),
        "an effect twice, whose client was not told": found(
            promise(Kind.DOOMED, key="o"), rows=[row(State.DEAD, "o")], runs=2
        ),
        "an addition to a shared counter": found(counters={"k": {"runs": 1}, shared_counter("k"): {"runs": 2}}),
    },
    "stuck": {
        "a job that waits": found(rows=[row(State.QUEUED)], runs=0),
        "a job that runs for ever": found(rows=[row(State.RUNNING)], runs=0),
        "tickets that are left": found(tickets_left=True),
        "clients that wait": found(clients_left=1),
    },
    "other": {
        "two successes of one job": found(told_succeeded={"job-k": 2}),
        "an end that was another one before": found(promise(seen=State.CANCELLED)),
        "tokens that fall": found(rows=[dataclasses.replace(row(State.SUCCEEDED), history=(PastAttempt(2, 1, 2, "lost"),))]),
        "a write of another token": found(rows=[row(State.SUCCEEDED, token=2)]),
        "a contradiction": found(contradictions=("k was accepted twice",)),
    },
}  # fmt: skip


@pytest.mark.parametrize(("what", "case"), [(what, case) for what, cases in BAD.items() for case in cases])
def test_it_finds(what: str, case: str) -> None:
    reckoned = reckon(BAD[what][case])
    assert getattr(reckoned, what)
    assert len(reckoned.wrong) <= 2, "one fault is told at most twice: by itself, and by the counter that many share"


@pytest.mark.parametrize(
    ("queue", "lost_at", "excused"),
    [
        ("default", ACCEPTED_AT + 1, True),
        ("default", ACCEPTED_AT - 1, False),
        ("default", ACCEPTED_AT + EXCUSED_SECONDS + 1, False),
        ("priority", ACCEPTED_AT + 1, False),
    ],
)
def test_a_job_at_least_once_is_excused_only_where_its_redis_has_lost_its_memory_since(
    queue: str, lost_at: float, excused: bool
) -> None:
    carried = promise(Kind.CARRY, queue=queue)
    reckoned = reckon(found(carried, rows=[], runs=0, redis_queues=("default",), redis_losses=(lost_at,)))
    assert (list(reckoned.excused), bool(reckoned.lost)) == ((["k"], False) if excused else ([], True))
