"""The Lambda Runtime API on a loopback port: what a function's process asks for its next invocation.

One port per process, as in Lambda, where each execution environment has an API of its own: so it is known whose answer an
answer is, whatever client asks (ours in `bootstrap`, awslambdaric, any other).
https://docs.aws.amazon.com/lambda/latest/dg/runtimes-api.html
"""

from __future__ import annotations

import json
import socket
import threading
from contextlib import suppress
from http.server import ThreadingHTTPServer
from typing import Protocol

from ringfence.local.invocation import Invocation, Outcome
from ringfence.local.whole_requests import WholeRequestHandler

MAX_RESPONSE_BYTES = 6 * 1024 * 1024
"""https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html (synchronous invocation payload)"""

_LAST_WORDS_SECONDS = 2.0
"""How long a connection of an ended process may take to be read to its end; it is there already."""
_PREFIX = "/2018-06-01/runtime/"


class Environment(Protocol):
    """The process on the other end, as its keeper sees it."""

    function_arn: str

    def next(self) -> Invocation | None:
        """The process is idle: blocks until there is something for it to do. None when it is to get nothing any more."""
        ...

    def end(self, request_id: str, outcome: Outcome) -> bool:
        """The process has finished an invocation. False if it has none of this id."""
        ...

    def init_failed(self, outcome: Outcome) -> None:
        """The process could not load its handler, and is about to exit."""
        ...

    def gone_unread(self) -> None:
        """The process has ended, and what it was sent last was never read."""
        ...


class RuntimeApi:
    """The server of one process."""

    def __init__(self, environment: Environment) -> None:
        handler = type("Handler", (_Handler,), {"environment": environment})
        self._server = _Server(("127.0.0.1", 0), handler)
        self.address = f"127.0.0.1:{self._server.server_port}"
        """Value of ``AWS_LAMBDA_RUNTIME_API``."""
        self._closed = False
        self._connections: list[threading.Thread] = []
        self._thread = threading.Thread(target=self._accept, name="runtime-api", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """The process has ended: take no more connections, and read those that it had to their end."""
        self._closed = True
        with suppress(OSError), socket.create_connection(("127.0.0.1", self._server.server_port)):
            pass  # only to wake the thread, which waits for a connection and not for the clock
        self._thread.join()
        for connection in self._connections:
            connection.join(_LAST_WORDS_SECONDS)
        self._server.server_close()

    def _accept(self) -> None:
        while True:
            connection, client = self._server.get_request()
            if self._closed:
                connection.close()
                return
            serving = threading.Thread(target=self._server.process_request_thread, args=(connection, client), daemon=True)
            self._connections = [*(each for each in self._connections if each.is_alive()), serving]
            serving.start()


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """A process that is killed breaks its connection; its keeper learns of it from the process, not from here."""


class _Handler(WholeRequestHandler):
    environment: Environment
    protocol_version = "HTTP/1.1"
    # Headers and body leave in one segment, and at once: else each call would take 44 ms.
    wbufsize = -1
    disable_nagle_algorithm = True

    def handle(self) -> None:
        try:
            super().handle()
        except (ConnectionResetError, BrokenPipeError):
            # The kernel resets a connection that is closed with something in it that was not read. If all was read, it only
            # ends: then the process may have done anything with it.
            self.environment.gone_unread()

    def do_GET(self) -> None:
        if self.path != f"{_PREFIX}invocation/next":
            self._answer(404)
            return
        invocation = self.environment.next()
        if invocation is None:
            self.close_connection = True
            return
        if self._peer_has_closed():
            raise ConnectionResetError
        self._answer(
            200,
            invocation.event,
            {
                "Lambda-Runtime-Aws-Request-Id": invocation.request_id,
                "Lambda-Runtime-Deadline-Ms": str(invocation.deadline_ms),
                "Lambda-Runtime-Invoked-Function-Arn": self.environment.function_arn,
            },
        )

    def _peer_has_closed(self) -> bool:
        try:
            return not self.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT)
        except BlockingIOError:
            return False

    def do_POST(self) -> None:
        body = self.read_body()
        match self.path.removeprefix(_PREFIX).split("/"):
            case ["invocation", request_id, "response"]:
                self._respond(request_id, body)
            case ["invocation", request_id, "error"]:
                self._accept(self.environment.end(request_id, Outcome(body, self._error_type())))
            case ["init", "error"]:
                self.environment.init_failed(Outcome(body, self._error_type()))
                self._accept(True)
            case _:
                self._answer(404)

    def _respond(self, request_id: str, body: bytes) -> None:
        if len(body) <= MAX_RESPONSE_BYTES:
            self._accept(self.environment.end(request_id, Outcome(body)))
            return
        message = f"Response payload size exceeded maximum allowed payload size ({MAX_RESPONSE_BYTES} bytes)."
        self.environment.end(request_id, Outcome.failed("Function.ResponseSizeTooLarge", message))
        self._answer(413, _problem("RequestEntityTooLarge", message))

    def _accept(self, accepted: bool) -> None:
        if accepted:
            self._answer(202, b'{"status":"OK"}')
        else:
            self._answer(400, _problem("InvalidRequestID", "Invalid request ID"))

    def _error_type(self) -> str:
        return self.headers.get("Lambda-Runtime-Function-Error-Type") or "Unhandled"

    def _answer(self, status: int, body: bytes = b"{}", headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)
        self.wfile.flush()

    def log_message(self, format: str, *args: object) -> None:
        pass


def _problem(kind: str, message: str) -> bytes:
    return json.dumps({"errorType": kind, "errorMessage": message}).encode()
