"""The front door of ``ringfence dev``: whatever is sent to it, the answer is one that programs understand."""

from __future__ import annotations

import http.client
import json
import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

import pytest

from ringfence import App
from ringfence.local.event_sources import Route
from ringfence.local.invocation import Outcome
from ringfence.local.sources.http import HttpSource
from ringfence.local.sources.pulse import Pulse
from ringfence.testing.memory_api import MemoryApi
from ringfence.testing.system import MemorySystem


class Door:
    """The door before the real gateway, over the memory engines."""

    def __init__(self, api: MemoryApi, source: HttpSource) -> None:
        self.key, self._port = api.key(), urlsplit(source.url).port
        self.invoked = 0
        """How often the function was."""
        self._api = api

    def invoke(self, event: bytes) -> Outcome:
        self.invoked += 1
        return Outcome(json.dumps(self._api.answer(json.loads(event))).encode())

    def connected(self) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self._port), timeout=10)

    def raw(self, request: bytes, method: str = "GET") -> http.client.HTTPResponse:
        """The answer to these very bytes."""
        with self.connected() as connection:
            connection.sendall(request)
            connection.shutdown(socket.SHUT_WR)
            answer = http.client.HTTPResponse(connection, method=method)
            answer.begin()
            answer.body = answer.read()  # type: ignore[attr-defined]  # before the connection is closed
            return answer

    def ask(self, method: str, path: str, headers: str = "") -> http.client.HTTPResponse:
        lines = f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {self.key}\r\n{headers}\r\n"
        return self.raw(lines.encode("latin-1"), method)


@pytest.fixture(scope="module")
def door() -> Iterator[Door]:
    api = MemoryApi(MemorySystem(App()))
    source = HttpSource(0, Pulse())
    door = Door(api, source)
    source.start([Route("ANY", "$default", "gateway")], "123456789012", {"gateway": door.invoke})
    yield door
    source.stop()


def kind_of(answer: http.client.HTTPResponse) -> str:
    """The kind of the problem document that the answer must be."""
    assert answer.headers["content-type"] == "application/problem+json"
    document = json.loads(answer.body)  # type: ignore[attr-defined]
    assert document["status"] == answer.status
    return str(document["type"]).rpartition("/")[2]


@pytest.mark.parametrize("method", ["BREW", "TRACE", "CONNECT", "get", "M-SEARCH"])
def test_a_method_that_nobody_knows_is_answered_by_the_gateway(door: Door, method: str) -> None:
    answer = door.ask(method, "/v1/jobs")
    assert (answer.status, kind_of(answer), answer.headers["allow"]) == (405, "method-not-allowed", "GET, POST")
    answer = door.ask(method, "/")
    assert (answer.status, kind_of(answer)) == (404, "no-such-route")


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GARBAGE", 400),
        (b"GET / HTTP/1.1 and more", 400),
        (b"GET / FTP/1.1", 400),
        (b"GET / HTTP/x.y", 400),
        (b"POST /", 400),
        (b"GET / HTTP/2.0", 505),
        (b"\x16\x03\x01 / HTTP/1.1", 400),
        (b"G(E)T / HTTP/1.1", 400),
        (b"GET /" + b"x" * 70_000 + b" HTTP/1.1", 414),
    ],
)
def test_a_line_that_is_no_request_is_told_so(door: Door, request_line: bytes, status: int) -> None:
    answer = door.raw(request_line + b"\r\nHost: 127.0.0.1\r\n\r\n")
    assert (answer.status, answer.headers["connection"]) == (status, "close")
    kind_of(answer)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ("Content-Length: -1\r\n", 400),
        (f"Content-Length: {'9' * 5000}\r\n", 400),
        ("Content-Length: 7000000\r\n", 413),
        ("Transfer-Encoding: gzip, chunked\r\n", 400),
        ("Origin: http://[\r\n", 403),
        ("".join(f"x-{n}: 1\r\n" for n in range(200)), 431),
        (f"x: {'y' * 70_000}\r\n", 431),
    ],
)
def test_so_are_headers_that_cannot_be(door: Door, headers: str, status: int) -> None:
    answer = door.ask("GET", "/v1/health", headers)
    assert answer.status == status
    kind_of(answer)


def test_a_host_that_is_none_is_refused(door: Door) -> None:
    assert kind_of(door.raw(b"GET / HTTP/1.1\r\nHost: [\r\n\r\n")) == "forbidden"


def test_a_chunk_of_less_than_nothing_is_refused_at_once(door: Door) -> None:
    answer = door.raw(b"POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n-5\r\nhello\r\n")
    assert (answer.status, kind_of(answer)) == (400, "bad-request")


def test_extensions_of_chunks_and_trailers_are_read_over(door: Door) -> None:
    body = b"c;ext=" + b"x" * 40 + b'\r\n{"name":"a"}\r\n0\r\nDigest: 1\r\nExpires: 2\r\n\r\n'
    head = (
        f"POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nAuthorization: Bearer {door.key}\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    before = door.invoked
    with door.connected() as connection:
        for _ in range(2):  # what is left of the first would be taken for the second
            connection.sendall(head.encode() + body)
            answer = http.client.HTTPResponse(connection, method="POST")
            answer.begin()
            assert (answer.status, b"job_id" in answer.read()) == (202, True)
    assert door.invoked == before + 2


def test_what_is_well_is_served(door: Door) -> None:
    assert door.ask("GET", "/v1/health").status == 200
    assert door.ask("HEAD", "/v1/health").status == 405


@pytest.mark.parametrize(
    "request_text",
    [
        "POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Thing: a",
        "POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Thing: a\r\n",
        'POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 20\r\n\r\n{"name":"a"}',
        "POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 20\r\n\r\n",
        "POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhel",
        "POST /v1/jobs HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n",
    ],
)
def test_a_request_that_was_cut_short_is_not_given_to_the_function(door: Door, request_text: str) -> None:
    before = door.invoked
    with door.connected() as connection:
        connection.sendall(request_text.encode())
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b""
    assert door.invoked == before
