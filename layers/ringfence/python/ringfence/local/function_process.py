"""One process of a function: started, given one invocation at a time, killed, and known by its pid."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from ringfence.local import tether
from ringfence.local.invocation import Invocation, Outcome
from ringfence.local.runtime_api import RuntimeApi


class Keeper(Protocol):
    """Who starts processes and hands out invocations."""

    def became_idle(self, process: FunctionProcess) -> None: ...

    def ended(self, process: FunctionProcess) -> None: ...


class FunctionProcess:
    """A process that runs `bootstrap`, and the end of the Runtime API that talks to it.

    Its keeper must start it from a thread that lives as long as it may (see `tether`), and holds its own lock while it calls
    `give`, so that an idle process is given one invocation only.
    """

    def __init__(self, keeper: Keeper, function_arn: str) -> None:
        self.function_arn = function_arn
        self.initialised = False
        """It has asked for its first invocation."""
        self.init_error: Outcome | None = None
        self.invocation: Invocation | None = None
        """What it is busy with; None while it is idle."""
        self.last_active = time.monotonic()
        self.kill_reason: str | None = None
        self.unread = False
        """It has ended without having read its invocation: another process may run it."""
        self._keeper = keeper
        self._given = threading.Semaphore(0)
        self._retired = False
        self._api = RuntimeApi(self)
        self._process: subprocess.Popen[bytes] | None = None

    # --- its life ------------------------------------------------------------------------------------------------------

    def start(self, environment: Mapping[str, str], folder: Path, log: Callable[[int], Path]) -> None:
        """Start it in ``folder``. Its output goes to the file ``log(pid)``."""
        unnamed = log(0).with_suffix(f".{id(self)}")
        with unnamed.open("wb") as output:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "ringfence.local.bootstrap"],
                cwd=folder,
                env={
                    **environment,
                    "AWS_LAMBDA_RUNTIME_API": self._api.address,
                    tether.PARENT_VARIABLE: str(os.getpid()),
                },
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # A session of its own: Ctrl-C in the terminal is for us, and what it starts dies with it.
                start_new_session=True,
            )
        unnamed.rename(log(self.pid))
        threading.Thread(target=self._wait, name=f"wait-{self.pid}", daemon=True).start()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def exit_code(self) -> int | None:
        """None while it lives; negative for the signal that ended it."""
        assert self._process is not None
        return self._process.returncode

    def kill(self, reason: str) -> None:
        """SIGKILL, to it and to what it has started; also ends a process that is stopped."""
        if self.exit_code is None:
            self.kill_reason = self.kill_reason or reason
            self._kill_group()

    def _kill_group(self) -> None:
        # PermissionError is macOS's answer for a group of zombies.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def discard(self) -> None:
        """Give up one that could not be started."""
        self._api.close()

    def _wait(self) -> None:
        assert self._process is not None
        self._process.wait()
        self._kill_group()
        self._retired = True
        self._given.release()
        self._api.close()
        self._keeper.ended(self)

    # --- its work ------------------------------------------------------------------------------------------------------

    def is_stopped(self) -> bool:
        """Whether it is stopped by a signal (SIGSTOP). Only Linux tells; elsewhere the answer is no."""
        try:
            status = Path(f"/proc/{self.pid}/stat").read_bytes()
        except OSError:
            return False
        # The state follows the command's name, which is in brackets and may itself hold brackets.
        return status.rpartition(b")")[2].split()[0] in (b"T", b"t")

    def give(self, invocation: Invocation, timeout_seconds: float) -> None:
        """Let it run this. It must be idle."""
        invocation.given(timeout_seconds)
        self.invocation = invocation
        self._given.release()

    def next(self) -> Invocation | None:
        self.initialised = True
        self.last_active = time.monotonic()
        self._keeper.became_idle(self)
        self._given.acquire()
        if self._retired:
            self.gone_unread()
            return None
        return self.invocation

    def end(self, request_id: str, outcome: Outcome) -> bool:
        invocation = self.invocation
        if invocation is None or invocation.request_id != request_id:
            return False
        self.invocation = None
        invocation.finish(outcome)
        return True

    def gone_unread(self) -> None:
        self.unread = True

    def init_failed(self, outcome: Outcome) -> None:
        self.init_error = outcome
