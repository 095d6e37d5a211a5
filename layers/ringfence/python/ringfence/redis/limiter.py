"""The limiter on Redis: one script, on the server's own clock."""

from __future__ import annotations

from ringfence.errors import Unavailable
from ringfence.job import Millis
from ringfence.ports import Telemetry
from ringfence.rate import Rate, releases
from ringfence.redis.connection import Connection
from ringfence.redis.failures import FAILURES, unavailable
from ringfence.redis.scripts import script


class RedisLimiter:
    """The schedule of the queue whose name in Redis is ``key``, beside that queue: one slot of a cluster holds both."""

    def __init__(self, connection: Connection, key: str, telemetry: Telemetry | None = None) -> None:
        self._connection, self._telemetry = connection, telemetry
        self._pace = f"ringfence:{{{key}}}:pace"

    def reserve(self, queue: str, count: int, rate: Rate, within: Millis | None = None) -> list[Millis]:
        """See `ports.Limiter.reserve`. A call whose reply was lost may be sent twice: then what it reserved first is unused."""
        within_micros = -1 if within is None else within * 1_000
        try:
            given, now, earliest, start = self._connection.run(
                script("reserve"), (self._pace,), (count, rate.interval_nanos, rate.burst, within_micros)
            )
        except FAILURES as failure:
            raise self._failed(queue, failure) from failure
        return [-(-(release - now) // 1_000) for release in releases(rate, earliest, start, given)]

    def _failed(self, queue: str, failure: Exception) -> Unavailable:
        fault = unavailable(failure, f"reserve in queue {queue}")
        if self._telemetry is not None:
            self._telemetry.event("redis_call_failed", queue=queue, operation="reserve", reason=str(fault))
        return fault
