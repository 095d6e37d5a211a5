"""Faults for the processes of a running `ringfence dev`, planned by the test that waits for them.

    faults = DevFaults(folder, ["WorkerFunction"])
    with Dev(template, function_env=faults.environments) as dev:
        killed = faults.plan("WorkerFunction", "ledger.write", do="kill", only_state="succeeded", only_job=job_id)
        ...
        pid = killed.wait_until_struck()

Every process of a function looks at the same file before each call of a port, so nothing has to be started again.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import msgspec

from ringfence.local.bootstrap import FAULTS_VARIABLE
from ringfence.testing.port_faults import When
from ringfence.testing.process_faults import FILE_MARK, Do, ProcessFault

LOOK_SECONDS = 0.01
"""Between two looks for a marker: another process makes it, and nothing tells of it."""


class PlannedFault:
    """One fault, before and after it has struck."""

    def __init__(self, target: str, fault: ProcessFault) -> None:
        self.target, self.fault = target, fault

    def struck(self) -> int | None:
        """The process that was struck; None while none was."""
        with suppress(FileNotFoundError):
            return int(json.loads(Path(self.fault.marker).read_text())["pid"])
        return None

    def wait_until_struck(self, timeout_seconds: float = 30.0) -> int:
        """The process that was struck; one that stops has stopped. `TimeoutError` when none is, for then nothing was tested.

        Only for processes that this one has started, as `Dev` does.
        """
        give_up_at = time.monotonic() + timeout_seconds
        while (pid := self.struck()) is None:
            if time.monotonic() > give_up_at:
                raise TimeoutError(f"{self.fault.do} {self.fault.when} {self.target} did not happen in {timeout_seconds:g} s")
            time.sleep(LOOK_SECONDS)
        if self.fault.do == "stop":
            os.waitid(os.P_PID, pid, os.WSTOPPED | os.WNOWAIT)
        return pid

    def thaw(self) -> None:
        """Let a stopped process go on from where it stands; no matter if it has ended."""
        if self.fault.do == "stop" and (pid := self.struck()) is not None:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)


class DevFaults:
    """The plans of some functions, one file each in ``folder``, which must exist."""

    def __init__(self, folder: Path, functions: Sequence[str]) -> None:
        self._folder = folder
        self._planned: dict[str, dict[str, PlannedFault]] = {function: {} for function in functions}
        self._made = 0
        for function in functions:
            self._write(function)

    @property
    def environments(self) -> Mapping[str, Mapping[str, str]]:
        """For `Dev`'s ``function_env``."""
        return {function: {FAULTS_VARIABLE: f"{FILE_MARK}{self._file(function)}"} for function in self._planned}

    def plan(
        self,
        function: str,
        target: str,
        *,
        do: Do,
        when: When = "after",
        call: int = 1,
        times: int | None = 1,
        only_job: str | None = None,
        only_state: str | None = None,
    ) -> PlannedFault:
        """From now on, the fault lies in wait at ``target`` (``port.method``). See `process_faults.ProcessFault`."""
        if target in self._planned[function]:
            raise ValueError(f"{function} already has a fault at {target}")
        self._made += 1
        fault = ProcessFault(
            marker=str(self._folder / f"struck-{self._made}"),
            do=do,
            when=when,
            call=call,
            times=times,
            only_job=only_job,
            only_state=only_state,
        )
        planned = self._planned[function][target] = PlannedFault(target, fault)
        self._write(function)
        return planned

    def clear(self) -> None:
        """Plan nothing any more, and leave nobody stopped."""
        for function, planned in self._planned.items():
            for fault in planned.values():
                fault.thaw()
            planned.clear()
            self._write(function)

    def _write(self, function: str) -> None:
        plan = {target: planned.fault for target, planned in self._planned[function].items()}
        file = self._file(function)
        fresh = file.with_suffix(".fresh")
        fresh.write_bytes(msgspec.json.encode(plan))
        fresh.replace(file)

    def _file(self, function: str) -> Path:
        return self._folder / f"{function}.json"
