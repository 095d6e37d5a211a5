"""Every call between the core and its adapters, numbered, so that a test can strike each in turn.

Run a scenario once to count its steps, then once for each step with a crash, a freeze or a lost reply there: what must hold
then holds at every point, not at those somebody thought of.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

from ringfence.testing.port_faults import Call, When


class Steps:
    """Wraps any number of ports and counts their calls together, from 0.

    ``act`` is called at step ``strike_at``, before the call or after it took effect; what it raises is raised from the call.
    """

    def __init__(self, strike_at: int | None = None, when: When = "before", act: Callable[[Call], Any] | None = None) -> None:
        self._strike_at, self._when, self._act = strike_at, when, act
        self._lock = threading.Lock()
        self.calls: list[str] = []
        """``port.method`` of each step, in order."""

    def wrap(self, name: str, port: Any) -> Any:
        """For `runtime.Runtime` and `MemorySystem`."""
        return _Counted(name, port, self)

    @property
    def struck(self) -> bool:
        return self._strike_at is not None and len(self.calls) > self._strike_at

    def call(self, name: str, real: Callable[..., Any], call: Call) -> Any:
        with self._lock:
            mine = len(self.calls) == self._strike_at
            self.calls.append(f"{name}.{call.method}")
        if mine and self._when == "before" and self._act is not None:
            self._act(call)
        reply = real(*call.args, **call.kwargs)
        if mine and self._when == "after" and self._act is not None:
            self._act(call)
        return reply


class _Counted:
    def __init__(self, name: str, port: Any, steps: Steps) -> None:
        self._name, self._port, self._steps = name, port, steps

    def __getattr__(self, attribute: str) -> Any:
        real = getattr(self._port, attribute)
        if not callable(real):
            return real
        return lambda *args, **kwargs: self._steps.call(self._name, real, Call(attribute, args, kwargs))
