"""A TCP address that leads to one server today and to another tomorrow, as a name does after a failover; or that is slow, shut,
or loses what is answered."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress

_CHUNK_BYTES = 65_536


class Door:
    """Listens on a free port of 127.0.0.1 and carries every connection to the server that was last named."""

    def __init__(self, to_port: int | None = None) -> None:
        """Shut while no port is named."""
        self._to_port = to_port
        self._delay_seconds = 0.0
        self._replies_to_lose, self._asked_with = 0, b""
        self.lost_replies = 0
        """How many have been lost so far."""
        self._cuts = 0
        self._listening = socket.create_server(("127.0.0.1", 0), backlog=256)
        self.port: int = self._listening.getsockname()[1]
        self._lock = threading.Lock()
        self._open: set[socket.socket] = set()
        threading.Thread(target=self._accept, name="door", daemon=True).start()

    def lead_to(self, port: int, *, cut: bool) -> None:
        """New connections go there. ``cut`` ends those there are; without it they go on where they are."""
        with self._lock:
            self._to_port = port
            if cut:
                self._cut()

    def shut(self) -> None:
        """End every connection, and each new one at once, until it leads somewhere again."""
        with self._lock:
            self._to_port = None
            self._cut()

    def cut(self) -> None:
        """End every connection; new ones are carried."""
        with self._lock:
            self._cut()

    def slow(self, seconds: float) -> None:
        """From now on everything takes so long in each direction; 0 is as fast as it goes."""
        self._delay_seconds = seconds

    def lose_replies(self, count: int, asked_with: bytes = b"") -> None:
        """What is answered next, so many times, never arrives, and its connection ends: what was asked for has been done.
        Only answers of requests that hold ``asked_with``."""
        with self._lock:
            self._replies_to_lose, self._asked_with = count, asked_with

    def close(self) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self.cut()

    def __enter__(self) -> Door:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _cut(self) -> None:
        self._cuts += 1
        while self._open:
            with suppress(OSError):
                self._open.pop().shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                outside, _ = self._listening.accept()
                threading.Thread(target=self._carry, args=(outside,), name="door", daemon=True).start()

    def _carry(self, outside: socket.socket) -> None:
        port, cuts = self._to_port, self._cuts
        with outside:
            if port is None:
                return
            with suppress(OSError), socket.create_connection(("127.0.0.1", port)) as inside:
                # Else each small answer would wait for an acknowledgement of the one before.
                for end in (outside, inside):
                    end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                with self._lock:
                    if cuts != self._cuts:
                        return  # it has been cut meanwhile
                    self._open |= {outside, inside}
                asked = bytearray()
                back = threading.Thread(target=self._pump, args=(inside, outside, asked, True), name="door", daemon=True)
                back.start()
                self._pump(outside, inside, asked, False)
                back.join()
                with self._lock:
                    self._open -= {outside, inside}

    def _pump(self, source: socket.socket, sink: socket.socket, asked: bytearray, replies: bool) -> None:
        """``asked`` is what the connection was sent since it was last answered."""
        with suppress(OSError):
            while data := source.recv(_CHUNK_BYTES):
                if self._delay_seconds:
                    time.sleep(self._delay_seconds)
                if not replies:
                    asked += data
                elif self._loses(asked):
                    break
                else:
                    asked.clear()
                sink.sendall(data)
        for end in (source, sink):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def _loses(self, asked: bytearray) -> bool:
        if not self._replies_to_lose:
            return False
        with self._lock:
            lost = self._replies_to_lose > 0 and self._asked_with in asked
            self._replies_to_lose -= lost
            self.lost_replies += lost
            return lost
