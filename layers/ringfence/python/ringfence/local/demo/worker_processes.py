"""The workers of a demo whose queues are on Redis: one ``ringfence worker`` with several processes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from ringfence.errors import RingfenceError
from ringfence.local import tether
from ringfence.local.demo.worker_log import WorkerLog
from ringfence.local.function_environment import python_environment

QUEUE = "default"
"""The demo's jobs are all on this one."""

LOG = "RingfenceWorker"
"""Its log is ``<LOG>-<pid>.log``."""

READY_SECONDS = 60.0
_END_SECONDS = 10.0
"""From a SIGKILL until the last of them is gone, at most."""
_LOOK_SECONDS = 0.05
_COMMAND = "from ringfence.cli.main import main; main()"


class WorkersFailed(RingfenceError):
    """`ringfence worker` did not start, or has ended by itself."""


class WorkerProcesses:
    """``with WorkerProcesses(…):`` runs them and ends them again, the frozen ones too, whatever happens.

    ``environment`` is that of the worker function, ``code`` its folder. It dies with the thread that starts it (see `tether`),
    and its processes with it.
    """

    def __init__(
        self, environment: Mapping[str, str], code: Path, logs: Path, processes: int, queues: Sequence[str] = (QUEUE,)
    ) -> None:
        self._environment = {**python_environment(code), **environment, tether.PARENT_VARIABLE: str(os.getpid())}
        self._code, self._logs, self._processes, self._queues = code, logs, processes, queues
        self._log = WorkerLog(logs, LOG)
        self._alive: set[int] = set()
        self._supervisor: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> WorkerProcesses:
        """Raises `WorkersFailed`."""
        try:
            self._start()
            self._wait_until_started()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """SIGKILL, as `Dev` ends functions: to the whole group at once, for a frozen process does not heed anything else."""
        if self._supervisor is None or self._supervisor.returncode is not None:
            return  # who has been waited for has no group of his own any more
        group, give_up_at = self._supervisor.pid, time.monotonic() + _END_SECONDS
        # PermissionError is macOS's answer for a group of zombies.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal.SIGKILL)
            self._supervisor.wait()
            while time.monotonic() < give_up_at:  # its children are nobody's now: they are gone when init has seen them
                os.killpg(group, 0)
                time.sleep(_LOOK_SECONDS)

    def pids(self) -> Sequence[int]:
        """The processes that live, by what their parent says. Not for two threads at once."""
        for event in self._log.new_events():
            if event.name == "process_started":
                self._alive.add(event.pid)
            elif event.name in {"process_ended", "process_killed"}:
                self._alive.discard(event.pid)
        return sorted(self._alive)

    def _start(self) -> None:
        options = ["--json", "--processes", str(self._processes)]
        for queue in self._queues:
            options += ["--queue", queue]
        if threads := self._environment.get("RINGFENCE_WORKER_THREADS"):
            options += ["--threads", threads]
        unnamed = self._logs / f"{LOG}.starting"
        # Appended to, since several processes write here: each line lands whole at the end.
        with unnamed.open("ab") as output:
            self._supervisor = subprocess.Popen(
                [sys.executable, "-P", tether.__file__, "--program", sys.executable, "-c", _COMMAND, "worker", *options],
                cwd=self._code,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # A session of its own: Ctrl-C in the terminal is for us.
                start_new_session=True,
            )
        unnamed.rename(self._path)

    def _wait_until_started(self) -> None:
        assert self._supervisor is not None
        pause, give_up_at = threading.Event(), time.monotonic() + READY_SECONDS
        while len(self.pids()) < self._processes:
            if self._supervisor.poll() is not None:
                raise WorkersFailed(f"`ringfence worker` ended before it was ready; see {self._path}")
            if time.monotonic() > give_up_at:
                raise WorkersFailed(f"`ringfence worker` is not ready after {READY_SECONDS:g} s; see {self._path}")
            pause.wait(_LOOK_SECONDS)

    @property
    def _path(self) -> Path:
        assert self._supervisor is not None
        return self._logs / f"{LOG}-{self._supervisor.pid}.log"
