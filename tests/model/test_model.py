"""The protocol in small scopes, every state of them: no promise is broken, and every job ends once faults stop."""

from __future__ import annotations

import os
import sys
from collections.abc import Hashable
from dataclasses import dataclass, replace

import pytest

from .explorer import explore
from .protocol import Design, Protocol, Scope
from .world import World
from .wrong_designs import WRONG_DESIGNS

DEEPER = pytest.mark.skipif("RINGFENCE_TEST_DEEPER_MODEL" not in os.environ, reason="make model explores this")
DEEPER_SECONDS = 1_800

ALL_OUTCOMES = frozenset({"succeed", "fail", "hand over", "give up", "kill"})


@dataclass(frozen=True)
class Case:
    """``at_least``: states, about half of what there are, for an explorer that explores little must not pass. ``happens``:
    words of steps that must be among those taken. ``tokens``: how high one must have come."""

    scope: Scope
    at_least: int = 10_000
    happens: tuple[str, ...] = ()
    tokens: int = 2


DIED = "dies; its lease"
FROZEN = "is frozen"
DOUBLE = "delivers it once more"
REFUSED_LATE = "is refused"
OWN_WRITE = "recognises its own"

SHORT = {
    "two jobs, three workers, four tokens": Case(
        Scope(kinds=("now", "now"), max_attempts=4, faults=1, delays=("soon",), others=frozenset({"succeed"})),
        5_000,
        (DIED, FROZEN, REFUSED_LATE, OWN_WRITE, "the relay dies", DOUBLE),
        tokens=4,
    ),
    "two jobs, either of which may fail": Case(Scope(kinds=("now", "now"), faults=1, delays=("soon",)), 4_000, (DIED, DOUBLE)),
    "two jobs, and two faults in one life": Case(
        Scope(kinds=("now", "now"), workers=2, faults=2, delays=("soon",), outcomes=frozenset({"succeed"})),
        6_000,
        (DIED, FROZEN, OWN_WRITE, DOUBLE, "cannot push", "cannot reach the ledger"),
        tokens=3,
    ),
    "two jobs, and a death, an ended lease and a duplicate in one life": Case(
        Scope(
            kinds=("now", "now"),
            workers=2,
            max_attempts=4,
            faults=3,
            only=(DIED, FROZEN, DOUBLE),
            delays=("soon",),
            outcomes=frozenset({"succeed"}),
        ),
        5_000,
        (DIED, FROZEN, REFUSED_LATE, DOUBLE),
        tokens=4,
    ),
    "three faults in one life": Case(
        Scope(max_attempts=4, faults=3, delays=("soon",), outcomes=frozenset({"succeed"})),
        4_000,
        (DIED, FROZEN, REFUSED_LATE, OWN_WRITE, DOUBLE),
        tokens=4,
    ),
    "retries in the queue and on the row": Case(Scope(faults=1), 1_500, ("the timers die", "loses its patience"), tokens=3),
    "hand-overs, and code that kills its process": Case(
        Scope(faults=1, workers=2, outcomes=frozenset({"succeed", "hand over", "kill"})), 600, ("kills worker",), tokens=3
    ),
    "leases that end under a living owner, twice": Case(Scope(faults=2, delays=("soon",)), 1_000, (FROZEN,), tokens=3),
    "parked by the relay": Case(
        Scope(faults=1, workers=2, kinds=("soon",), parks=True, outcomes=frozenset({"succeed"})),
        600,
        ("parks job", "does not park", "join the line", "join no line"),
    ),
    "far ahead": Case(
        Scope(faults=1, workers=2, kinds=("far",), outcomes=frozenset({"succeed"})),
        1_200,
        ("finds job {} early", "leave the mark"),
    ),
    "cancelled": Case(
        Scope(faults=1, workers=2, cancels=1, delays=("soon",)), 800, ("asked to stop", "beats for job", "of job {} is refused")
    ),
    "redriven": Case(Scope(faults=1, workers=2, redrives=1, outcomes=frozenset({"succeed", "give up"})), 1_500, ("redriven",)),
    "from a client that asks again": Case(
        Scope(faults=1, workers=2, from_the_gateway=True, delays=("soon",)), 200, ("queued and unclaimed", "on its way")
    ),
    "from a client without a key": Case(
        Scope(faults=2, workers=2, from_the_gateway=True, keyed=False, delays=("soon",)),
        1_100,
        ("unregistered", "the relay registers"),
    ),
    "a queue that gives tickets up": Case(
        Scope(faults=2, workers=2, delays=("soon",), last_resort=True), 1_500, ("out of the last resort",), tokens=3
    ),
    "a queue that loses its memory": Case(
        Scope(faults=1, workers=2, delays=("soon",), forgets=True), 1_000, ("repair pushes", "repair marks", "repair leaves")
    ),
    "a queue that goes back": Case(
        Scope(faults=2, workers=2, delays=("soon",), failovers=True), 1_500, ("fails over",), tokens=3
    ),
}

DEEP = {
    "two jobs, all their outcomes alike": Case(
        Scope(kinds=("now", "now"), max_attempts=4, faults=1, delays=("soon",)), tokens=4
    ),
    "two jobs, two faults": Case(Scope(kinds=("now", "now"), faults=2, delays=("soon",))),
    "two jobs, three faults": Case(
        Scope(kinds=("now", "now"), max_attempts=4, faults=3, delays=("soon",), outcomes=frozenset({"succeed"})), tokens=4
    ),
    "two jobs from two clients": Case(
        Scope(kinds=("now", "soon"), faults=1, delays=("soon",), from_the_gateway=True, outcomes=frozenset({"succeed", "kill"}))
    ),
    "every outcome": Case(Scope(faults=1, outcomes=ALL_OUTCOMES), tokens=4),
    "every outcome, two faults": Case(Scope(faults=2, workers=2, outcomes=ALL_OUTCOMES, delays=("soon",)), tokens=4),
    "two faults, three workers": Case(Scope(faults=2), tokens=4),
    "three faults": Case(Scope(faults=3, workers=2, delays=("later",)), tokens=4),
    "four faults": Case(Scope(faults=4, delays=("soon",)), tokens=4),
    "three tickets": Case(Scope(faults=2, workers=2, tickets=3), tokens=4),
    "cancelled and redriven": Case(
        Scope(faults=2, workers=2, cancels=1, redrives=1, outcomes=frozenset({"succeed", "give up"})), tokens=4
    ),
    "parked": Case(Scope(faults=2, workers=2, parks=True, kinds=("soon",))),
    "whatever the queue does": Case(
        Scope(faults=2, workers=2, failovers=True, last_resort=True, forgets=True, delays=("soon",))
    ),
    "from a client, three workers": Case(Scope(faults=2, from_the_gateway=True), tokens=4),
}


def check(case: Case) -> None:
    protocol = Protocol(case.scope)
    explored = explore(protocol)
    sys.stdout.write(
        f"{explored.states:,} states, {explored.steps:,} steps, {explored.depth} deep, tokens to {protocol.highest_token}\n"
    )
    assert explored.found is None, str(explored.found)
    assert explored.states >= case.at_least
    assert protocol.highest_token >= case.tokens
    missed = [words for words in case.happens if not any(words in told for told in explored.happened)]
    assert not missed


@pytest.mark.parametrize("name", SHORT)
def test_every_promise_is_kept_in_every_state(name: str) -> None:
    check(SHORT[name])


@DEEPER
@pytest.mark.timeout(DEEPER_SECONDS)
@pytest.mark.parametrize("name", DEEP)
def test_every_promise_is_kept_deeper_down(name: str) -> None:
    check(DEEP[name])


@DEEPER
@pytest.mark.timeout(DEEPER_SECONDS)
@pytest.mark.parametrize("name", {wrong.scope: name for name, wrong in WRONG_DESIGNS.items()}.values())
def test_the_right_design_is_safe_where_a_wrong_one_is_not(name: str) -> None:
    scope = WRONG_DESIGNS[name].scope
    check(Case(replace(scope, faults=min(scope.faults, 1)), at_least=10, tokens=1))  # two would take make model beyond minutes


class Checked(Protocol):
    """Compares each world with the first that was met under the same key: what can happen next must be the same."""

    def __init__(self, scope: Scope, design: Design | None = None) -> None:
        super().__init__(scope, design)
        self._met: dict[Hashable, World] = {}
        self.compared = 0

    def key(self, state: World) -> Hashable:
        key = super().key(state)
        first = self._met.setdefault(key, state)
        if first != state:
            self.compared += 1
            assert self._futures(first) == self._futures(state)
        return key

    def _futures(self, world: World) -> set[Hashable]:
        return {(super(Checked, self).key(step.state), step.is_fault, step.broken) for step in self.steps(world)}


BY_ID = WRONG_DESIGNS["a job is completed by its id"].design

ALIKE = {
    "three workers": (Scope(faults=1, delays=("soon",), failovers=True), None),
    "timers and operators": (Scope(faults=0, workers=2, cancels=1, outcomes=frozenset({"fail"})), None),
    "a wrong design": (Scope(faults=1, workers=2, delays=("soon",)), BY_ID),
    "two jobs": (
        Scope(
            kinds=("now", "now"),
            faults=1,
            workers=1,
            cancels=1,
            max_attempts=1,
            delays=("later",),
            outcomes=frozenset({"fail"}),
        ),
        None,
    ),
}


@pytest.mark.parametrize("name", ALIKE)
def test_worlds_that_count_as_the_same_have_the_same_future(name: str) -> None:
    protocol = Checked(*ALIKE[name])
    explore(protocol, promises=(), must_end=False)
    assert protocol.compared > 100
