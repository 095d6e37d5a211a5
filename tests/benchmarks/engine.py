"""The queue on Redis through its public class beside a bare script: the same messages, the same batches, by turns.

Compared is the CPU time of both ends, this process and Redis: with one connection that is what the work takes, and what else
runs on the machine is not in it.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from ringfence.ids import RandomIds
from ringfence.redis.queue import RedisQueue
from ringfence.wire import Ticket, encode_ticket

from .bare import Bare
from .ground import Ground

BATCHES = (10, 32, 100)
TURNS = 9
TURN_MESSAGES = 3_000
TURN_PUSHES = 400
LEASE_SECONDS = 30.0

PAYLOAD = '{"id":12345,"enq":123456789012345,"kind":"email.send","to":"user@example.com","tpl":"welcome-42","n":7}'


@dataclass(frozen=True, slots=True)
class Compared:
    """The same work done by a script and by Ringfence, in turns next to each other."""

    script_us: tuple[float, ...]
    """CPU microseconds a message in each turn, the client's and Redis's together."""
    ringfence_us: tuple[float, ...]

    @property
    def ratio(self) -> float:
        """1 is as fast as the script, more is faster."""
        return statistics.median(s / r for s, r in zip(self.script_us, self.ringfence_us, strict=True))


def tickets(count: int) -> list[Ticket]:
    """Of jobs of guarantee at-least-once, with a payload of about 100 bytes."""
    ids = RandomIds()
    created_at = time.time_ns() // 1_000_000
    return [
        Ticket(
            ticket_id=ids.mark(),
            job_id=ids.job(),
            tenant="bench",
            name="job",
            payload=PAYLOAD,
            max_attempts=5,
            created_at=created_at,
        )
        for _ in range(count)
    ]


def engine_beside_script(ground: Ground, batch: int) -> Compared:
    """A backlog leased and acknowledged in batches, the acknowledge in the call that leases the next."""
    queue, bare = ground.server.queue("engine"), Bare(ground.server.port)
    pushed = tickets(TURN_MESSAGES)
    members = [f"{number:013x}\x1f{encode_ticket(ticket)}" for number, ticket in enumerate(pushed)]

    def of_queue() -> float:
        queue.push(pushed)
        return _cpu_us(ground, lambda: _drain_queue(queue, batch))

    def of_bare() -> float:
        bare.push(*members)
        return _cpu_us(ground, lambda: _drain_bare(bare, batch))

    try:
        return _by_turns(of_bare, of_queue, TURN_MESSAGES)
    finally:
        bare.close()
        ground.clear()


def push_beside_script(ground: Ground) -> Compared:
    """Tickets pushed one by one, beside a script that encodes and adds the same ones in a round trip each."""
    queue, bare = ground.server.queue("single"), Bare(ground.server.port)
    pushed = tickets(TURN_PUSHES)
    encoder = msgspec.json.Encoder()

    def of_queue() -> float:
        return _cpu_us(ground, lambda: [queue.push([ticket]) for ticket in pushed])

    def of_bare() -> float:
        bare.clear()
        return _cpu_us(ground, lambda: [bare.push(encoder.encode(ticket).decode()) for ticket in pushed])

    try:
        return _by_turns(of_bare, of_queue, TURN_PUSHES)
    finally:
        bare.close()
        ground.clear()


def _drain_queue(queue: RedisQueue, batch: int) -> None:
    left = TURN_MESSAGES
    leases = queue.lease(batch, LEASE_SECONDS)
    while leases:
        left -= len(leases)
        leases = queue.acknowledge_and_lease(leases, batch, LEASE_SECONDS)
    assert left == 0, f"{left} of the messages were not leased"


def _drain_bare(bare: Bare, batch: int) -> None:
    left = TURN_MESSAGES
    lease_ms = round(LEASE_SECONDS * 1000)
    leases, bodies = bare.exchange((), batch, lease_ms)
    while leases:
        left -= len(bodies)
        leases, bodies = bare.exchange(leases, batch, lease_ms)
    assert left == 0, f"{left} of the messages were not leased"


def _cpu_us(ground: Ground, work: Callable[[], object]) -> float:
    redis, own = ground.redis_cpu_seconds(), time.process_time()
    work()
    own = time.process_time() - own
    return (own + ground.redis_cpu_seconds() - redis) * 1e6


def _by_turns(bare: Callable[[], float], queue: Callable[[], float], messages: int) -> Compared:
    bare(), queue()
    taken: dict[Callable[[], float], list[float]] = {bare: [], queue: []}
    for turn in range(TURNS):
        for work in (bare, queue) if turn % 2 else (queue, bare):
            taken[work].append(work() / messages)
    return Compared(tuple(taken[bare]), tuple(taken[queue]))
