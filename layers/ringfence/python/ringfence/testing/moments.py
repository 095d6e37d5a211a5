"""The moments of a job's run at which something may strike: after each call between the core and its adapters, after each
call of a receiver's, before each line of the user's own code, and when that returns.

What a kill between two of them leaves behind is what a kill at the earlier one does, so to strike at each is to strike
everywhere.
"""

from __future__ import annotations

import linecache
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import PurePath
from types import FrameType
from typing import Any, Literal

from ringfence.change import Change
from ringfence.job import State
from ringfence.places import is_users_file
from ringfence.testing.port_faults import Call, Crash

CLAIM = "the claim"
"""What the moment after it is called: the token is raised, and no code of the user's has run."""

Kind = Literal["port", "receiver", "line", "return"]


@dataclass(frozen=True, slots=True)
class Moment:
    """One of them. ``told`` is what it is called in a report; two of one name are the same place, come to again."""

    number: int
    """Counted from 1."""
    kind: Kind
    told: str
    method: str = ""
    """The call's, for a port."""


Strike = Callable[[Moment], None]


class Moments:
    """Numbers what the worker under watch does, and calls ``strike`` at moment ``strike_at``."""

    def __init__(self, strike_at: int | None = None, strike: Strike | None = None) -> None:
        self._strike_at, self._strike = strike_at, strike
        self._lock = threading.Lock()
        self._watching = False
        self.dead = False
        """While true, whoever calls anything dies of it: a process that was killed does nothing more, whatever its code catches
        or has in ``finally``."""
        self.passed: list[Moment] = []

    @property
    def struck(self) -> bool:
        return self._strike_at is not None and len(self.passed) >= self._strike_at

    def wrap(self, name: str, port: Any) -> Any:
        """For `MemorySystem`."""
        return _Watched(name, port, self)

    @contextmanager
    def watching(self, watch: bool) -> Iterator[None]:
        """Whether what happens within counts."""
        before, self._watching = self._watching, watch
        try:
            yield
        finally:
            self._watching = before

    @contextmanager
    def lines(self) -> Iterator[None]:
        """Every line of the user's that this thread runs within is a moment; meanwhile no other tracer sees any."""
        if not self._watching or self.struck:
            yield
            return
        before = sys.gettrace()
        sys.settrace(self._entered)
        try:
            yield
        finally:
            sys.settrace(before)

    def returned(self) -> None:
        """The job's code has come to its end."""
        if self._watching:
            self._pass("return", "the job's last line")

    def call(self, name: str, real: Callable[..., Any], call: Call) -> Any:
        """Carry out a call of a port or a receiver."""
        if self.dead:
            raise Crash(f"a dead process called {name}.{call.method}")
        reply = real(*call.args, **call.kwargs)
        if self._watching:
            kind: Kind = "receiver" if name.startswith("receiver:") else "port"
            self._pass(kind, _told(name, call), call.method)
        return reply

    def _pass(self, kind: Kind, told: str, method: str = "") -> None:
        with self._lock:
            moment = Moment(len(self.passed) + 1, kind, told, method)
            self.passed.append(moment)
        if moment.number == self._strike_at and self._strike is not None:
            self._strike(moment)

    def _entered(self, frame: FrameType, _event: str, _arg: Any) -> Any:
        return self._line if _is_users_file(frame.f_code.co_filename) and not self.struck else None

    def _line(self, frame: FrameType, event: str, _arg: Any) -> Any:
        if event == "line" and self._watching:
            file, line = frame.f_code.co_filename, frame.f_lineno
            self._pass("line", f"{PurePath(file).name}:{line}  {linecache.getline(file, line).strip()}")
        return self._line


_is_users_file = cache(is_users_file)
"""Asked at each call that a traced thread makes."""


class _Watched:
    def __init__(self, name: str, port: Any, moments: Moments) -> None:
        self._name, self._port, self._moments = name, port, moments

    def __getattr__(self, attribute: str) -> Any:
        real = getattr(self._port, attribute)
        if not callable(real):
            return real
        return lambda *args, **kwargs: self._moments.call(self._name, real, Call(attribute, args, kwargs))


_ENDS = {
    State.RUNNING: CLAIM,
    State.SUCCEEDED: "the commit",
    State.DEAD: "the end as dead",
    State.CANCELLED: "the end as cancelled",
    State.QUEUED: "the retry",
    State.SCHEDULED: "the retry",
}

_TICKET = {
    "lease": "taking the ticket",
    "acknowledge": "acknowledging the ticket",
    "release": "putting the ticket back",
    "extend": "extending the lease",
    "push": "pushing a ticket",
}


def _told(name: str, call: Call) -> str:
    """What a call is, in the words of somebody who writes jobs."""
    if name.startswith("receiver:"):
        return f"the call of {name.removeprefix('receiver:')}"
    if name.startswith("queue:"):
        return _TICKET.get(call.method, f"{name}.{call.method}")
    match call.method, call.args:
        case "write", (Change() as change, *_):
            if change.leads_to is not None:
                return _ENDS[change.leads_to]
            return "ctx.checkpoint" if "checkpoint" in change.set else "a write to the row"
        case "write_effects", _:
            return "ctx.write"
        case "read_item", (table, *_):
            return f"ctx.read of {table}"
    return f"{name}.{call.method}"
