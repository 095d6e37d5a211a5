"""How the `Client` reaches the API: kept-alive connections, as many as there were callers at once, and patience.

Everything the client sends may be sent twice (submissions carry an idempotency key, or are at-least-once), so a lost
connection, a 429, a 503 or an answer that cannot be read is answered by sending the same bytes again, with jittered backoff,
for a bounded time.
"""

from __future__ import annotations

import http.client
import math
import os
import random
import ssl
import threading
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import TypeVar
from urllib.parse import SplitResult, urlsplit

import msgspec

from ringfence.errors import NotFound, Rejected, Unavailable, Unreachable
from ringfence.http.local_names import is_local
from ringfence.http.reply import PROBLEM_TYPES, Problem
from ringfence.ports import Clock
from ringfence.retry import Backoff, Pauses

BACKOFF = Backoff(base_seconds=0.2, cap_seconds=5.0)
WORTH_ANOTHER_TRY = frozenset({429, 502, 503, 504})
LONGEST_DETAIL_CHARACTERS = 300

_T = TypeVar("_T")

_problem_decoder = msgspec.json.Decoder(Problem)


@dataclass(frozen=True, slots=True)
class Answer:
    """What came back. ``tries``: how often the request was sent, as far as this side knows."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes
    tries: int


class Transport:
    """Requests to one API. Threads may share it; so may a process and its forks, each opening connections of its own."""

    def __init__(
        self,
        base_url: str,
        api_key: str | None,
        *,
        timeout_seconds: float,
        retry_seconds: float,
        allow_plain_http: bool,
        clock: Clock,
        random_source: random.Random,
    ) -> None:
        parts = urlsplit(base_url)
        if parts.scheme not in ("http", "https") or not parts.hostname or not _can_be_sent(parts):
            raise ValueError(f"not an http(s) URL: {base_url!r}")
        if parts.username or parts.password or parts.query or parts.fragment:
            raise ValueError("the base URL has only a scheme, a host, a port and a path")
        if api_key and not (api_key.isascii() and api_key.isprintable() and " " not in api_key):
            raise ValueError("the API key has characters that no key has: a line break, perhaps")
        if api_key and parts.scheme == "http" and not (allow_plain_http or is_local(parts.hostname)):
            raise ValueError("an API key is not sent unencrypted to another machine: use https, or allow_plain_http=True")
        self._secure, self._host, self._port = parts.scheme == "https", parts.hostname, parts.port
        self._address = f"{self._host}:{self._port or (443 if self._secure else 80)}"
        self._prefix = parts.path.rstrip("/")
        self._authorization = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._timeout_seconds, self._retry_seconds = timeout_seconds, retry_seconds
        self._clock, self._random = clock, random_source
        self._idle: list[http.client.HTTPConnection] = []
        self._process = os.getpid()
        self._lock = threading.Lock()
        self._tls = ssl.create_default_context() if self._secure else None

    def call(
        self,
        method: str,
        path: str,
        read: Callable[[Answer], _T],
        body: bytes | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        wait_seconds: float = 0.0,
        within_seconds: float = math.inf,
        returned: Container[int] = (),
    ) -> _T:
        """What ``read`` makes of the answer to a request that may be repeated.

        Raises `Rejected` (`NotFound` for a job that is not there) when it is refused, `Unavailable` when nothing better came
        within ``retry_seconds``, or ``within_seconds`` if they are fewer. ``read`` raises `msgspec.DecodeError` or
        `UnicodeDecodeError` for what is no answer of the API's. ``wait_seconds``: how long the API may hold the request beyond
        the usual timeout; ``returned``: refusals that the caller wants to read itself.
        """
        pauses = Pauses(BACKOFF, self._clock, self._random, seconds=min(self._retry_seconds, within_seconds))
        failure: Unavailable
        while True:
            asked_seconds = 0.0
            try:
                tries = pauses.failed + 1
                answer = self._send(method, path, body, headers or {}, self._timeout_seconds + wait_seconds, tries)
                if answer.status < 300 or answer.status in returned:
                    return read(answer)
                failure = _unavailable(answer)
                asked_seconds = _retry_after(answer)
            except (OSError, http.client.HTTPException) as fault:
                failure = Unreachable(f"{self._address} cannot be reached: {_reason(fault)}")
            except (msgspec.DecodeError, UnicodeDecodeError) as fault:
                kind = answer.headers.get_content_type()
                failure = Unavailable(f"{self._address} answered {answer.status} ({kind}), but not as the API does: {fault}")
            if not pauses.another_try(asked_seconds):
                raise failure

    def close(self) -> None:
        """Close every connection that no call is using."""
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.close()

    def _send(
        self, method: str, path: str, body: bytes | None, headers: Mapping[str, str], timeout_seconds: float, tries: int
    ) -> Answer:
        connection = self._borrow()
        kept_alive = connection.sock is not None
        try:
            return self._exchange(connection, method, path, body, headers, timeout_seconds, tries)
        except ConnectionError:
            if not kept_alive:
                raise
            # The server had closed an idle connection: no reason to wait.
            return self._exchange(connection, method, path, body, headers, timeout_seconds, tries + 1)
        finally:
            self._give_back(connection)

    def _exchange(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        path: str,
        body: bytes | None,
        headers: Mapping[str, str],
        timeout_seconds: float,
        tries: int,
    ) -> Answer:
        connection.timeout = timeout_seconds
        if connection.sock is not None:
            connection.sock.settimeout(timeout_seconds)
        content = {} if body is None else {"Content-Type": "application/json"}
        try:
            connection.request(method, self._prefix + path, body, {**self._authorization, **content, **headers})
            response = connection.getresponse()
            return Answer(response.status, response.headers, response.read(), tries)
        except BaseException:
            connection.close()  # half an exchange: whatever comes next on it would be misread
            raise

    def _borrow(self) -> http.client.HTTPConnection:
        """A connection of this caller's own until it is given back: an idle one, or one still to be opened."""
        with self._lock:
            if self._process != os.getpid():
                self._idle, self._process = [], os.getpid()  # a fork: the parent goes on using its connections
            if self._idle:
                return self._idle.pop()
        if self._secure:
            return http.client.HTTPSConnection(self._host, self._port, context=self._tls)
        return http.client.HTTPConnection(self._host, self._port)

    def _give_back(self, connection: http.client.HTTPConnection) -> None:
        if connection.sock is None:
            return  # it failed, or the server closed it
        with self._lock:
            self._idle.append(connection)


def document(kind: type[_T]) -> Callable[[Answer], _T]:
    """What `Transport.call` reads a document of this type with."""
    return lambda answer: msgspec.json.decode(answer.body, type=kind)


def _unavailable(answer: Answer) -> Unavailable:
    """What to tell when trying again does not help. Raises the error itself when it cannot."""
    problem = problem_in(answer)
    if answer.status not in WORTH_ANOTHER_TRY or problem.type == PROBLEM_TYPES + "misconfigured":
        raise error_of(problem)
    return Unavailable(problem.detail, retry_after_seconds=_retry_after(answer) or 1.0)


def error_of(problem: Problem) -> Rejected | Unavailable:
    """The error that a problem document stands for."""
    kind = problem.type.rpartition("/")[2]
    if problem.status >= 500 or problem.status == 429:
        return Unavailable(problem.detail)
    if problem.status == 404 and kind == "not-found":
        return NotFound(problem.detail, kind=kind, status=404)
    return Rejected(problem.detail, kind=kind, status=problem.status, pointer=problem.pointer)


def problem_in(answer: Answer) -> Problem:
    """The problem document of an answer; one in its place when something between here and the API answered instead."""
    try:
        problem = _problem_decoder.decode(answer.body)
    except (msgspec.DecodeError, UnicodeError):
        text = answer.body.decode(errors="replace")[:LONGEST_DETAIL_CHARACTERS]
        problem = Problem(
            type=f"{PROBLEM_TYPES}http-{answer.status}", title="", status=answer.status, detail=text or "no detail"
        )
    return msgspec.structs.replace(problem, status=answer.status)


def _reason(fault: Exception) -> str:
    """In words, without the number of the error."""
    return getattr(fault, "strerror", None) or str(fault) or type(fault).__name__


def _retry_after(answer: Answer) -> float:
    """Seconds; 0 when the header is absent or a date."""
    try:
        return max(0.0, float(answer.headers.get("Retry-After", "0")))
    except ValueError:
        return 0.0


def _can_be_sent(parts: SplitResult) -> bool:
    """Whether the host can be a name (of labels that DNS takes), and the path be in a line of a request."""
    try:
        (parts.hostname or "").encode("idna")
    except UnicodeError:
        return False
    return parts.path.isascii() and parts.path.isprintable() and " " not in parts.path
