"""The ``Idempotency-Key`` header.

https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/ makes it a structured string
(``Idempotency-Key: "8e03978e…"``); what most clients send is the bare text, so that is taken too and means the same key.
"""

from __future__ import annotations

import re

from ringfence.errors import Rejected
from ringfence.http import patterns

_KEY = re.compile(patterns.IDEMPOTENCY_KEY)
_BARE = re.compile(r'[^\s",;]+')
_QUOTED = re.compile(r'"((?:[^"\\]|\\["\\])*)"')
_ESCAPED = re.compile(r"\\(.)")


def key_in(header: str | None) -> str | None:
    """The key in the header's value, None if there is no header. Raises `Rejected` (400) for a blank or malformed one."""
    if header is None:
        return None
    value = header.strip()
    if value in ("", '""'):
        raise _malformed("the Idempotency-Key header is empty; leave it out, or name a key")
    if quoted := _QUOTED.fullmatch(value):
        key = _ESCAPED.sub(r"\1", quoted[1])
    elif _BARE.fullmatch(value):
        key = value
    else:
        raise _malformed("the Idempotency-Key header is not one string")
    if _KEY.match(key) is None:
        raise _malformed("an idempotency key has 1 to 255 printable ASCII characters, a letter or digit among them")
    return key


def agreed(header_key: str | None, field_key: str | None) -> str | None:
    """The one key of a job that may be named twice. Raises `Rejected` (400) if the two differ."""
    if header_key is not None and field_key is not None and header_key != field_key:
        detail = "the Idempotency-Key header and the field idempotency_key differ"
        raise Rejected(detail, kind="idempotency-keys-differ", status=400, pointer="/idempotency_key")
    return header_key if header_key is not None else field_key


def _malformed(detail: str) -> Rejected:
    return Rejected(detail, kind="invalid-idempotency-key", status=400)
