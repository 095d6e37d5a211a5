"""A TCP address that leads to one server today and to another tomorrow, as a name does after a failover."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress

_CHUNK_BYTES = 65_536


class Door:
    """Listens on a free port of 127.0.0.1 and carries every connection to the server that was last named."""

    def __init__(self, to_port: int) -> None:
        self._to_port = to_port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []
        threading.Thread(target=self._accept, name="door", daemon=True).start()

    def lead_to(self, port: int, *, cut: bool) -> None:
        """New connections go there. ``cut`` ends those there are; without it they go on where they are."""
        with self._lock:
            self._to_port = port
            if cut:
                self._cut()

    def close(self) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        with self._lock:
            self._cut()

    def __enter__(self) -> Door:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _cut(self) -> None:
        while self._open:
            with suppress(OSError):
                self._open.pop().shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                outside, _ = self._listening.accept()
                threading.Thread(target=self._carry, args=(outside,), name="door", daemon=True).start()

    def _carry(self, outside: socket.socket) -> None:
        with outside, suppress(OSError), socket.create_connection(("127.0.0.1", self._to_port)) as inside:
            with self._lock:
                self._open += [outside, inside]
            back = threading.Thread(target=_pump, args=(inside, outside), name="door", daemon=True)
            back.start()
            _pump(outside, inside)
            back.join()


def _pump(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(_CHUNK_BYTES):
            sink.sendall(data)
    for end in (source, sink):
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
