"""What a Redis says of itself that a queue must know: its version, and whether it throws keys away."""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping

from ringfence.ports import Telemetry
from ringfence.settings import Misconfigured

OLDEST_VERSION = (6, 2)
"""The first with ZMSCORE. Valkey tells the Redis version it is compatible with."""


class Condition:
    """Looks at the INFO of each server that a connection is opened to, and tells of each fault once.

    INFO rather than CONFIG GET: managed Redis forbids CONFIG.
    https://docs.aws.amazon.com/AmazonElastiCache/latest/dg/SupportedCommands.html
    """

    def __init__(self, telemetry: Telemetry | None) -> None:
        self._telemetry = telemetry
        self._lock = threading.Lock()
        self._told: set[tuple[str, str]] = set()

    def look(self, server: str, info: Mapping[str, str] | None) -> None:
        """``info`` is None where it was forbidden. Raises `Misconfigured` for a server that is too old."""
        if info is None:
            self._tell("redis_not_inspected", server)
            return
        version = info.get("redis_version", "")
        if tuple(int(part) for part in re.findall(r"\d+", version)[:2]) < OLDEST_VERSION:
            raise Misconfigured(f"the Redis at {server} is {version or 'of unknown version'}; 6.2 is the oldest that will do")
        policy = info.get("maxmemory_policy", "noeviction")
        if policy.startswith("allkeys-"):
            self._tell("redis_evicts_queues", server, policy=policy, limit_bytes=info.get("maxmemory"))
        elif policy != "noeviction":
            # Queues never expire and are safe from it, but some other tenant of this Redis relies on losing keys.
            self._tell("redis_evicts_other_keys", server, policy=policy, limit_bytes=info.get("maxmemory"))

    def _tell(self, event: str, server: str, **fields: str | None) -> None:
        with self._lock:
            if self._telemetry is None or (event, server) in self._told:
                return
            self._told.add((event, server))
        self._telemetry.event(event, server=server, **fields)


def parse_info(text: str) -> dict[str, str]:
    """The lines ``name:value`` of INFO."""
    return dict(line.split(":", 1) for line in text.splitlines() if ":" in line)
