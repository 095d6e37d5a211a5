"""A Redis server in a process of its own, on a free port of 127.0.0.1."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from ringfence.errors import RingfenceError
from ringfence.local import tether

_READY_SECONDS = 20.0
_LOOK_SECONDS = 0.01
_PORT_ATTEMPTS = 5
"""Redis cannot inherit a socket, so somebody may take the port between choosing and listening."""

_HIGHEST_PORT = 55_535
"""A cluster's node listens 10,000 above its port as well.
https://redis.io/docs/latest/operate/oss_and_stack/management/scaling/"""


class RedisFailed(RingfenceError):
    """Redis did not start, or has ended by itself."""


class RedisProcess:
    """Keeps its files in ``folder``. Without ``options`` nothing is written to disk and nothing is thrown away.

    It dies with the thread that starts it (see `tether`). ``options`` are command-line arguments of the server.
    """

    def __init__(self, binary: Path, folder: Path, options: Sequence[str] = (), port: int | None = None) -> None:
        self.binary, self.folder, self.options = binary, folder, tuple(options)
        self.log = folder / "redis.log"
        self._wanted_port = port
        self.port = port or 0
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    def start(self) -> None:
        """Start it and wait until it answers. Raises `RedisFailed` with the end of its log."""
        self.folder.mkdir(parents=True, exist_ok=True)
        for attempt in range(1, _PORT_ATTEMPTS + 1):
            self.port = self._wanted_port or _free_port()
            self.launch()
            if self._answers():
                return
            self.kill()
            told = self.log.read_text(errors="replace")
            if "Address already in use" not in told or self._wanted_port or attempt == _PORT_ATTEMPTS:
                raise RedisFailed(f"{self.binary} did not start; the end of {self.log}:\n{told[-2000:]}")

    def wait(self) -> int:
        """Block until it ends. Returns its exit code."""
        assert self._process is not None, "not started"
        return self._process.wait()

    def stop(self) -> None:
        """End it as an operator does, so that it writes what its options want written; returns when it is gone."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a crash does; returns when it is gone."""
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> None:
        if self._process is not None and self._process.returncode is None:  # once waited for, its number may be another's
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, how)
            self._process.wait()

    def launch(self) -> None:
        """Start it on `port` and do not wait."""
        basics = ["--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder), "--daemonize", "no"]
        memory_only = ["--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction"]
        command = [str(self.binary), *basics, *memory_only, *self.options]
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-P", tether.__file__, "--program", *command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, tether.PARENT_VARIABLE: str(os.getpid())},
                start_new_session=True,
            )

    def _answers(self) -> bool:
        assert self._process is not None
        deadline = time.monotonic() + _READY_SECONDS
        while self._process.poll() is None and time.monotonic() < deadline:
            with suppress(OSError), socket.create_connection(("127.0.0.1", self.port), timeout=1) as connection:
                connection.sendall(b"PING\r\n")
                # An error is an answer, too: it may want a password. While it loads its file it is not ready.
                answer = connection.recv(100)
                if answer and not answer.startswith(b"-LOADING"):
                    return True
            time.sleep(_LOOK_SECONDS)
        return False


def _free_port() -> int:
    while True:
        with socket.create_server(("127.0.0.1", 0)) as free:
            port: int = free.getsockname()[1]
        if port <= _HIGHEST_PORT:
            return port
