"""What a strike does to a call: half of a batch is taken, and the caller is told so, as the adapters of real services do."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest

from ringfence.errors import Unavailable

from .scheduler import taking_turns
from .wire import Wire
from .world import Plan, World


@pytest.fixture(autouse=True)
def _taking_turns() -> Iterator[None]:
    with taking_turns():
        yield


class Batches:
    """Takes every batch as a whole, and has three of everything to read."""

    name = "free"

    def __init__(self) -> None:
        self.taken: list[Sequence[Any]] = []

    def __getattr__(self, method: str) -> Callable[..., Any]:
        if method in ("due", "line"):
            return lambda *_: ["a", "b", "c"]
        if method == "lease":
            return lambda most, *_: ["a", "b", "c"][:most]
        answer: Any = {"push": [], "extend": []}.get(method)

        def take(batch: Sequence[Any], *more: Any) -> Any:
            self.taken.append([batch, *more])
            return ["written"] * len(batch) if method in ("append", "write_many") else answer

        return take


def called(method: str, *args: Any) -> tuple[Any, Batches, World]:
    """The answer to a call of which half is to be taken, or the fault that it raises."""
    world, port = World(Plan(1, kinds=("partial",), fault_share=1.0)), Batches()
    answers: list[Any] = []

    def call() -> None:
        try:
            answers.append(getattr(Wire(world, process, "port", port), method)(*args))
        except Unavailable as fault:
            answers.append(fault)

    process = world.process("caller", 0)
    world.scheduler.spawn(process, call)
    world.scheduler.run(10.0)
    world.scheduler.end()
    return answers[0], port, world


@pytest.mark.parametrize(
    ("method", "args", "taken", "answer"),
    [
        ("append", [[1, 2, 3]], [[[1]]], ["written", None, None]),
        ("append", [[1]], [], [None]),
        ("write_many", [[1, 2, 3]], [[[1]]], ["written", None, None]),
        ("push", [[1, 2, 3], 5.0], [[[1], 5.0]], [2, 3]),
        ("push", [[1, 2, 3], [5.0, 6.0, 7.0]], [[[1], [5.0]]], [2, 3]),
        ("acknowledge", [[1, 2]], [[[1]]], Unavailable),
        ("acknowledge", [[1]], [], Unavailable),
        ("extend", [[1, 2], 30.0], [[[1], 30.0]], Unavailable),
        ("release", [[1, 2], 30.0], [[[1], 30.0]], Unavailable),
        ("lease", [3, 30.0, 0.0], [], ["a"]),
        ("due", [0, 0, 100], [], ["a", "b"]),
        ("line", ["free", 100], [], ["a", "b"]),
    ],
)
def test_half_of_a_batch_is_taken_and_the_caller_told(method: str, args: list[Any], taken: list[Any], answer: Any) -> None:
    got, port, world = called(method, *args)
    assert port.taken == taken
    assert isinstance(got, Unavailable) if answer is Unavailable else got == answer
    assert [told for _, told in world.history.strikes] == [f"partial port.{method} of caller-0"]


@pytest.mark.parametrize(
    ("method", "args"), [("get", ["job"]), ("peek", [[1, 2]]), ("lease", [1, 30.0, 0.0]), ("lease", [9, 30.0, 0.0])]
)
def test_what_has_no_half_is_not_struck(method: str, args: list[Any]) -> None:
    _, _, world = called(method, *args)
    assert world.history.strikes == []
