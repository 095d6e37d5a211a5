"""What the worker's processes have told so far: their logs, read as they grow.

Logs say where to look; what is so, the ledger says.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Event:
    """One JSON line of a process's log."""

    pid: int
    name: str
    fields: Mapping[str, Any]

    @property
    def job_id(self) -> str:
        return str(self.fields.get("job_id", ""))

    @property
    def token(self) -> int:
        return int(self.fields.get("token", 0))


class WorkerLog:
    """The logs of all processes of one function, ``<function>-<pid>.log`` in ``folder``. Not for two threads at once.

    Where several processes share a log, each line says whose it is.
    """

    def __init__(self, folder: Path, function: str) -> None:
        self._folder, self._function = folder, function
        self._read_bytes: dict[Path, int] = {}

    def new_events(self) -> list[Event]:
        """What was told since the last call: in order for each process, not among them."""
        return [event for path in sorted(self._folder.glob(f"{self._function}-*.log")) for event in self._news(path)]

    def _news(self, path: Path) -> list[Event]:
        pid = int(path.stem.rpartition("-")[2])
        with path.open("rb") as log:
            log.seek(self._read_bytes.get(path, 0))
            whole, _, _ = log.read().rpartition(b"\n")
        if not whole:
            return []
        self._read_bytes[path] = self._read_bytes.get(path, 0) + len(whole) + 1
        return [event for line in whole.split(b"\n") if (event := _event(pid, line)) is not None]


def _event(pid: int, line: bytes) -> Event | None:
    """None for what is not an event: whatever else a process may print."""
    try:
        told = json.loads(line)
    except ValueError:
        return None
    if not isinstance(told, dict) or not isinstance(told.get("event"), str):
        return None
    said = told.get("pid")
    return Event(said if isinstance(said, int) else pid, told["event"], told)
