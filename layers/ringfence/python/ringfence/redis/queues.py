"""The queues of a deployment that are on Redis, and their limiters."""

from __future__ import annotations

from ringfence.ports import Clock, Limiter, Queue, Telemetry
from ringfence.redis.address import Server, parse
from ringfence.redis.connection import Connection, connect


class RedisQueues:
    """Makes queues from their URLs; those on one server share its connections."""

    def __init__(self, clock: Clock, telemetry: Telemetry, *, lease_seconds: float) -> None:
        self._clock, self._telemetry, self._lease_seconds = clock, telemetry, lease_seconds
        self._connections: dict[Server, Connection] = {}

    def queue(self, name: str, url: str) -> Queue:
        """The queue ``name`` at this URL; nothing is sent yet. Raises `Misconfigured`."""
        address = parse(url)
        connection = self._connection(address.server)
        # After `connect`, which says it well when redis-py is not installed.
        from ringfence.redis.queue import RedisQueue

        return RedisQueue(connection, name, address.name, clock=self._clock, telemetry=self._telemetry)

    def limiter(self, url: str) -> Limiter:
        """The limiter of the queue at this URL; nothing is sent yet. Raises `Misconfigured`."""
        address = parse(url)
        connection = self._connection(address.server)
        from ringfence.redis.limiter import RedisLimiter

        return RedisLimiter(connection, address.name, self._telemetry)

    def _connection(self, server: Server) -> Connection:
        if server not in self._connections:
            self._connections[server] = connect(server, self._telemetry, lease_seconds=self._lease_seconds)
        return self._connections[server]
