"""The functions' own handlers over the memory engines: what is said to them is what Lambda would say."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ringfence import runtime
from ringfence.ports import Queue
from ringfence.relay import Relay
from ringfence.testing.memory_api import MemoryApi
from ringfence.testing.system import MemorySystem
from ringfence.timers import Timers
from ringfence.worker import Worker

FUNCTIONS = Path(__file__).parents[2] / "functions"
INVOCATION_SECONDS = 60.0


class Deployed(MemoryApi):
    """What the functions ask of `runtime.current`, from a `MemorySystem`."""

    def __init__(self, system: MemorySystem) -> None:
        super().__init__(system)
        queues = {name: f"https://sqs.eu-west-1.amazonaws.com/123456789012/{name}" for name in system.queues}
        self.settings = dataclasses.replace(self.settings, queues=queues)

    @property
    def queues(self) -> Mapping[str, Queue]:
        return self.system.queues

    @property
    def relay(self) -> Relay:
        return self.system.relay

    @property
    def timers(self) -> Timers:
        return self.system.timers

    @property
    def worker(self) -> Worker:
        return self.system.worker()

    def invoke(self, function: str, event: Any) -> Any:
        """What ``functions/<function>/app.py``, started anew, returns for this event."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(runtime, "_current", self)
            return _started(function).handler(event, _Context(self))


class _Context:
    """Lambda's, as far as it is asked."""

    def __init__(self, here: Deployed) -> None:
        self._clock = here.clock
        self._ends_at = self._clock.monotonic() + INVOCATION_SECONDS

    def get_remaining_time_in_millis(self) -> int:
        return int((self._ends_at - self._clock.monotonic()) * 1000)


def _started(function: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"{function}_app", FUNCTIONS / function / "app.py")
    assert spec is not None
    assert spec.loader is not None
    app = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(app)
    return app
