"""A door that misbehaves as networks do."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress

import pytest

from ringfence.testing.door import Door


class Echo:
    """Answers each message with itself, and remembers what it was asked."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                connection, _ = self._listening.accept()
                threading.Thread(target=self._answer, args=(connection,), daemon=True).start()

    def _answer(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            while asked := connection.recv(100):
                self.asked.append(asked)
                connection.sendall(asked)


@pytest.fixture
def echo() -> Iterator[Echo]:
    server = Echo()
    yield server
    server.close()


@pytest.fixture
def door(echo: Echo) -> Iterator[Door]:
    with Door(echo.port) as door:
        yield door


def ask(door: Door, what: bytes = b"?") -> bytes:
    """The answer; nothing if the connection ended without one."""
    with socket.create_connection(("127.0.0.1", door.port), timeout=20) as connection, suppress(ConnectionError):
        connection.sendall(what)
        return connection.recv(100)
    return b""


def test_what_is_asked_through_a_door_is_answered(door: Door) -> None:
    assert ask(door) == b"?"


def test_a_lost_reply_was_asked_for_all_the_same_and_the_next_one_arrives(door: Door, echo: Echo) -> None:
    door.lose_replies(1)
    assert ask(door, b"1") == b""
    assert ask(door, b"2") == b"2"
    assert echo.asked == [b"1", b"2"]
    assert door.lost_replies == 1


def test_only_a_reply_to_what_holds_certain_words_is_lost(door: Door, echo: Echo) -> None:
    door.lose_replies(1, b"Update")
    with socket.create_connection(("127.0.0.1", door.port), timeout=20) as connection:
        for asked in (b"Get", b"Upsert", b"Update it"):
            connection.sendall(asked)
            assert connection.recv(100) == (b"" if b"Update" in asked else asked)
    assert ask(door, b"Update") == b"Update"
    assert echo.asked == [b"Get", b"Upsert", b"Update it", b"Update"]


def test_a_door_that_is_shut_ends_connections_until_it_leads_somewhere_again(door: Door, echo: Echo) -> None:
    with socket.create_connection(("127.0.0.1", door.port), timeout=20) as before:
        before.sendall(b"?")
        assert before.recv(100) == b"?"
        door.shut()
        assert before.recv(100) == b""
    assert ask(door) == b""
    door.lead_to(echo.port, cut=False)
    assert ask(door) == b"?"


def test_a_cut_ends_connections_and_lets_new_ones_through(door: Door) -> None:
    with socket.create_connection(("127.0.0.1", door.port), timeout=20) as before:
        before.sendall(b"?")
        assert before.recv(100) == b"?"
        door.cut()
        assert before.recv(100) == b""
    assert ask(door) == b"?"


def test_a_slow_door_takes_its_time_in_both_directions(door: Door) -> None:
    door.slow(0.02)
    began = time.monotonic()
    assert ask(door) == b"?"
    assert time.monotonic() - began >= 0.04
