"""An HTTP request as a function sees it, and its answer as the client does: payload format 2.0.

https://docs.aws.amazon.com/apigateway/latest/developerguide/http-api-develop-integrations-lambda.html
"""

from __future__ import annotations

import base64
import json
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.message import Message
from typing import Any
from urllib.parse import parse_qsl

_TEXT_TYPES = ("application/json", "application/xml", "application/javascript")
_HOP_BY_HOP = frozenset({"connection", "content-length", "keep-alive", "transfer-encoding", "upgrade"})
"""What concerns one connection is the server's to say."""


class BadAnswer(ValueError):
    """The function's answer is not one that the front door understands."""


@dataclass(frozen=True, slots=True)
class Request:
    """``target`` is the path and query as they were received."""

    method: str
    target: str
    headers: Message
    body: bytes
    source_ip: str
    protocol: str = "HTTP/1.1"

    @property
    def path(self) -> str:
        return self.target.partition("?")[0] or "/"


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: Sequence[tuple[str, str]] = ()
    body: bytes = b""


@dataclass(frozen=True, slots=True)
class Matched:
    """The route that a request took: its key, and what its ``{…}`` parts stand for."""

    key: str
    parameters: Mapping[str, str] = field(default_factory=dict)


def event_of(request: Request, route: Matched, account: str) -> dict[str, Any]:
    """The event of a request."""
    query = request.target.partition("?")[2]
    headers = _joined((name.lower(), value) for name, value in request.headers.items() if name.lower() != "cookie")
    cookies = [one.strip() for value in request.headers.get_all("cookie", []) for one in value.split(";") if one.strip()]
    body, is_base64 = _text_or_base64(request.body, headers.get("content-type", ""))
    now = time.time()
    event: dict[str, Any] = {
        "version": "2.0",
        "routeKey": route.key,
        "rawPath": request.path,
        "rawQueryString": query,
        "headers": headers,
        "requestContext": {
            "accountId": account,
            "apiId": "ringfence-dev",
            "domainName": headers.get("host", ""),
            "domainPrefix": headers.get("host", "").partition(".")[0],
            "http": {
                "method": request.method,
                "path": request.path,
                "protocol": request.protocol,
                "sourceIp": request.source_ip,
                "userAgent": headers.get("user-agent", ""),
            },
            "requestId": str(uuid.uuid4()),
            "routeKey": route.key,
            "stage": "$default",
            "time": datetime.fromtimestamp(now, UTC).strftime("%d/%b/%Y:%H:%M:%S +0000"),
            "timeEpoch": int(now * 1000),
        },
        "isBase64Encoded": is_base64,
    }
    # What is absent is absent, not null: so it is on AWS.
    optional = {
        "cookies": cookies,
        "queryStringParameters": _joined(parse_qsl(query, keep_blank_values=True)),
        "pathParameters": dict(route.parameters),
    }
    event |= {name: value for name, value in optional.items() if value}
    if request.body:
        event["body"] = body
    return event


def answer_of(result: Any) -> Answer:
    """The answer that a function's result stands for. Raises `BadAnswer`.

    A result without ``statusCode`` is the body of a 200, as JSON.
    """
    if not isinstance(result, dict) or "statusCode" not in result:
        return Answer(200, [("content-type", "application/json")], json.dumps(result).encode())
    try:
        status = int(result["statusCode"])
    except (TypeError, ValueError, OverflowError):
        raise BadAnswer(f"statusCode is {result['statusCode']!r}") from None
    if not 100 <= status <= 599:
        raise BadAnswer(f"statusCode is {status}")
    given, cookies = result.get("headers") or {}, result.get("cookies") or []
    if not isinstance(given, dict) or not isinstance(cookies, list):
        raise BadAnswer("headers is no object, or cookies no list")
    headers = [(_header_text(name), _header_text(value)) for name, value in given.items() if name.lower() not in _HOP_BY_HOP]
    headers += [("set-cookie", _header_text(cookie)) for cookie in cookies]
    return Answer(status, headers, _body_of(result))


def _body_of(result: Mapping[str, Any]) -> bytes:
    body = result.get("body")
    if body is None:
        return b""
    if not isinstance(body, str):
        return json.dumps(body).encode()
    if not result.get("isBase64Encoded"):
        return body.encode()
    try:
        return base64.b64decode(body, validate=True)
    except ValueError:  # `binascii.Error` is one; what is not even ASCII raises it plainly
        raise BadAnswer("isBase64Encoded is set and the body is not base64") from None


def _header_text(value: Any) -> str:
    text = "true" if value is True else "false" if value is False else str(value)
    if any(character in "\r\n\0" or character > "\xff" for character in text):
        raise BadAnswer(f"a header holds what none can: {text!r}")
    return text


def _joined(pairs: Any) -> dict[str, str]:
    """Values of the same name in one, with commas: format 2.0 has no lists."""
    joined: dict[str, str] = {}
    for name, value in pairs:
        joined[name] = f"{joined[name]},{value}" if name in joined else value
    return joined


def _text_or_base64(body: bytes, content_type: str) -> tuple[str, bool]:
    kind = content_type.partition(";")[0].strip().lower()
    if kind.startswith("text/") or kind in _TEXT_TYPES or kind.endswith(("+json", "+xml")):
        try:
            return body.decode(), False
        except UnicodeDecodeError:
            pass
    return base64.b64encode(body).decode(), True
