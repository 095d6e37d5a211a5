"""The processes of one function: how many there are is its concurrency."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ringfence.errors import RingfenceError
from ringfence.local.function_process import FunctionProcess
from ringfence.local.invocation import Invocation, Outcome

_BACKOFF_SECONDS = (0.2, 10.0)
"""The first and the longest pause before a process is started again that could not load its handler."""
_THAW_SECONDS = 0.2
"""How often a waiting invocation looks whether a stopped process goes on."""
_STOP_SECONDS = 10.0


class FunctionBroken(RingfenceError):
    """A function's process could not load its handler."""


@dataclass(frozen=True, slots=True)
class PoolSize:
    """``start`` processes are there from the beginning; up to ``most`` when invocations wait."""

    start: int
    most: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """What is needed to run a function."""

    name: str
    """Logical id in the template."""
    arn: str
    folder: Path
    timeout_seconds: float
    environment: Mapping[str, str] = field(repr=False)
    """All of it: nothing is inherited."""


@dataclass(frozen=True, slots=True)
class Replaced:
    """A process has ended that nobody asked to end, and another one stands in for it."""

    function: str
    old_pid: int
    new_pid: int
    reason: str


class Pool:
    """Keeps processes of a function alive and gives each one invocation at a time, as Lambda does.

    An invocation goes to the idle process that was active last, and to another one if that has died without reading it. A
    stopped one (SIGSTOP) gets none while another lives; if it
    already has one, its time limit frees it. One thread starts all processes, and lives until `stop`.
    """

    def __init__(self, function: Function, size: PoolSize, logs: Path, on_replaced: Callable[[Replaced], None]) -> None:
        self.function = function
        self.size = size
        self._logs = logs
        self._on_replaced = on_replaced
        self._changed = threading.Condition()
        self._processes: list[FunctionProcess] = []
        self._idle: list[FunctionProcess] = []
        self._waiting: deque[Invocation] = deque()
        self._wanted = size.start
        self._gone: deque[tuple[int, str]] = deque()
        self._extra: Mapping[str, str] = {}
        self._failures = 0
        self._start_after = 0.0
        self._init_error: str | None = None
        self._stopping = False
        self._keeper = threading.Thread(target=self._keep, name=f"pool-{function.name}", daemon=True)

    # --- for those who call the function -------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to start the processes; `wait_ready` waits for them."""
        self._keeper.start()

    def wait_ready(self, timeout_seconds: float) -> None:
        """Wait until the processes there should be have loaded their handler. Raises `FunctionBroken`."""
        with self._changed:
            settled = self._changed.wait_for(self._is_ready, timeout_seconds)
            if self._init_error is not None:
                raise FunctionBroken(f"{self.function.name} could not load its handler: {self._init_error}")
            if not settled:
                raise FunctionBroken(
                    f"{self.function.name} is not ready after {timeout_seconds:g} s; its logs are in {self._logs}"
                )

    def invoke(self, event: bytes) -> Outcome:
        """Run one invocation, as soon as a process is free, and wait for its end."""
        invocation = Invocation(event)
        with self._changed:
            if self._stopping:
                return Outcome.failed("Sandbox.Stopped", "ringfence dev is stopping")
            self._waiting.append(invocation)
            self._hand_out()
            if len(self._waiting) > self._about_to_ask() and self._wanted < self.size.most:
                self._wanted += 1
            self._changed.notify_all()
        return invocation.wait()

    def pids(self) -> list[int]:
        """The processes that live and are ready, in the order of their start."""
        with self._changed:
            return [process.pid for process in self._processes if process.initialised]

    def restart(self, extra_environment: Mapping[str, str], timeout_seconds: float) -> None:
        """Kill all processes and start others, with these variables added; wait until they are ready."""
        with self._changed:
            self._extra = dict(extra_environment)
            old = list(self._processes)
            self._failures, self._start_after, self._init_error = 0, 0.0, None
            for process in old:
                self._kill(process, "restart")
            self._changed.wait_for(lambda: not set(old) & set(self._processes), _STOP_SECONDS)
        self.wait_ready(timeout_seconds)

    def stop(self) -> None:
        """Kill all processes, wait until they are gone, and fail what was waiting."""
        with self._changed:
            self._stopping = True
            for process in self._processes:
                self._kill(process, "stop")
            while self._waiting:
                self._waiting.popleft().finish(Outcome.failed("Sandbox.Stopped", "ringfence dev is stopping"))
            self._changed.notify_all()
        if self._keeper.is_alive():
            self._keeper.join()

    # --- for the processes (`function_process.Keeper`) -----------------------------------------------------------------

    def became_idle(self, process: FunctionProcess) -> None:
        with self._changed:
            self._failures, self._init_error = 0, None
            if process in self._processes:
                self._idle.append(process)
                self._hand_out()
            self._changed.notify_all()

    def ended(self, process: FunctionProcess) -> None:
        with self._changed:
            self._forget(process)
            reason = process.kill_reason or _exit_reason(process)
            if (invocation := process.invocation) is not None:
                if process.unread and process.kill_reason is None and not self._stopping:
                    self._waiting.appendleft(invocation)
                else:
                    invocation.finish(self._error_of(invocation, reason))
            if not process.initialised and process.kill_reason is None:
                told = process.init_error.told() if process.init_error else reason
                self._init_has_failed(f"{told}; see {self._log(process.pid)}")
            if process.initialised and reason not in ("restart", "stop"):
                self._gone.append((process.pid, reason))
            self._changed.notify_all()

    # --- inside, with the lock held ------------------------------------------------------------------------------------

    def _is_ready(self) -> bool:
        ready = sum(process.initialised for process in self._processes)
        return self._init_error is not None or (ready >= self.size.start and ready == len(self._processes))

    def _hand_out(self) -> None:
        """Give waiting invocations to idle processes, the last active first."""
        while self._waiting and self._idle:
            process = next((each for each in reversed(self._idle) if not each.is_stopped()), None)
            if process is None:
                if len(self._idle) < self._wanted or any(not each.is_stopped() for each in self._processes):
                    return
                # All of them are stopped. One gets it, and the time limit with it, as in Lambda.
                process = self._idle[-1]
            self._idle.remove(process)
            process.give(self._waiting.popleft(), self.function.timeout_seconds)

    def _about_to_ask(self) -> int:
        """Processes that take one of those that wait in a moment: they are being started, or have just answered. One more for
        each batch that follows closely on another would be a cold start in the way of all that runs."""
        starting = self._wanted - len(self._processes)
        free = (each for each in self._processes if each.invocation is None and each.kill_reason is None)
        return starting + sum(not each.is_stopped() for each in free)

    def _kill(self, process: FunctionProcess, reason: str) -> None:
        if process in self._idle:
            self._idle.remove(process)
        process.kill(reason)

    def _forget(self, process: FunctionProcess) -> None:
        self._processes.remove(process)
        if process in self._idle:
            self._idle.remove(process)

    def _error_of(self, invocation: Invocation, reason: str) -> Outcome:
        about = f"RequestId: {invocation.request_id} Error:"
        if reason == "timeout":
            limit = self.function.timeout_seconds
            return Outcome.failed("Sandbox.Timedout", f"{about} Task timed out after {limit:.2f} seconds")
        return Outcome.failed("Runtime.ExitError", f"{about} Runtime exited: {reason}")

    def _init_has_failed(self, told: str) -> None:
        self._init_error = told
        first, longest = _BACKOFF_SECONDS
        self._start_after = time.monotonic() + min(first * 2**self._failures, longest)
        self._failures += 1
        self._changed.notify_all()
        if not any(each.initialised for each in self._processes):
            while self._waiting:
                self._waiting.popleft().finish(Outcome.failed("Runtime.Unknown", told))

    # --- the keeper's thread -------------------------------------------------------------------------------------------

    def _keep(self) -> None:
        while True:
            with self._changed:
                now = time.monotonic()
                self._kill_overdue(now)
                self._hand_out()
                if self._stopping and not self._processes:
                    return
                missing = 0 if self._stopping else self._wanted - len(self._processes)
                if missing <= 0 or now < self._start_after:
                    self._changed.wait(self._until_next(now, missing > 0))
                    continue
                process = self._start_process()
                replaced = self._gone.popleft() if process and self._gone else None
            if process and replaced:
                self._on_replaced(Replaced(self.function.name, replaced[0], process.pid, replaced[1]))

    def _start_process(self) -> FunctionProcess | None:
        process = FunctionProcess(self, self.function.arn)
        self._processes.append(process)
        try:
            process.start({**self.function.environment, **self._extra}, self.function.folder, self._log)
        except OSError as fault:
            self._processes.remove(process)
            process.discard()
            self._init_has_failed(f"cannot be started: {fault}")
            return None
        return process

    def _kill_overdue(self, now: float) -> None:
        for process in self._processes:
            # Read once: the process may be answering in this moment.
            if (invocation := process.invocation) is not None and invocation.deadline <= now:
                self._kill(process, "timeout")

    def _until_next(self, now: float, must_start: bool) -> float | None:
        """Seconds until there is something to do that nobody notifies of; None for never."""
        busy = [process.invocation for process in self._processes if process.kill_reason is None]
        moments = [invocation.deadline for invocation in busy if invocation is not None]
        if must_start:
            moments.append(self._start_after)
        if self._waiting and self._idle:
            moments.append(now + _THAW_SECONDS)
        return max(min(moments) - now, 0.0) if moments else None

    def _log(self, pid: int) -> Path:
        return self._logs / f"{self.function.name}-{pid}.log"


def _exit_reason(process: FunctionProcess) -> str:
    code = process.exit_code
    if code is not None and code < 0:
        return f"signal {-code}"
    return f"exit code {code}"
