"""What a planted bug is, and how the changes that transitions make are bent into one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any
from unittest.mock import patch

from ringfence import transitions
from ringfence.change import Change

from .run import plan_of
from .world import KINDS, Parts, Plan


@dataclass(frozen=True, slots=True)
class Bug:
    """``caught_by``: the checkers that must see it, each of them."""

    name: str
    caught_by: tuple[str, ...]
    parts: Callable[[], Parts] = Parts
    planted: Callable[[], AbstractContextManager[Any]] = field(default=nullcontext)
    kinds: tuple[str, ...] = KINDS
    """The faults under which it shows."""
    fault_share: float = 0.14
    """And how many calls are struck: a worker whose own calls are struck may end out of order."""
    drain_seconds: float = 4_000.0
    """How long what does not end is waited for: without the bug everything has ended by then."""
    lives: Mapping[str, Any] = field(default_factory=dict)
    """What else is special in the lives in which it shows, as fields of a `Plan`."""

    def plan(self, seed: int) -> Plan:
        """A life in which it may show."""
        special = {
            "fault_share": self.fault_share,
            "skew_seconds": 0.0,
            "kinds": self.kinds,
            "drain_seconds": self.drain_seconds,
        }
        return plan_of(seed, **{**special, **self.lives})


def rewritten(name: str, **changed: Any) -> Callable[[], AbstractContextManager[Any]]:
    """The change that a transition makes, with some of it otherwise; a callable gets the change and what it was made from."""
    original: Any = getattr(transitions, name)

    def otherwise(*args: Any, **kwargs: Any) -> Change:
        change: Change = original(*args, **kwargs)
        new = {key: value(change, *args) if callable(value) else value for key, value in changed.items()}
        return dataclasses.replace(change, **new)

    return lambda: patch.object(transitions, name, otherwise)


@contextmanager
def together(*planted: Callable[[], AbstractContextManager[Any]]) -> Iterator[None]:
    with ExitStack() as stack:
        for each in planted:
            stack.enter_context(each())
        yield
