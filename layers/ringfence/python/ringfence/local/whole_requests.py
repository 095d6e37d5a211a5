"""HTTP requests that were read to their end, or not at all.

`http.server` takes the end of a connection for the end of the headers and of the body. So what a process was saying when it
was killed would count as said: an answer without its list of failures, a redrive without the payload it was to bring.
"""

from __future__ import annotations

import io
from http.server import BaseHTTPRequestHandler
from typing import cast

_MAX_LINE_BYTES = 8 * 1024
"""Of a chunk's first line, with its extensions, or of a trailer."""


class _RequestCut(ConnectionError):
    """The connection ended within a request."""


class _Lines(io.BufferedReader):
    ended = False
    """The last line was none."""

    def readline(self, size: int | None = -1, /) -> bytes:
        line = super().readline(size)
        self.ended = not line
        return line


class WholeRequestHandler(BaseHTTPRequestHandler):
    """Closes the connection, without an answer, on which a request was cut short: there is nobody to be answered."""

    def setup(self) -> None:
        super().setup()
        self.rfile = _Lines(cast(io.BufferedReader, self.rfile).detach())

    def handle(self) -> None:
        try:
            super().handle()
        except _RequestCut:
            self.close_connection = True

    def parse_request(self) -> bool:
        parsed = super().parse_request()
        if parsed and cast(_Lines, self.rfile).ended:
            raise _RequestCut
        return parsed

    def read_body(self, at_most: int | None = None) -> bytes:
        """The body of the request; of one in chunks no more than a chunk beyond ``at_most`` bytes.

        Raises `ValueError` for what is neither a length nor a chunk.
        """
        if self.headers.get("Transfer-Encoding", "").lower() != "chunked":
            return self._read(int(self.headers.get("Content-Length") or 0))
        parts, size = [], 0
        while (length := int(self._line().partition(b";")[0], 16)) and (at_most is None or size <= at_most):
            parts.append(self._read(length))
            size += length
            self._line()
        while not length and self._line() != b"\r\n":
            pass  # a trailer
        return b"".join(parts)

    def _line(self) -> bytes:
        line = self.rfile.readline(_MAX_LINE_BYTES)
        if not line:
            raise _RequestCut
        if not line.endswith(b"\r\n"):
            raise ValueError("a line without an end")
        return line

    def _read(self, length: int) -> bytes:
        if length < 0:
            raise ValueError("less than nothing")
        body = self.rfile.read(length)
        if len(body) < length:
            raise _RequestCut
        return body
