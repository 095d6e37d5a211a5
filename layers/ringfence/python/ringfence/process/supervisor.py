"""The parent of the worker processes: forks them before anything is loaded, replaces those that end, stops them in time."""

from __future__ import annotations

import os
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType

from ringfence.local.tether import tether
from ringfence.process.liveness import Liveness

SOON_SECONDS = 5.0
"""After a process that ends sooner than this after its start there is a pause, or a broken deployment would spin."""

PAUSE_SECONDS = 1.0
MARGIN_SECONDS = 2.0
"""After the grace, processes get so much more to exit before they are killed: their jobs come back when their leases end."""

LOOK_SECONDS = 0.05

FAILED = 70
"""The exit code of a process whose code raised: EX_SOFTWARE of ``sysexits.h``."""

_STOPS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def fork(run: Callable[[], int]) -> int:
    """Start a process that runs this, exits with what it returns, and outlives its parent in no case. Returns its id.

    SIGTERM ends it at once, until ``run`` says otherwise. What a terminal sends to all of them, Ctrl-C and a hang-up, is for
    the parent to decide.
    """
    parent = os.getpid()
    _flush()  # or both would write what is not written yet
    # Held back until the child has let go of its parent's handlers: one of those would swallow the SIGTERM that is the child's.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _STOPS)
    try:
        pid = os.fork()
        if pid == 0:
            _be_child(parent, run, before)
        return pid
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _be_child(parent: int, run: Callable[[], int], mask: Iterable[int]) -> None:
    code = FAILED
    try:
        tether(parent)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        for number in (signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        code = run()
    except BaseException:  # noqa: BLE001 - it is told, and the process ends here whatever it was
        traceback.print_exc()
    finally:
        _flush()  # which `os._exit` does not do: what jobs have printed is there
        os._exit(code)


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with suppress(Exception):  # it may be closed, or its reader gone
            stream.flush()


class StopSignals:
    """Whether, and since when, the process is to stop. Heeded from the moment that this is made."""

    def __init__(self) -> None:
        self.since: float | None = None
        """When the first came, on the monotonic clock."""
        for number in _STOPS:
            if signal.getsignal(number) is not signal.SIG_IGN:  # it is, under nohup
                signal.signal(number, self._on_signal)

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        if self.since is None:
            self.since = time.monotonic()


class Supervisor:
    """Keeps ``processes`` children alive, each running ``child`` and exiting with what it returns.

    ``tell`` gets ``(event, pid, detail)`` for every start and end, and when the ``liveness_file`` cannot be touched. No child
    outlives its supervisor, even one that is killed: nobody would replace or stop it. With a ``liveness_file``, each child is
    given a file to touch at least every `liveness.LIVE_SECONDS`, and the file itself is touched while all of them do.
    """

    def __init__(
        self,
        child: Callable[[Path | None], int],
        processes: int,
        grace_seconds: float,
        tell: Callable[[str, int, str], None],
        stops: StopSignals,
        liveness_file: Path | None = None,
    ) -> None:
        self._child, self._grace_seconds, self._tell = child, grace_seconds, tell
        self._free = list(range(processes))
        """Places without a process."""
        self._running: dict[int, tuple[int, float]] = {}
        """Process id → its place, and when it was started."""
        self._start_from = 0.0
        self._liveness = None if liveness_file is None else Liveness(liveness_file, partial(tell, "shows_no_life", os.getpid()))
        self._stops = stops
        self._ended_badly = False
        """Some child crashed, or failed."""

    def run(self, probe: Callable[[], int]) -> int:
        """Until a SIGTERM, a SIGINT or a hang-up. Returns 0 if every child then ended well within the grace, else 1.

        First ``probe`` is run in a process of its own. If that returns anything but 0, this returns 1 and starts nothing.
        """
        try:
            if self._is_refused(probe):
                return 1
            while self._stops.since is None:
                self._start_missing()
                self._look()
            return self._stop(self._stops.since)
        finally:
            if self._liveness is not None:
                self._liveness.close()

    def _is_refused(self, probe: Callable[[], int]) -> bool:
        pid = fork(probe)
        while self._stops.since is None:
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                if os.WIFSIGNALED(status):  # which it cannot tell itself
                    self._tell("ended", pid, f"signal {os.WTERMSIG(status)}, while it tried to load the app")
                return status != 0
            time.sleep(LOOK_SECONDS)
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        return False

    def _start_missing(self) -> None:
        while self._free and self._stops.since is None and time.monotonic() >= self._start_from:
            place = self._free.pop()
            file = None if self._liveness is None else self._liveness.expect(place)
            try:
                pid = fork(lambda: self._child(file))  # noqa: B023 - it is called before this returns, in the other process
            except OSError as fault:  # no memory, or as many processes as there may be: the others go on
                self._free.append(place)
                self._start_from = time.monotonic() + PAUSE_SECONDS
                self._tell("not_started", os.getpid(), str(fault.strerror))
                return
            self._running[pid] = place, time.monotonic()
            self._tell("started", pid, "")

    def _look(self) -> None:
        self._reap()
        if self._liveness is not None:
            self._liveness.look([place for place, _ in self._running.values()])
        time.sleep(LOOK_SECONDS)

    def _reap(self) -> None:
        for pid in list(self._running):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                place, started = self._running.pop(pid)
                self._free.append(place)
                code = os.waitstatus_to_exitcode(status)
                self._tell("ended", pid, f"exit code {code}" if code >= 0 else f"signal {-code}")
                self._ended_badly |= code not in (0, -signal.SIGTERM)  # which ends it while it is being started (see `fork`)
                if time.monotonic() - started < SOON_SECONDS:
                    self._start_from = time.monotonic() + PAUSE_SECONDS

    def _stop(self, since: float) -> int:
        self._ended_badly = False
        for pid in self._running:
            os.kill(pid, signal.SIGTERM)
        deadline = since + self._grace_seconds + MARGIN_SECONDS
        while self._running and time.monotonic() < deadline:
            self._look()
        late = list(self._running)
        for pid in late:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            self._tell("killed", pid, "the grace was over")
        return 1 if late or self._ended_badly else 0
