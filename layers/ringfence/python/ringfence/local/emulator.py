"""Start an emulator of AWS in a process of its own, and end it."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal

from ringfence.errors import RingfenceError
from ringfence.local import ministack_server, tether
from ringfence.local.endpoint import Endpoint
from ringfence.local.ministack_environment import ministack_python

Startable = Literal["ministack", "moto"]

_READY_SECONDS = 60.0
"""How long an emulator may take to answer. Half a second to four are usual; a loaded machine needs more."""
_LOOK_SECONDS = 0.05
_BACKLOG = 1024

_HEALTH = {"ministack": "/_ministack/health", "moto": "/moto-api/data.json"}


class EmulatorFailed(RingfenceError):
    """The emulator did not start, or has ended by itself."""


class Emulator:
    """A running emulator on a free port of 127.0.0.1. Nothing of it outlives the process.

    ``on_end(reason)`` is called, in another thread, when it ends without having been stopped.
    """

    def __init__(self, kind: Startable, region: str, log: Path, tell: Callable[[str], None], on_end: Callable[[str], None]):
        self._log, self._on_end = log, on_end
        # The socket is ours and inherited, so nobody can take the port between choosing and listening.
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=_BACKLOG)
        self.endpoint = Endpoint(kind, f"http://127.0.0.1:{self._socket.getsockname()[1]}", region)
        self._command = _moto(self._socket) if kind == "moto" else _ministack(self._socket, ministack_python(tell))
        self._environment = _environment(self.endpoint, self._socket)
        self._process: subprocess.Popen[bytes] | None = None
        self._started = threading.Event()
        self._stopping = threading.Event()
        self._keeper = threading.Thread(target=self._keep, name="emulator", daemon=True)

    def start(self) -> None:
        """Start it; `wait_ready` waits until it answers."""
        self._keeper.start()

    def wait_ready(self) -> None:
        """Wait until it answers. Raises `EmulatorFailed`."""
        self._started.wait()
        health = self.endpoint.url + _HEALTH[self.endpoint.kind]
        deadline = time.monotonic() + _READY_SECONDS
        while not _answers(health):
            if not self._keeper.is_alive():
                raise EmulatorFailed(
                    f"{self.endpoint.kind} ended before it answered; the end of {self._log}:\n{_tail(self._log)}"
                )
            if time.monotonic() > deadline:
                raise EmulatorFailed(f"{self.endpoint.kind} does not answer after {_READY_SECONDS:g} s; see {self._log}")
            self._stopping.wait(_LOOK_SECONDS)

    def stop(self) -> None:
        """End it, if it was started, and wait until it is gone."""
        self._stopping.set()
        if self._keeper.is_alive():
            self._started.wait()
            if self._process is not None:
                with suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
            self._keeper.join()
        self._socket.close()

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def _keep(self) -> None:
        """Starts the process in a thread that lives as long as it does (see `tether`)."""
        try:
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=self._environment,
                    pass_fds=[self._socket.fileno()],
                    start_new_session=True,
                )
        finally:
            # Were it still open here, the port would go on taking connections that nobody answers once the emulator is gone.
            self._socket.close()
            self._started.set()
        code = self._process.wait()
        if not self._stopping.is_set():
            self._on_end(f"{self.endpoint.kind} ended with exit code {code}; see {self._log}")


def _moto(listening: socket.socket) -> list[str]:
    return [sys.executable, "-m", "ringfence.local.moto_server", str(listening.fileno())]


def _ministack(listening: socket.socket, python: Path) -> list[str]:
    # By its path, and without its folder on sys.path: ours is not MiniStack's environment.
    return [str(python), "-P", ministack_server.__file__, str(listening.fileno())]


def _environment(endpoint: Endpoint, listening: socket.socket) -> dict[str, str]:
    kept = ("PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "PYTHONPATH") if endpoint.kind == "moto" else ("PATH", "HOME", "TMPDIR")
    return {
        **{name: os.environ[name] for name in kept if name in os.environ},
        tether.PARENT_VARIABLE: str(os.getpid()),
        "AWS_DEFAULT_REGION": endpoint.region,
        # MiniStack: the queue URLs it gives out name this host and port, and no broker is to listen elsewhere.
        "GATEWAY_PORT": str(listening.getsockname()[1]),
        "MINISTACK_HOST": "127.0.0.1",
        "MINISTACK_REGION": endpoint.region,
        "IOT_MTLS_ENABLED": "0",
        "SFTP_ENABLED": "0",
        "LOG_LEVEL": "WARNING",
        "PYTHONUNBUFFERED": "1",
    }


def _answers(url: str) -> bool:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(url, timeout=5.0) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def _tail(log: Path, lines: int = 20) -> str:
    return "\n".join(log.read_text(errors="replace").splitlines()[-lines:]) if log.exists() else ""
