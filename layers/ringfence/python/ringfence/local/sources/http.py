"""HTTP as an event source: the front door on a port of 127.0.0.1, one thread per connection."""

from __future__ import annotations

import json
import logging
import re
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from http import HTTPStatus
from http.server import ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from ringfence.errors import RingfenceError
from ringfence.http.reply import problem, problem_reply
from ringfence.local.event_sources import Route
from ringfence.local.invocation import Outcome
from ringfence.local.sources.http_event import Answer, BadAnswer, Request, answer_of, event_of
from ringfence.local.sources.http_routes import match
from ringfence.local.sources.pulse import Pulse
from ringfence.local.whole_requests import WholeRequestHandler

_log = logging.getLogger(__name__)

MAX_EVENT_BYTES = 6 * 1024 * 1024
"""Of the whole event. https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html"""
_SKIPPED_BYTES = 64 * 1024 * 1024
_PATIENCE_SECONDS = 1.0
_LOOPBACK = frozenset({"127.0.0.1", "localhost", "::1"})

_WORDS = {404: "Not Found", 413: "Request Too Long", 502: "Bad Gateway"}

_METHOD = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
"""https://www.rfc-editor.org/rfc/rfc9110#name-tokens"""
_LENGTH = re.compile(r"[0-9]{1,18}")


class PortTaken(RingfenceError):
    """The port is in use."""


class HttpSource:
    """Serves the routes. It listens from the beginning, so that a taken port is known before anything else is started, and
    answers once `start` has been called."""

    def __init__(self, port: int, pulse: Pulse) -> None:
        self._pulse = pulse
        try:
            self._server = _Server(("127.0.0.1", port), _Handler)
        except OSError as fault:
            raise PortTaken(f"cannot listen on 127.0.0.1:{port} ({fault.strerror}); --port 0 takes a free one") from None
        self._server.source = self
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._routes: Sequence[Route] = ()
        self._invoke: Mapping[str, Callable[[bytes], Outcome]] = {}
        self._account = ""
        self._thread = threading.Thread(target=self._server.serve_forever, name="http", daemon=True)

    def start(self, routes: Sequence[Route], account: str, invoke: Mapping[str, Callable[[bytes], Outcome]]) -> None:
        """Answer from now on; ``invoke`` maps a function's name to its invocation."""
        self._routes, self._account, self._invoke = routes, account, invoke
        self._thread.start()

    def stop(self) -> None:
        if self._thread.is_alive():
            self._server.shutdown()
        self._server.server_close()

    def answer(self, request: Request) -> Answer:
        """What the client gets."""
        matched = match(self._routes, request.method, request.path)
        if matched is None:
            return _refusal(404)
        route, how = matched
        event = json.dumps(event_of(request, how, self._account)).encode()
        if len(event) > MAX_EVENT_BYTES:
            return _refusal(413)
        outcome = self._invoke[route.function](event)
        if request.method not in ("GET", "HEAD"):
            self._pulse.beat()
        if outcome.error is not None:
            _log.warning("%s %s: %s failed: %s", request.method, request.path, route.function, outcome.told())
            return _refusal(502)
        try:
            return answer_of(outcome.value())
        except (BadAnswer, ValueError) as fault:
            _log.warning("%s %s: %s answered badly: %s", request.method, request.path, route.function, fault)
            return _refusal(502)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    request_queue_size = 256
    source: HttpSource

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that goes away in the middle is no news."""


class _Handler(WholeRequestHandler):
    server: _Server
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True

    def __getattr__(self, name: str) -> Any:
        """Any method is the function's to answer, also one that nobody has heard of."""
        if name.startswith("do_"):
            return self._serve
        raise AttributeError(name)

    def _serve(self) -> None:
        if (status := self._refused()) is not None:
            self._skip_body()
            self._refuse(status)
            return
        try:
            body = self.read_body(MAX_EVENT_BYTES)
        except ValueError:
            self._refuse(HTTPStatus.BAD_REQUEST)
            return
        if len(body) > MAX_EVENT_BYTES:
            self._refuse(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
            return
        request = Request(self.command, self.path, self.headers, body, self.client_address[0], self.request_version)
        self._send(self.server.source.answer(request))

    def _skip_body(self) -> None:
        """Read what a client is still sending, within reason: it only looks at the answer after that."""
        length = self.headers.get("Content-Length") or "0"
        left = min(int(length), _SKIPPED_BYTES) if _LENGTH.fullmatch(length) else 0
        while left > 0 and (read := self.rfile.read(min(left, 65536))):
            left -= len(read)

    def _refuse(self, status: HTTPStatus, detail: str | None = None) -> None:
        # What is left of the body would be taken for the next request.
        self.close_connection = True
        kind = status.phrase.lower().replace(" ", "-")
        told = problem_reply(problem(status, kind, detail or status.description or status.phrase))
        self._send(Answer(told.status, list(told.headers.items()), told.body or b""))

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """What is not HTTP, or too much of it: the same kind of answer as to any other request. Called by the superclass."""
        if not self.request_version.startswith("HTTP/1."):
            self.request_version = "HTTP/1.1"  # or it would be answered as HTTP/0.9 has it, without a status
        self._refuse(HTTPStatus(code), message)
        self._hear_out()

    def _hear_out(self) -> None:
        """Read what is still coming: a connection that is closed before that is reset, and the answer may be lost with it."""
        with suppress(OSError):
            self.connection.shutdown(socket.SHUT_WR)
            self.connection.settimeout(_PATIENCE_SECONDS)
            left = _SKIPPED_BYTES
            while left > 0 and (read := self.rfile.read1(65536)):
                left -= len(read)

    def _refused(self) -> HTTPStatus | None:
        """Pages of other sites must not use the developer's browser to submit jobs (DNS rebinding, cross-site posts)."""
        origin = self.headers.get("Origin")
        if not _is_here(f"//{self.headers.get('Host', '')}") or (origin is not None and not _is_here(origin)):
            return HTTPStatus.FORBIDDEN
        length = self.headers.get("Content-Length") or "0"
        coding = self.headers.get("Transfer-Encoding", "chunked").lower()
        if not _METHOD.fullmatch(self.command) or not _LENGTH.fullmatch(length) or coding != "chunked":
            return HTTPStatus.BAD_REQUEST
        return HTTPStatus.REQUEST_ENTITY_TOO_LARGE if int(length) > MAX_EVENT_BYTES else None

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        for name, value in answer.headers:
            self.send_header(name, value)
        if answer.status >= 200 and answer.status != 204:
            self.send_header("content-length", str(len(answer.body)))
        if self.close_connection:
            self.send_header("connection", "close")
        self.end_headers()
        if self.command != "HEAD" and answer.status not in (204, 304):
            self.wfile.write(answer.body)
        self.wfile.flush()

    def version_string(self) -> str:
        return "ringfence-dev"

    def log_message(self, format: str, *args: object) -> None:
        pass


def _is_here(url: str) -> bool:
    try:
        return urlsplit(url).hostname in _LOOPBACK
    except ValueError:
        return False


def _refusal(status: int) -> Answer:
    """As API Gateway answers by itself."""
    return Answer(status, [("content-type", "application/json")], json.dumps({"message": _WORDS[status]}).encode())
