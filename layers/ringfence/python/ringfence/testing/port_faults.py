"""Faults in front of any port: a wrapper that crashes, freezes, fails or lies before or after a chosen call.

    ledger = Faulty(MemoryLedger(clock), [crash("write", when="after", call=2)])

Faults are put between the core and its adapters, so nothing in the product knows of them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from ringfence.errors import Death, Unavailable

When = Literal["before", "after"]
"""Before the real call (which then may never happen), or after it has taken effect and before its reply is seen."""


class Crash(Death):
    """The process died here: no handler mistakes it for an error to deal with.

    Unlike a real death it lets ``finally`` blocks run; `ringfence.testing.process_faults` kills for real.
    """


@dataclass(frozen=True, slots=True)
class Call:
    """One call of the port's, as it arrived."""

    method: str
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """What happens to the ``call``-th call (from 1; None: each one) of ``method`` for which ``where`` is true."""

    method: str
    act: Callable[[Call], Any]
    when: When | Literal["instead"]
    """``instead``: the real call is not made, and what ``act`` returns is the reply."""
    call: int | None = 1
    where: Callable[..., bool] | None = None
    """Called with the arguments of the call."""


class Freeze:
    """A point where callers stop until thawed."""

    def __init__(self) -> None:
        self._frozen = threading.Event()
        self._thawed = threading.Event()

    def wait_until_frozen(self, timeout_seconds: float = 10.0) -> None:
        """Block until a caller has stopped here. `TimeoutError` when none comes."""
        if not self._frozen.wait(timeout_seconds):
            raise TimeoutError(f"nobody froze within {timeout_seconds} s")

    def thaw(self) -> None:
        """Let the stopped callers go on, and those that come later pass."""
        self._thawed.set()

    def __call__(self, _call: Call) -> None:
        self._frozen.set()
        self._thawed.wait()


def crash(method: str, *, when: When, call: int | None = 1, where: Callable[..., bool] | None = None) -> Fault:
    """The process dies before the call is made, or after it took effect."""
    return Fault(method=method, act=_crash, when=when, call=call, where=where)


def freeze(gate: Freeze, method: str, *, when: When, call: int | None = 1, where: Callable[..., bool] | None = None) -> Fault:
    """The caller stops at ``gate`` before the call is made, or after it took effect, and goes on when thawed."""
    return Fault(method=method, act=gate, when=when, call=call, where=where)


def unavailable(method: str, *, call: int | None = 1, where: Callable[..., bool] | None = None) -> Fault:
    """The call is not made and raises `Unavailable`."""
    return Fault(method=method, act=_unavailable, when="before", call=call, where=where)


def reply_lost(method: str, *, call: int | None = 1, where: Callable[..., bool] | None = None) -> Fault:
    """The call takes effect, and raises `Unavailable` all the same."""
    return Fault(method=method, act=_unavailable, when="after", call=call, where=where)


def lie(method: str, reply: Any, *, call: int | None = 1, where: Callable[..., bool] | None = None) -> Fault:
    """The call is not made, and ``reply`` is returned as if it had been."""
    return Fault(method=method, act=lambda _call: reply, when="instead", call=call, where=where)


@dataclass(slots=True)
class _Armed:
    """A fault and how many calls have matched it."""

    fault: Fault
    matched: int = 0

    def strikes(self, call: Call) -> bool:
        fault = self.fault
        if fault.method != call.method or (fault.where is not None and not fault.where(*call.args, **call.kwargs)):
            return False
        self.matched += 1
        return fault.call is None or self.matched == fault.call


class Faulty:
    """The port ``port`` with a script of faults. Every other call, and every attribute, passes through.

    A script that names a method the port does not have is a `ValueError`: it would be a test that cannot fail.
    """

    def __init__(self, port: Any, script: Sequence[Fault]) -> None:
        for fault in script:
            if not callable(getattr(port, fault.method, None)):
                raise ValueError(f"{type(port).__name__} has no method {fault.method!r}")
        self._port = port
        self._armed = [_Armed(fault) for fault in script]
        self._calls: list[Call] = []
        self._fired: list[Fault] = []
        self._lock = threading.Lock()

    @property
    def calls(self) -> list[Call]:
        """Every call so far, in the order of arrival, struck or not."""
        with self._lock:
            return list(self._calls)

    @property
    def fired(self) -> list[Fault]:
        """The faults that have struck, in order; a test looks here whether its fault happened at all."""
        with self._lock:
            return list(self._fired)

    def calls_of(self, method: str) -> list[Call]:
        """The calls of one method, in the order of arrival."""
        return [call for call in self.calls if call.method == method]

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._port, name)
        if not callable(attribute):
            return attribute

        def call(*args: Any, **kwargs: Any) -> Any:
            return self._call(attribute, Call(name, args, kwargs))

        return call

    def _call(self, real: Callable[..., Any], call: Call) -> Any:
        striking = self._strike(call)
        for fault in striking:
            if fault.when == "before":
                fault.act(call)
        replies = [fault.act(call) for fault in striking if fault.when == "instead"]
        reply = replies[-1] if replies else real(*call.args, **call.kwargs)
        for fault in striking:
            if fault.when == "after":
                fault.act(call)
        return reply

    def _strike(self, call: Call) -> list[Fault]:
        with self._lock:
            self._calls.append(call)
            striking = [armed.fault for armed in self._armed if armed.strikes(call)]
            self._fired.extend(striking)
            return striking


def _crash(call: Call) -> None:
    raise Crash(f"at {call.method}")


def _unavailable(call: Call) -> None:
    raise Unavailable(f"{call.method}: injected", retry_after_seconds=0.01)
