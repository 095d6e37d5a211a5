"""Processes of other programs: started in a session of their own, their CPU time read, ended with all their children."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_STOP_SECONDS = 5.0
_SESSION, _USER, _CHILDREN_SYSTEM = 3, 11, 14
"""Fields of /proc/PID/stat behind the program's name. https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html"""


class Program:
    """A running command and whatever it starts."""

    def __init__(self, command: Sequence[str], variables: Mapping[str, str], folder: Path, output: IO[bytes]) -> None:
        environment = {**os.environ, **variables}
        self._process = subprocess.Popen(
            command, env=environment, cwd=folder, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def cpu_seconds(self) -> float:
        """Of all its processes, with those that have ended and been waited for."""
        return sum(sum(map(int, stat[_USER : _CHILDREN_SYSTEM + 1])) for _, stat in self._family()) / _TICKS_PER_SECOND

    def peak_mib(self) -> float:
        """The most memory that each of its processes has had, together."""
        return sum(_peak_kib(pid) for pid, _ in self._family()) / 1024

    def stop(self) -> None:
        """Ask it to end, and end what has not after `_STOP_SECONDS`."""
        self._process.terminate()
        deadline = time.monotonic() + _STOP_SECONDS
        while self._family() and time.monotonic() < deadline:
            self._process.poll()
            time.sleep(0.02)
        for pid, _ in self._family():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._process.wait()

    def _family(self) -> list[tuple[int, list[str]]]:
        session = str(self._process.pid)
        return [(pid, stat) for pid, stat in _stats() if stat[_SESSION] == session and stat[0] != "Z"]


def busy_seconds() -> float:
    """CPU time that all processes of this machine have used."""
    times = [int(each) for each in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    return (sum(times) - times[3] - times[4]) / _TICKS_PER_SECOND  # without idle and waiting for I/O


def wait_quiet(longest_seconds: float, *, below: float = 0.2) -> None:
    """Until the machine is nearly idle, but no longer than this."""
    deadline = time.monotonic() + longest_seconds
    while time.monotonic() < deadline:
        before, began = busy_seconds(), time.monotonic()
        time.sleep(0.2)
        if (busy_seconds() - before) / ((time.monotonic() - began) * (os.cpu_count() or 1)) < below:
            return


def _stats() -> Iterator[tuple[int, list[str]]]:
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            with suppress(OSError):
                # The name, in brackets, may hold anything; the fields behind it do not.
                yield int(entry), Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()


def _peak_kib(pid: int) -> int:
    with suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1])
    return 0
