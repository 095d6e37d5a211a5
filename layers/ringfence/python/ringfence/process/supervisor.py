"""The parent of the worker processes: forks them before anything is loaded, replaces those that end, stops them in time."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from types import FrameType

from ringfence.local.tether import tether

SOON_SECONDS = 5.0
"""A process that ends sooner than this after its start is replaced after a pause, or a broken deployment would spin."""

PAUSE_SECONDS = 1.0
MARGIN_SECONDS = 2.0
"""After the grace, processes get so much more to exit before they are killed: their jobs come back when their leases end."""


class Supervisor:
    """Keeps ``processes`` children alive, each running ``child`` and exiting with what it returns.

    ``tell`` gets ``(event, pid, detail)`` for every start and end. No child outlives its supervisor, even one that is killed:
    nobody would replace or stop it.
    """

    def __init__(
        self, child: Callable[[], int], processes: int, grace_seconds: float, tell: Callable[[str, int, str], None]
    ) -> None:
        self._child, self._processes, self._grace_seconds, self._tell = child, processes, grace_seconds, tell
        self._started: dict[int, float] = {}
        self._stopping_since: float | None = None

    def run(self) -> int:
        """Until a SIGTERM or SIGINT. Returns 0 if every child then ended by itself within the grace, else 1."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._on_signal)
        while self._stopping_since is None:
            while len(self._started) < self._processes and self._stopping_since is None:
                self._fork()
            self._reap()
            time.sleep(0.05)
        return self._stop()

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self._stopping_since is None:
            self._stopping_since = time.monotonic()

    def _fork(self) -> None:
        supervisor = os.getpid()
        pid = os.fork()
        if pid == 0:
            code = 70
            try:
                tether(supervisor)
                for number in (signal.SIGTERM, signal.SIGINT):
                    signal.signal(number, signal.SIG_DFL)
                code = self._child()
            finally:
                os._exit(code)
        self._started[pid] = time.monotonic()
        self._tell("started", pid, "")

    def _reap(self) -> None:
        for pid in list(self._started):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                lived = time.monotonic() - self._started.pop(pid)
                code = os.waitstatus_to_exitcode(status)
                self._tell("ended", pid, f"exit code {code}" if code >= 0 else f"signal {-code}")
                if lived < SOON_SECONDS and self._stopping_since is None:
                    time.sleep(PAUSE_SECONDS)

    def _stop(self) -> int:
        assert self._stopping_since is not None
        for pid in self._started:
            os.kill(pid, signal.SIGTERM)
        deadline = self._stopping_since + self._grace_seconds + MARGIN_SECONDS
        while self._started and time.monotonic() < deadline:
            self._reap()
            time.sleep(0.02)
        late = list(self._started)
        for pid in late:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            self._tell("killed", pid, "the grace was over")
        return 1 if late else 0
