"""How many processes each function has, if nobody says."""

from __future__ import annotations

from ringfence.local.deployment import Deployment
from ringfence.local.pool import PoolSize

_HTTP_POOL = PoolSize(start=2, most=12)
"""A request that waits for a job holds its process, so there are more of them when they are needed."""
QUEUE_PROCESSES = 2
"""Each takes a batch of ten messages, and runs some of them at once."""
_STREAM_POOL = PoolSize(start=1, most=4)
"""One per shard."""
_SCHEDULE_POOL = PoolSize(start=1, most=1)


def size_of(name: str, deployment: Deployment, processes: int | None, queue_processes: int) -> PoolSize:
    """``processes`` if asked for; else what its event sources need, within the function's reserved concurrency."""
    if processes is not None:
        return PoolSize(processes, processes)
    sizes = [_HTTP_POOL] if any(route.function == name for route in deployment.routes) else []
    sizes += [PoolSize(queue_processes, queue_processes) for mapping in deployment.queues if mapping.function == name]
    sizes += [_STREAM_POOL for mapping in deployment.streams if mapping.function == name]
    start = max((size.start for size in sizes), default=_SCHEDULE_POOL.start)
    most = max((size.most for size in sizes), default=_SCHEDULE_POOL.most)
    reserved = deployment.functions[name].reserved_concurrency
    if reserved is not None and reserved > 0:
        start, most = min(start, reserved), min(most, reserved)
    return PoolSize(start, most)
