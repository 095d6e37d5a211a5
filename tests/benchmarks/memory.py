"""How much of a Redis waiting tickets take."""

from __future__ import annotations

from collections.abc import Iterator

from ringfence.wire import Ticket

from .engine import tickets
from .ground import Ground

_CHUNK = 1_000


def bytes_per_ticket(ground: Ground, count: int, *, carried: bool) -> float:
    """Measured with so many of them waiting in one queue; ``carried`` ones have their job in them (guarantee at-least-once)."""
    ground.clear()
    queue = ground.server.queue("memory")
    before = _used_bytes(ground)
    for chunk in _chunks(count, carried):
        if queue.push(chunk):
            raise AssertionError("Redis did not take every ticket")
    taken = _used_bytes(ground) - before
    ground.clear()
    return taken / count


def _chunks(count: int, carried: bool) -> Iterator[list[Ticket]]:
    for start in range(0, count, _CHUNK):
        made = tickets(min(_CHUNK, count - start))
        yield (
            made
            if carried
            else [Ticket(ticket_id=each.ticket_id, job_id=each.job_id, tenant=each.tenant, name=each.name) for each in made]
        )


def _used_bytes(ground: Ground) -> int:
    return int(ground.redis.info("memory")["used_memory"])
