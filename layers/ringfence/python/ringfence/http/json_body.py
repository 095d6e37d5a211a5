"""From the bytes of a request to a validated struct, or to a problem that points at the fault."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, TypeVar

import msgspec

from ringfence import jsontext
from ringfence.errors import Rejected
from ringfence.http.patterns import in_words

T = TypeVar("T")

ENVELOPE_DEPTH = 3
"""``{"jobs": [{"payload": …}]}``: levels of the envelope around a payload."""

_AT_PATH = re.compile(r" - at `\$(.*)`\Z", re.DOTALL)
_PATH_STEP = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]")
_NAMED_FIELD = re.compile(r"\AObject (?:contains unknown|missing required) field `(.*)`\Z", re.DOTALL)


def parse(text: str) -> Any:
    """The whole body, checked as `jsontext.check` does: what no reader may meet is refused wherever it stands.

    A payload may still be nested too deeply (see `payload_text`): the envelope is not part of it.
    """
    if not text.strip():
        raise Rejected("the request has no body", kind="empty-body", status=400)
    try:
        return jsontext.check(text, jsontext.MAX_DEPTH + ENVELOPE_DEPTH)
    except Rejected as fault:
        detail = f"a payload is nested at most {jsontext.MAX_DEPTH} levels" if fault.kind == "too-deep" else str(fault)
        raise Rejected(detail, kind=fault.kind, status=fault.status, pointer=_payload_at_fault(text)) from None


def decode(text: str, to: type[T]) -> T:
    """The body as a struct. Raises `Rejected` (422) with the pointer of the first fault."""
    try:
        return msgspec.json.decode(text, type=to)
    except msgspec.ValidationError as fault:
        raise invalid(fault) from None
    except (msgspec.DecodeError, UnicodeError) as fault:
        raise Rejected(f"not JSON: {fault}", kind="not-json", status=400) from None


def payload_text(payload: msgspec.Raw, pointer: str) -> str:
    """A payload's exact text. Raises `Rejected` (422) if it is nested deeper than the ledger could keep it."""
    text = bytes(payload).decode()
    try:
        jsontext.check_depth(text)
    except Rejected as fault:
        raise Rejected(str(fault), kind=fault.kind, status=fault.status, pointer=pointer) from None
    return text


def invalid(fault: msgspec.ValidationError, *, kind: str = "invalid-request", status: int = 422) -> Rejected:
    """msgspec's message with its path turned into a JSON pointer: ``$.jobs[3].name`` → ``/jobs/3/name``."""
    message = str(fault)
    at = _AT_PATH.search(message)
    detail = message if at is None else message[: at.start()]
    steps = [] if at is None else [name or index for name, index in _PATH_STEP.findall(at[1])]
    if field := _NAMED_FIELD.match(detail):
        steps.append(field[1])
    return Rejected(in_words(detail), kind=kind, status=status, pointer="".join("/" + _escaped(step) for step in steps))


def _escaped(step: str) -> str:
    return step.replace("~", "~0").replace("/", "~1")


class _Payload(msgspec.Struct):
    payload: msgspec.Raw = msgspec.Raw(b"null")


class _Payloads(msgspec.Struct):
    payload: msgspec.Raw = msgspec.Raw(b"null")
    jobs: list[_Payload] = []


def _payload_at_fault(text: str) -> str | None:
    """The first payload that `jsontext.check` refuses on its own, looked for only once the whole is known to be bad."""
    try:
        envelope = msgspec.json.decode(text, type=_Payloads)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return None
    for pointer, payload in _payloads(envelope):
        try:
            jsontext.check(bytes(payload).decode())
        except Rejected:
            return pointer
    return None


def _payloads(envelope: _Payloads) -> Iterator[tuple[str, msgspec.Raw]]:
    yield "/payload", envelope.payload
    for index, job in enumerate(envelope.jobs):
        yield f"/jobs/{index}/payload", job.payload
