"""An HTTP request as API Gateway and function URLs hand it to Lambda: payload format 2.0.

https://docs.aws.amazon.com/apigateway/latest/developerguide/http-api-develop-integrations-lambda.html
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from ringfence.errors import Rejected

MAX_BODY_BYTES = 6 * 1024 * 1024
"""Lambda takes no larger request. https://docs.aws.amazon.com/lambda/latest/dg/gettingstarted-limits.html"""

MAX_QUERY_PARAMETERS = 20

_TRACEPARENT = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")
"""https://www.w3.org/TR/trace-context/#traceparent-header"""


class _Http(msgspec.Struct, frozen=True):
    method: str = ""


class _Context(msgspec.Struct, frozen=True, rename="camel"):
    http: _Http = _Http()
    stage: str | None = None
    request_id: str | None = None


class _Event(msgspec.Struct, frozen=True, rename="camel"):
    raw_path: str = ""
    raw_query_string: str | None = None
    query_string_parameters: dict[str, str] | None = None
    headers: dict[str, str] | None = None
    request_context: _Context | None = None
    body: str | None = None
    is_base64_encoded: bool = False


@dataclass(frozen=True, slots=True)
class Request:
    """What the routes may know of an event. ``prefix`` is the stage in front of the path, empty for ``$default``."""

    _event: _Event
    prefix: str

    @classmethod
    def of(cls, event: Mapping[str, Any]) -> Request:
        """A named stage is in front of the path, unless a custom domain leads to it or it is `sam local`'s.

        Raises `Rejected` (400) for an event that is no request: whoever may invoke the function can send it anything.
        """
        try:
            read = msgspec.convert(event, _Event)
        except (msgspec.ValidationError, UnicodeError) as fault:
            raise Rejected(f"this is no HTTP request of payload format 2.0: {fault}", kind="no-request", status=400) from None
        stage = (read.request_context or _Context()).stage or "$default"
        in_front = stage != "$default" and read.raw_path.startswith(f"/{stage}/")
        return cls(read, f"/{stage}" if in_front else "")

    @property
    def method(self) -> str:
        return self._context.http.method

    @property
    def path(self) -> str:
        return self._event.raw_path[len(self.prefix) :]

    @property
    def request_id(self) -> str | None:
        return self._context.request_id

    def header(self, name: str) -> str | None:
        """A header by its lower-case name; repeated ones are joined by commas, as the event has them."""
        headers = self._event.headers or {}
        if name in headers:
            return headers[name]
        return next((value for key, value in headers.items() if key.lower() == name), None)

    @property
    def traceparent(self) -> str | None:
        """The W3C trace context if it is valid; the specification has any other ignored."""
        header = self.header("traceparent")
        return header if header is not None and _TRACEPARENT.fullmatch(header) else None

    def query(self) -> dict[str, str]:
        """The query parameters. Raises `Rejected` (400) for one that is given twice."""
        raw = self._event.raw_query_string
        if raw is None:
            return dict(self._event.query_string_parameters or {})
        try:
            pairs = parse_qsl(raw, keep_blank_values=True, errors="strict", max_num_fields=MAX_QUERY_PARAMETERS)
        except ValueError:
            raise Rejected("the query string cannot be read", kind="invalid-query", status=400) from None
        parameters = dict(pairs)
        if len(parameters) < len(pairs):
            raise Rejected("a query parameter is given twice", kind="invalid-query", status=400)
        return parameters

    def body(self) -> str:
        """The body as text, "" if there is none. Raises `Rejected`: 413 above `MAX_BODY_BYTES`, 400 if it is not UTF-8."""
        body = self._event.body or ""
        try:
            encoded = base64.b64decode(body, validate=True) if self._event.is_base64_encoded else body.encode()
            if len(encoded) > MAX_BODY_BYTES:
                raise Rejected(f"a request has at most {MAX_BODY_BYTES} bytes", kind="body-too-large", status=413)
            return encoded.decode()
        except UnicodeError:
            raise Rejected("the body is not UTF-8", kind="not-utf8", status=400) from None
        except ValueError:  # `binascii.Error` is one; what is not even ASCII raises it plainly
            raise Rejected("the body is not the base64 that it claims to be", kind="not-base64", status=400) from None

    @property
    def _context(self) -> _Context:
        return self._event.request_context or _Context()
