"""One call of a function, and how it ended."""

from __future__ import annotations

import json
import threading
import time
import uuid
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an invocation came to. ``payload`` is JSON: the handler's return value, or the description of the error."""

    payload: bytes
    error: str | None = None
    """The error's type (``Sandbox.Timedout``, ``Runtime.ExitError``, ``Unhandled`` …); None when the handler returned."""

    @classmethod
    def failed(cls, error: str, message: str) -> Outcome:
        """An error that the runtime, not the handler, has to tell of."""
        return cls(json.dumps({"errorMessage": message, "errorType": error}).encode(), error)

    def told(self) -> str:
        """The error in one line."""
        try:
            described = self.value()
        except ValueError:
            described = None
        if not isinstance(described, dict):
            return self.error or ""
        return ": ".join(str(described[key]) for key in ("errorType", "errorMessage") if described.get(key))

    def value(self) -> Any:
        """The payload, decoded. Raises `ValueError` if it is not JSON."""
        return json.loads(self.payload) if self.payload else None


@dataclass(slots=True)
class Invocation:
    """An event on its way through a function."""

    event: bytes
    request_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    deadline_ms: int = 0
    """Milliseconds since the epoch, for the function to see; set when it is given to a process."""
    deadline: float = 0.0
    """The same on this process's monotonic clock."""
    _done: threading.Event = field(default_factory=threading.Event)
    _outcome: Outcome | None = None

    def given(self, timeout_seconds: float) -> None:
        """The function's time starts now."""
        self.deadline_ms = int((time.time() + timeout_seconds) * 1000)
        self.deadline = time.monotonic() + timeout_seconds

    def finish(self, outcome: Outcome) -> None:
        """End it, unless it has ended already."""
        if self._outcome is None:
            self._outcome = outcome
            self._done.set()

    def wait(self) -> Outcome:
        self._done.wait()
        assert self._outcome is not None
        return self._outcome
