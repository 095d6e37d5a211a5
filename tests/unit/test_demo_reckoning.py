"""The reckoning proves itself on planted bugs: each of them must be seen, and nothing else."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest

from ringfence.job import Job, State
from ringfence.local.demo.late_writes import LateWrite
from ringfence.local.demo.plain import Expected
from ringfence.local.demo.reckoning import Found, reckon

A, B, BROKEN = "modules/a.py", "modules/b.py", "broken/x.py"
MESSAGE = "SyntaxError: invalid syntax (x.py, line 1)"
EXPECTED = Expected(
    modules={A: {"lines": 10}, B: {"lines": 5}},
    totals={"modules": {"modules": 2, "lines": 15}},
    unparseable={BROKEN: MESSAGE},
)
LATE = LateWrite("job a", "commit", 1, 2)


def job(state: State, error: str | None = None, attempts: int = 1) -> Job:
    return Job(
        job_id=f"job {state}", tenant="default", queue="default", name="index_module", payload="{}", payload_sha256="",
        state=state, error=error, attempts=attempts,
    )  # fmt: skip


AGREEING = Found(
    files=[A, B, BROKEN],
    jobs={A: job(State.SUCCEEDED, attempts=2), B: job(State.SUCCEEDED), BROKEN: job(State.DEAD, f"{BROKEN} …: {MESSAGE}")},
    modules={A: {"lines": 10, "times_indexed": 1}, B: {"lines": 5, "times_indexed": 1}},
    totals={"modules": {"modules": 2, "lines": 15}},
    late_writes=[LATE],
)


def with_job(key: str, row: Job | None) -> dict[str, Any]:
    return {"jobs": {**AGREEING.jobs, key: row}}


def test_what_agrees_is_counted_and_nothing_is_said() -> None:
    verdict = reckon(EXPECTED, AGREEING, 12.34)
    assert verdict.disagreements == ()
    assert msgspec.structs.astuple(verdict.summary) == (3, 3, 2, 1, 0, 0, 1, 4, 12.3)


@pytest.mark.parametrize(
    ("bug", "lost", "doubled", "said"),
    [
        (with_job(A, None), 1, 0, "its job is not in the ledger"),
        (with_job(A, job(State.RUNNING)), 1, 0, "has not ended, it is running"),
        (with_job(A, job(State.SCHEDULED)), 1, 0, "has not ended, it is scheduled"),
        ({"modules": {B: AGREEING.modules[B]}}, 1, 0, "its effect is missing"),
        ({"modules": {**AGREEING.modules, A: {"lines": 10, "times_indexed": 2}}}, 0, 1, f"{A} was indexed 2 times"),
        ({"totals": {"modules": {"modules": 3, "lines": 25}}}, 0, 1, "lines 25, modules 3 in the table"),
        ({"totals": {"modules": {"modules": 2, "lines": 16}}}, 0, 0, "lines 16, modules 2 in the table"),
        ({"totals": {}}, 0, 0, "package modules: nothing in the table"),
        ({"modules": {**AGREEING.modules, A: {"lines": 11, "times_indexed": 1}}}, 0, 0, f"module {A}: lines 11 in the table"),
        ({"modules": {**AGREEING.modules, BROKEN: {"lines": 1, "times_indexed": 1}}}, 0, 0, f"module {BROKEN}: lines 1 in the"),
        (with_job(A, job(State.DEAD, "all 5 attempts failed")), 0, 0, "is dead (all 5 attempts failed)"),
        (with_job(A, job(State.CANCELLED)), 0, 0, "is cancelled"),
        (with_job(BROKEN, job(State.SUCCEEDED)), 1, 0, f"is succeeded (no error), the plain loop found {MESSAGE}"),
        (with_job(BROKEN, job(State.DEAD, "timed out")), 0, 0, "its job's error is 'timed out'"),
        ({"jobs": {A: AGREEING.jobs[A], BROKEN: AGREEING.jobs[BROKEN]}}, 0, 0, f"{B} was not accepted"),
        ({"late_writes": []}, 0, 0, "no late write of the thawed worker was refused"),
        ({"late_writes": [LATE, LateWrite("job b", "commit", 2, 2)]}, 0, 0, "the ledger's token is 2"),
        ({"late_writes": [LateWrite("job b", "commit", 1, -1)]}, 0, 0, "no late write of the thawed worker was refused"),
    ],
)
def test_a_planted_bug_is_seen(bug: dict[str, Any], lost: int, doubled: int, said: str) -> None:
    verdict = reckon(EXPECTED, dataclasses.replace(AGREEING, **bug), 1.0)
    assert (verdict.summary.lost, verdict.summary.doubled) == (lost, doubled)
    assert any(said in line for line in verdict.disagreements), verdict.disagreements


def test_only_a_refused_write_that_the_ledger_bears_out_is_counted() -> None:
    writes = [LATE, LATE, LateWrite("job b", "commit", 3, 3)]
    assert reckon(EXPECTED, dataclasses.replace(AGREEING, late_writes=writes), 1.0).summary.late_writes_refused == 2
