"""What lies in a queue's sorted set, and what a lease makes of it."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

from ringfence.ports import Lease
from ringfence.redis.packing import ERRORS

_ID_LENGTH = 13
"""Hexadecimal digits that the push puts before a body."""

_SEPARATOR = "\x1f"
"""Between the id and the body. No JSON holds it, nor does any text that people write."""


def leases_in(reply: Sequence[Any], queue: str) -> list[Lease]:
    """The leases in the reply of ``lease.lua``.

    A receipt is ``deliveries.millisecond of the lease.message id``: the first is what Redis compares, the second how long the
    lease may last at most.
    """
    leased_at, often = reply[0], f"1.{reply[0]}."
    leases = []
    for member, deliveries in zip(reply[3::2], reply[4::2], strict=True):
        message_id, separated, body = member.partition(_SEPARATOR)
        if not separated or len(message_id) != _ID_LENGTH:
            message_id, body = _foreign_id(member), member
        receipt = (often if deliveries == 1 else f"{deliveries}.{leased_at}.") + message_id
        leases.append(Lease(body, receipt, deliveries, message_id, queue))
    return leases


def with_deliveries(leases: Iterable[Lease]) -> list[str]:
    """``member, deliveries, member, deliveries, …`` as the scripts take them. A receipt of another form is nobody's."""
    pairs: list[str] = []
    for lease in leases:
        pairs += (_member(lease), lease.receipt.split(".", 1)[0])
    return pairs


def with_start(leases: Iterable[Lease]) -> list[str]:
    """``member, deliveries, millisecond of the lease, …`` as ``extend.lua`` takes them."""
    triples: list[str] = []
    for lease in leases:
        deliveries, _, rest = lease.receipt.partition(".")
        triples += (_member(lease), deliveries, rest.partition(".")[0])
    return triples


def _member(lease: Lease) -> str:
    message_id = lease.message_id
    return f"{message_id}{_SEPARATOR}{lease.body}" if len(message_id) == _ID_LENGTH else lease.body


def _foreign_id(member: str) -> str:
    """Of a message that was not pushed by us: the whole member is its body, and its hash stands for it."""
    return hashlib.blake2b(member.encode("utf-8", ERRORS), digest_size=16).hexdigest()
