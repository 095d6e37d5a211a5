"""A running ``ringfence worker``, for tests of what its processes do when they are stopped, killed or replaced."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

RINGFENCE = Path(sys.executable).parent / "ringfence"

NEXT_SECONDS = 30.0
END_SECONDS = 40.0


class WorkerCommand:
    """``ringfence worker --json`` with these options, started in the folder of its jobs, and the events that it and its
    processes print. ``environment`` is added to the caller's, and what that says of AWS is left out."""

    def __init__(self, environment: Mapping[str, str], folder: Path, *options: str) -> None:
        self.events: SimpleQueue[dict[str, Any]] = SimpleQueue()
        self._process = subprocess.Popen(
            [RINGFENCE, "worker", "--json", *options],
            env={**{name: value for name, value in os.environ.items() if not name.startswith("AWS_")}, **environment},
            cwd=folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if (event := _event_in(line)) is not None:
                self.events.put(event)

    def next(self, name: str) -> dict[str, Any]:
        """The next event of this name; those before it are passed over."""
        while True:
            try:
                event = self.events.get(timeout=NEXT_SECONDS)
            except Empty:
                raise AssertionError(f"no {name} within {NEXT_SECONDS:g} s") from None
            if event["event"] == name:
                return event

    def ask_to_stop(self) -> None:
        """SIGTERM, unless it has ended."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)

    def end(self) -> int:
        """SIGTERM, unless that was sent or it has ended; then its exit code."""
        self.ask_to_stop()
        code = self._process.wait(END_SECONDS)
        self._reader.join(10)
        assert self._process.stdout is not None
        self._process.stdout.close()
        return code


def _event_in(line: str) -> dict[str, Any] | None:
    """None for whatever else is printed, by jobs perhaps."""
    with suppress(ValueError):
        told = json.loads(line)
        if isinstance(told, dict) and "event" in told:
            return told
    return None
