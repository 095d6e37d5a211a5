"""A Redis whose memory is full and that throws nothing away: what frees memory must not need any. C19

With fifty thousand jobs of 2 KB and four workers, by each policy: `tests/campaigns/campaign_full_redis.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from redis.exceptions import OutOfMemoryError

from ringfence.acceptance import Submission
from ringfence.memory.telemetry import MemoryTelemetry
from ringfence.ports import Depth
from ringfence.redis.queue import RedisQueue
from ringfence.testing.queue_contract import ticket
from ringfence.testing.redis_server import RedisServer
from ringfence.testing.redis_system import RedisSystem


@pytest.fixture
def server(redis_binary: Path, tmp_path: Path) -> Iterator[RedisServer]:
    """What memory a server has from the start differs; there are two megabytes beyond."""
    with RedisServer(redis_binary, tmp_path) as server:
        yield server


@pytest.fixture
def telemetry() -> MemoryTelemetry:
    return MemoryTelemetry()


@pytest.fixture
def full(server: RedisServer, telemetry: MemoryTelemetry) -> RedisQueue:
    """A queue with more tickets than fit, on a server that refuses to take anything."""
    queue = server.queue(telemetry=telemetry)
    limit_memory(server, used(server) + 2_000_000)
    while queue.push([ticket() for _ in range(250)]) == []:
        pass
    limit_memory(server, used(server) - 100_000)  # what calls use for a moment must not decide
    assert_refuses(server)
    return queue


def used(server: RedisServer) -> int:
    told: str = server.ask("INFO", "memory")
    return int(told.split("used_memory:")[1].split()[0])


def limit_memory(server: RedisServer, limit_bytes: int) -> None:
    server.ask("CONFIG", "SET", "maxmemory", limit_bytes)


def assert_refuses(server: RedisServer) -> None:
    """Without this, a test here would show nothing."""
    with pytest.raises(OutOfMemoryError):
        server.ask("SET", "anything", "x" * 100)


def test_a_full_queue_can_be_worked_off(server: RedisServer, full: RedisQueue) -> None:
    tickets = full.depth().ready
    limit_memory(server, used(server) // 2)  # so full that acknowledging some makes no room
    assert_refuses(server)
    held = full.lease(100, 30)
    assert len(held) == 100
    assert full.extend(held, 60) == []
    full.release(held[:50])
    full.release(held[50:60], 30)
    assert_refuses(server)
    assert full.depth() == Depth(ready=tickets - 50, leased=50, delayed=0)
    held = full.acknowledge_and_lease(held[60:], 100, 30)
    assert len(held) == 100
    full.acknowledge(held)
    assert full.lease(10, 30, wait_seconds=1)
    assert_refuses(server)
    full.check()


def test_what_does_not_fit_is_not_taken_and_fits_when_there_is_room(
    server: RedisServer, full: RedisQueue, telemetry: MemoryTelemetry
) -> None:
    before = full.depth()
    kept = [ticket(), ticket()]

    assert full.push(kept) == kept
    assert full.push(kept, 60) == kept
    assert full.depth() == before
    assert {fields["reason"] for fields in telemetry.named("redis_call_failed")} == {f"cannot push to queue {full.name}: OOM"}
    while done := full.lease(250, 30):
        full.acknowledge(done)
    assert full.push(kept) == []
    assert len(full.lease(10, 30)) == 2


def test_tickets_that_are_taken_in_part_are_told_apart(server: RedisServer, telemetry: MemoryTelemetry) -> None:
    queue = server.queue(telemetry=telemetry)
    limit_memory(server, used(server) + 1_000_000)
    pushed = [ticket() for _ in range(20_000)]
    untaken = queue.push(pushed)

    assert untaken
    assert untaken == pushed[-len(untaken) :]
    assert queue.depth().ready == len(pushed) - len(untaken)


def test_a_relay_waits_while_there_is_no_room_and_every_accepted_job_ends(server: RedisServer) -> None:
    """Its checkpoint stays where the tickets ended; workers go on, and make the room that it goes on with."""
    here = RedisSystem(server.queue("default"))
    limit_memory(server, used(server) + 200_000)
    for _ in range(6):
        here.gateway.submit("default", [Submission(name="count", payload="{}")] * 500)
    held: list[int] = []
    while (unsent := here.run_relay()) is not None:
        held.append(int(unsent))
        assert len(held) < 200
        for _ in range(5):
            here.run_worker(most=100)
    assert len(held) > 1
    assert held == sorted(held), "it goes on from where it stopped"
    here.work()

    assert len(here.memory_ledger.all_jobs()) == 3_000
    assert here.not_ended_once() == {}
    assert here.queues["default"].depth() == Depth(ready=0, leased=0, delayed=0)


def test_a_queue_that_nobody_has_used_can_be_looked_at(server: RedisServer) -> None:
    """Its marker needs memory; finding it missing must not fail."""
    limit_memory(server, used(server) // 2)
    queue = server.queue()

    assert queue.lease(10, 30) == []
    assert queue.depth() == Depth(ready=0, leased=0, delayed=0)
