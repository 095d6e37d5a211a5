"""Random and derived identifiers, all lower-case base32: safe in URLs, logs and shells."""

from __future__ import annotations

import base64
import hashlib
import os
from typing import Protocol

JOB_ID_BYTES = 16
"""Of a derived id."""

JOB_ID_DIGITS = 26
"""130 random bits: as long as a derived id."""

MARK_DIGITS = 16
"""80 random bits for ids that only have to differ within one job: attempts, writes, tickets, due marks."""

_DIGITS = b"abcdefghijklmnopqrstuvwxyz234567"
_DIGIT_OF_BYTE = _DIGITS * (256 // len(_DIGITS))
"""Each digit as often as any other: a random byte is a random digit."""


class Ids(Protocol):
    """Where fresh ids come from; tests and the simulator put a seeded one here."""

    def job(self) -> str: ...

    def mark(self) -> str: ...


class RandomIds:
    """Ids from the operating system's randomness."""

    def job(self) -> str:
        return _random_base32(JOB_ID_DIGITS)

    def mark(self) -> str:
        return _random_base32(MARK_DIGITS)


def derived_job_id(tenant: str, idempotency_key: str) -> str:
    """The id of the one job that this tenant's key stands for: duplicates in the log collapse by themselves."""
    tenant_bytes = tenant.encode()
    scope = len(tenant_bytes).to_bytes(4, "big") + tenant_bytes + idempotency_key.encode()
    return _base32(hashlib.sha256(b"ringfence idempotency key\0" + scope).digest()[:JOB_ID_BYTES])


def request_token(attempt_id: str, purpose: str, sequence: int) -> str:
    """A transaction's ``ClientRequestToken``: at most 36 characters, the same whenever the same write is sent again.

    https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html
    """
    return hashlib.sha256(f"{attempt_id}\0{purpose}\0{sequence}".encode()).hexdigest()[:36]


def shard_of(job_id: str, shards: int) -> int:
    """Which of ``shards`` partitions of an index the job lies in: spread evenly, the same for ever."""
    return int.from_bytes(hashlib.blake2b(job_id.encode(), digest_size=4).digest(), "big") % shards


def _random_base32(digits: int) -> str:
    """A relay makes tens of thousands a second: base64's encoder would take six times as long."""
    return os.urandom(digits).translate(_DIGIT_OF_BYTE).decode()


def _base32(raw: bytes) -> str:
    return base64.b32encode(raw).decode().rstrip("=").lower()
