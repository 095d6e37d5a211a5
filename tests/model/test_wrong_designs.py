"""Every wrong design is found out, by the shortest way to its harm: a model that finds nothing proves nothing."""

from __future__ import annotations

import sys

import pytest

from .explorer import ENDS, Found, explore
from .protocol import DOUBLED, PROMISES, Protocol
from .wrong_designs import WRONG_DESIGNS


def found(name: str, promise: str) -> Found:
    wrong = WRONG_DESIGNS[name]
    explored = explore(Protocol(wrong.scope, wrong.design), promises=[promise])
    assert explored.found is not None, f"not found in {explored.states:,} states"
    assert explored.found.promise == promise
    return explored.found


@pytest.mark.parametrize("name", WRONG_DESIGNS)
def test_a_wrong_design_is_found_out(name: str) -> None:
    for promise in WRONG_DESIGNS[name].breaks:
        sys.stdout.write(f"{name}{found(name, promise)}\n")


def test_every_promise_is_broken_by_some_wrong_design() -> None:
    assert {promise for wrong in WRONG_DESIGNS.values() for promise in wrong.breaks} == {*PROMISES, ENDS}


def test_why_two_fenced_writes_are_not_enough() -> None:
    """DESIGN rule 5, told as it would happen."""
    story = str(found("effect and end are two writes, each fenced", DOUBLED))
    assert (
        story
        == """
  1. the relay reads 1 record(s)
  2. the relay pushes ticket 1 of job 1
  3. worker A takes ticket 1 of job 1, delivery 1
  4. worker A claims job 1: token 1
  5. worker A writes an effect of job 1
  6. worker A writes the staged effect of job 1, its token checked
  7. (fault) worker A dies; its lease of ticket 1 ends
  8. worker A takes ticket 1 of job 1, delivery 2
  9. worker A sees job 1 running with token 1 and wants to take over
 10. worker A claims job 1: token 2
 11. worker A finds the effect of job 1 there
 12. worker A writes the staged effect of job 1, its token checked
     BROKEN: no effect happens twice"""
    )
