"""What a route answers, and the problem document (RFC 9457) it answers when it cannot."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from ringfence.acceptance import Refusal
from ringfence.errors import Rejected, RingfenceError, Unavailable

PROBLEM_TYPES = "https://ringfence.dev/problems/"
MAX_DETAIL_CHARACTERS = 500
"""A detail may name a key or value of the request; it is cut so that an answer never grows with its request."""

JSON = "application/json"
PROBLEM_JSON = "application/problem+json"


@dataclass(frozen=True, slots=True)
class Reply:
    """Status, body (None: no body) and headers."""

    status: int
    body: bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


class Problem(msgspec.Struct, omit_defaults=True, kw_only=True, frozen=True):
    """RFC 9457. `type` is stable and ends in the kind of problem; `pointer` (RFC 6901) leads to the fault in the body."""

    type: str
    title: str
    status: int
    detail: str
    pointer: str | None = None


def json_reply(status: int, document: msgspec.Struct, headers: Mapping[str, str] | None = None) -> Reply:
    """A document as JSON."""
    return Reply(status, msgspec.json.encode(document), {"Content-Type": JSON, **(headers or {})})


def problem(status: int, kind: str, detail: str, pointer: str | None = None) -> Problem:
    """The document for one kind of problem; its title is the kind in words."""
    clipped = detail if len(detail) <= MAX_DETAIL_CHARACTERS else detail[: MAX_DETAIL_CHARACTERS - 1] + "…"
    title = kind.replace("-", " ").capitalize().replace("json", "JSON").replace("utf8", "UTF-8")
    return Problem(type=PROBLEM_TYPES + kind, title=title, status=status, detail=clipped, pointer=pointer)


def problem_reply(document: Problem, headers: Mapping[str, str] | None = None) -> Reply:
    """A problem as the whole answer."""
    return Reply(document.status, msgspec.json.encode(document), {"Content-Type": PROBLEM_JSON, **(headers or {})})


def problem_of_refusal(refusal: Refusal, pointer_prefix: str = "") -> Problem:
    """A gateway's refusal of one job; the prefix leads to the job in a request with many."""
    pointer = None if refusal.pointer is None else pointer_prefix + refusal.pointer
    return problem(refusal.status, refusal.kind, refusal.detail, pointer)


def refusal_reply(refusal: Refusal) -> Reply:
    """The answer to a request for one job that was refused."""
    wait = refusal.retry_after_seconds
    return problem_reply(problem_of_refusal(refusal), {} if wait is None else {"Retry-After": retry_after(wait)})


def error_reply(error: RingfenceError) -> Reply | None:
    """The answer to an error that a caller can do something about; None for any other."""
    match error:
        case Rejected():
            challenge = {"WWW-Authenticate": 'Bearer realm="ringfence"'} if error.status == 401 else {}
            return problem_reply(problem(error.status, error.kind, str(error), error.pointer), challenge)
        case Unavailable():
            wait = {"Retry-After": retry_after(error.retry_after_seconds)}
            return problem_reply(problem(503, "unavailable", str(error)), wait)
    return None


def retry_after(seconds: float) -> str:
    """Whole seconds, as the header wants them, at least one."""
    return str(max(1, math.ceil(seconds)))
