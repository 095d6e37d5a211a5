"""Redis servers for tests: started on free ports of 127.0.0.1, killed, restarted, promoted, clustered."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import redis

from ringfence.local.redis_process import RedisFailed, RedisProcess
from ringfence.ports import Telemetry
from ringfence.redis.address import Server
from ringfence.redis.connection import Connection, connect
from ringfence.redis.queue import RedisQueue
from ringfence.redis.scripts import Script

SLOTS = 16_384
"""https://redis.io/docs/latest/operate/oss_and_stack/reference/cluster-spec/"""

_CLUSTER_SECONDS = 20.0

_LET_PASS = Script(
    "let_pass",
    """local all = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', 100000000000000, 'WITHSCORES')
    for i = 1, #all, 2 do redis.call('ZADD', KEYS[1], all[i + 1] - ARGV[1], all[i]) end""",
)

_numbers = itertools.count(1)


def let_pass(connection: Connection, queue: RedisQueue, seconds: float) -> None:
    """Move the visibility of all messages into the past: the same, to a queue, as if this much time and a moment passed."""
    connection.run(_LET_PASS, [queue.messages_key], [int(seconds * 1000) + 1])


class RedisServer(RedisProcess):
    """``with RedisServer(binary, folder) as server:``; its port stays the same over `restart`."""

    @property
    def address(self) -> Server:
        return Server("127.0.0.1", self.port)

    def url(self, queue: str) -> str:
        """The URL of a queue here, as RINGFENCE_QUEUES wants it."""
        return f"redis://127.0.0.1:{self.port}/{queue}"

    def connection(self, telemetry: Telemetry | None = None, *, lease_seconds: float = 30.0) -> Connection:
        return connect(self.address, telemetry, lease_seconds=lease_seconds)

    def queue(self, name: str | None = None, **options: Any) -> RedisQueue:
        """A queue here, with a connection of its own; one that nobody has used unless it is named."""
        name = name or f"queue-{next(_numbers)}"
        return RedisQueue(self.connection(options.get("telemetry")), name, **options)

    def ask(self, *command: str | bytes | int | float) -> Any:
        """Send one command, as an operator would with redis-cli; the reply is as Redis gave it."""
        with redis.Redis(port=self.port, decode_responses=True, protocol=2) as client:
            client.response_callbacks.clear()
            return client.execute_command(*command)

    def let_pass(self, queue: RedisQueue, seconds: float) -> None:
        """See `let_pass`."""
        let_pass(self.connection(), queue, seconds)

    def restart(self) -> None:
        """Start it again on the same port and with the same files; it must have ended."""
        self._wanted_port = self.port
        self.start()

    def __enter__(self) -> RedisServer:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()


@contextmanager
def redis_cluster(binary: Path, folder: Path, nodes: int = 3) -> Iterator[Sequence[RedisServer]]:
    """A cluster of so many primaries, all slots shared out, all of one mind."""
    servers = [
        RedisServer(binary, folder / f"node-{number}", ["--cluster-enabled", "yes", "--cluster-node-timeout", "2000"])
        for number in range(nodes)
    ]
    try:
        for server in servers:
            server.start()
        bounds = [SLOTS * number // nodes for number in range(nodes + 1)]
        for number, server in enumerate(servers):
            server.ask("CLUSTER", "ADDSLOTS", *range(bounds[number], bounds[number + 1]))
            server.ask("CLUSTER", "SET-CONFIG-EPOCH", number + 1)
        for server in servers[1:]:
            server.ask("CLUSTER", "MEET", "127.0.0.1", servers[0].port)
        _wait_agreed(servers)
        yield servers
    finally:
        for server in servers:
            server.kill()


def _wait_agreed(servers: Sequence[RedisServer]) -> None:
    deadline = time.monotonic() + _CLUSTER_SECONDS
    while not all(_agrees(server, len(servers)) for server in servers):
        if time.monotonic() > deadline:
            raise RedisFailed(f"the cluster does not come together: {servers[0].ask('CLUSTER', 'INFO')}")
        time.sleep(0.05)


def _agrees(server: RedisServer, nodes: int) -> bool:
    told: str = server.ask("CLUSTER", "INFO")
    return "cluster_state:ok" in told and f"cluster_known_nodes:{nodes}" in told and f"cluster_slots_ok:{SLOTS}" in told
