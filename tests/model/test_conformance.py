"""Random walks through the model, taken step by step by the real core: after each, both stand at the same."""

from __future__ import annotations

import random

import pytest

from .explorer import Step, told
from .protocol import Protocol, Scope
from .real_core import RealCore
from .test_model import ALL_OUTCOMES
from .world import World

WALKS = 40
LONGEST = 60
FAULTS_OF_STEPS = 0.15

SCOPES = {
    "in the log": Scope(faults=6, outcomes=ALL_OUTCOMES, parks=True, cancels=1, redrives=1, failovers=True),
    "due soon": Scope(kinds=("soon",), faults=6, outcomes=ALL_OUTCOMES, parks=True, cancels=1, redrives=1),
    "far ahead": Scope(kinds=("far",), faults=6, outcomes=frozenset({"succeed", "fail"}), delays=("later",), redrives=1),
    "from a client with a key": Scope(faults=8, from_the_gateway=True, parks=True),
    "from a client without a key": Scope(faults=8, from_the_gateway=True, keyed=False),
}


def walk(protocol: Protocol, chance: random.Random) -> list[tuple[World, Step]]:
    """A way through the model, with the world before each step."""
    world: World = protocol.first()
    way: list[tuple[World, Step]] = []
    while len(way) < LONGEST and not protocol.is_over(world):
        steps = [step for step in protocol.steps(world) if not _is_left_out(step)]
        a_fault = chance.random() < FAULTS_OF_STEPS
        likely = [step for step in steps if step.is_fault == a_fault]
        if not steps:
            break
        step = chance.choice(likely or steps)
        way.append((world, step))
        world = step.state
    return way


def _is_left_out(step: Step) -> bool:
    """The relay pushes the tickets of many records in one call, which the model counts as many; and who joins a line depends
    on a pace, which the model does not know."""
    text = step.told[0]
    return (text.startswith("the relay reads") and step.told[1:] != (1,)) or "join" in text


@pytest.mark.parametrize("name", SCOPES)
def test_the_real_core_takes_every_step_of_the_model(name: str) -> None:
    chance = random.Random(name)
    happened: set[str] = set()
    for _ in range(WALKS):
        protocol = Protocol(SCOPES[name])
        way = walk(protocol, chance)
        core = RealCore(SCOPES[name])
        try:
            for number, (before, step) in enumerate(way):
                happened.add(step.told[0])
                try:
                    core.follow(step, before, [after for _, after in way[number + 1 :]])
                except AssertionError as difference:
                    story = "\n".join(told(step) for _, step in way[: number + 1])
                    raise AssertionError(f"the core differs after\n{story}") from difference
        finally:
            core.close()
    assert len(happened) > 30
