"""The queues of a deployment that are on Redis."""

from __future__ import annotations

from ringfence.ports import Clock, Queue, Telemetry
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
        connection = self._connections.get(address.server)
        if connection is None:
            connection = connect(address.server, self._telemetry, lease_seconds=self._lease_seconds)
            self._connections[address.server] = connection
        # After `connect`, which says it well when redis-py is not installed.
        from ringfence.redis.queue import RedisQueue

        return RedisQueue(connection, name, address.name, clock=self._clock, telemetry=self._telemetry)
