"""Every state that can be reached, breadth first, so that the first fault found has the shortest way to it.

What is explored gives its first state, the steps out of a state, and a key: states of one key have the same future, and only
the first that is met is followed.
"""

from __future__ import annotations

import gc
from array import array
from collections.abc import Collection, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

State = Any

ENDS = "every job ends once faults stop"


class Step(NamedTuple):
    """One step: what is told of it (a template and what goes into it), the state after it, and the promise it broke, if any."""

    told: tuple[Any, ...]
    state: State
    is_fault: bool = False
    broken: str | None = None


class Model(Protocol):
    """What can be explored."""

    def first(self) -> State: ...

    def steps(self, state: State) -> Iterable[Step]: ...

    def key(self, state: State) -> Hashable: ...

    def broken(self, state: State) -> str | None:
        """The promise that this very state breaks."""

    def is_over(self, state: State) -> bool:
        """Whether all work is done: what a run without further faults must come to."""


@dataclass(slots=True)
class Found:
    """A broken promise, and the shortest way to it."""

    promise: str
    trace: list[str]

    def __str__(self) -> str:
        lines = [f"{number:3}. {line}" for number, line in enumerate(self.trace, 1)]
        return "\n".join(["", *lines, f"     BROKEN: {self.promise}"])


@dataclass(slots=True)
class Explored:
    """What an exploration has seen."""

    states: int = 0
    steps: int = 0
    depth: int = 0
    found: Found | None = None
    happened: set[str] = field(default_factory=set)
    """The templates of all that was told."""


class TooManyStates(Exception):
    """The scope is larger than was allowed for: an exploration that is cut short proves nothing."""


def explore(
    model: Model, *, most_states: int = 5_000_000, promises: Collection[str] | None = None, must_end: bool = True
) -> Explored:
    """Explore every state. Stops at the first broken promise (of ``promises`` only, if they are given).

    With ``must_end``, and if no promise is broken, it is then checked that from every state the end of all work can be
    reached by steps that are no faults: however it came there, a run that is fair and left alone ends.
    """
    with _no_search_for_cycles():
        return _explore(model, most_states, promises, must_end)


@contextmanager
def _no_search_for_cycles() -> Iterator[None]:
    """There are none among states, and to look for some takes a fifth of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _explore(model: Model, most_states: int, promises: Collection[str] | None, must_end: bool) -> Explored:
    seen = _Seen(model)
    explored = Explored()
    frontier = [seen.start()]
    while frontier:
        ahead: list[tuple[int, State]] = []
        for number, state in frontier:
            for choice, step in enumerate(model.steps(state)):
                explored.steps += 1
                explored.happened.add(step.told[0])
                new = seen.add(step, number, choice)
                broken = step.broken or (model.broken(step.state) if new is not None else None)
                if broken is not None and (promises is None or broken in promises):
                    explored.found = Found(broken, [*seen.trace(number), told(step)])
                    explored.states = len(seen)
                    return explored
                if new is not None:
                    ahead.append((new, step.state))
        if len(seen) > most_states:
            raise TooManyStates(f"more than {most_states:,} states after {explored.depth} steps")
        frontier = ahead
        explored.depth += 1
    explored.states = len(seen)
    if must_end:
        stuck = seen.first_stuck()
        if stuck is not None:
            explored.found = Found(ENDS, [*seen.trace(stuck), *_for_ever(model, seen.state(stuck))])
    return explored


def _for_ever(model: Model, state: State) -> list[str]:
    """Where a run goes from here without faults: to where it has been."""
    been = {model.key(state)}
    lines: list[str] = []
    while True:
        steps = [step for step in model.steps(state) if not step.is_fault]
        if not steps:
            return [*lines, "nothing more can happen"]
        step = next((step for step in steps if model.key(step.state) not in been), steps[0])
        lines.append(told(step))
        state = step.state
        if model.key(state) in been:
            return [*lines, "... and so on for ever"]
        been.add(model.key(state))


def told(step: Step) -> str:
    template, *values = step.told
    line: str = template.format(*values)
    return f"(fault) {line}" if step.is_fault else line


class _Seen:
    """The states met so far, numbered; the step that led to each; and the steps between them that are no faults."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._number_of: dict[Hashable, int] = {}
        self._parent, self._choice = array("l"), array("H")
        self._from, self._to = array("l"), array("l")
        self._over: list[int] = []

    def __len__(self) -> int:
        return len(self._number_of)

    def start(self) -> tuple[int, State]:
        state = self._model.first()
        self._number_of[self._model.key(state)] = 0
        self._keep(0, state, 0, 0)
        return 0, state

    def add(self, step: Step, parent: int, choice: int) -> int | None:
        """The number of this state if it is new."""
        number = len(self._number_of)
        there = self._number_of.setdefault(self._model.key(step.state), number)
        if not step.is_fault and there != parent:
            self._from.append(parent)
            self._to.append(there)
        if there != number:
            return None
        self._keep(number, step.state, parent, choice)
        return number

    def _keep(self, number: int, state: State, parent: int, choice: int) -> None:
        self._parent.append(parent)
        self._choice.append(choice)
        if self._model.is_over(state):
            self._over.append(number)

    def trace(self, number: int) -> list[str]:
        return [told(step) for step in self._way_to(number)]

    def state(self, number: int) -> State:
        way = self._way_to(number)
        return way[-1].state if way else self._model.first()

    def _way_to(self, number: int) -> list[Step]:
        choices: list[int] = []
        while number:
            choices.append(self._choice[number])
            number = self._parent[number]
        state, way = self._model.first(), []
        for choice in reversed(choices):
            way.append(list(self._model.steps(state))[choice])
            state = way[-1].state
        return way

    def first_stuck(self) -> int | None:
        """The first state from which no way without faults leads to the end."""
        starts = array("l", bytes(array("l").itemsize * (len(self) + 1)))
        for to in self._to:
            starts[to + 1] += 1
        for number in range(len(self)):
            starts[number + 1] += starts[number]
        into, place = array("l", bytes(array("l").itemsize * len(self._to))), array("l", starts)
        for origin, to in zip(self._from, self._to, strict=True):
            into[place[to]] = origin
            place[to] += 1
        ends = bytearray(len(self))
        for number in self._over:
            ends[number] = 1
        waiting = list(self._over)
        while waiting:
            number = waiting.pop()
            for origin in into[starts[number] : starts[number + 1]]:
                if not ends[origin]:
                    ends[origin] = 1
                    waiting.append(origin)
        stuck = ends.find(0)
        return None if stuck < 0 else stuck
