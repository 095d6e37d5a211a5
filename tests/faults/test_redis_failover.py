"""A replica takes over that has not seen the last writes; the old primary goes on, or turns read-only. C20"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringfence.errors import Unavailable
from ringfence.local.redis_binaries import redis_server
from ringfence.ports import Depth, Lease
from ringfence.redis.address import Server
from ringfence.redis.condition import parse_info
from ringfence.redis.connection import connect
from ringfence.redis.queue import RedisQueue
from ringfence.testing.door import Door
from ringfence.testing.queue_contract import ticket
from ringfence.testing.redis_server import RedisServer
from ringfence.testing.redis_system import RedisSystem
from ringfence.wire import decode_ticket

NOWHERE = 1
"""A port that no Redis listens on: whoever follows it is a replica that keeps what it has."""


@pytest.fixture
def primary(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(redis_server(), tmp_path / "primary", ["--repl-diskless-sync-delay", "0"]) as server:
        yield server


@pytest.fixture
def replica(tmp_path: Path, primary: RedisServer) -> Iterator[RedisServer]:
    with RedisServer(primary.binary, tmp_path / "replica") as server:
        server.ask("REPLICAOF", "127.0.0.1", primary.port)
        wait_in_step(primary, server)
        yield server


@pytest.fixture
def door(primary: RedisServer) -> Iterator[Door]:
    """The name that clients know."""
    with Door(primary.port) as door:
        yield door


@pytest.fixture
def queue(door: Door) -> RedisQueue:
    return RedisQueue(connect(Server("127.0.0.1", door.port)), "default")


def wait_in_step(primary: RedisServer, replica: RedisServer) -> None:
    """Until the replica has everything that was written so far."""
    written = replication(primary)["master_repl_offset"]
    deadline = time.monotonic() + 20
    while (told := replication(replica))["master_link_status"] != "up" or int(told["slave_repl_offset"]) < int(written):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def replication(server: RedisServer) -> dict[str, str]:
    return parse_info(server.ask("INFO", "replication"))


def promote(replica: RedisServer) -> None:
    replica.ask("REPLICAOF", "NO", "ONE")


def test_a_replica_that_missed_the_last_writes_gives_their_tickets_again(
    primary: RedisServer, replica: RedisServer, door: Door, queue: RedisQueue
) -> None:
    """Twenty leases and ten acknowledges that the new primary never heard of: the tickets come again, none is lost, and what
    the old holders say harms nobody. That a job has been done already is in the ledger."""
    pushed = [ticket() for _ in range(100)]
    queue.push(pushed)
    mark = queue.memory_mark()
    wait_in_step(primary, replica)
    promote(replica)  # and the old primary serves on
    held = queue.lease(20, 30)
    queue.acknowledge(held[:10])
    door.lead_to(replica.port, cut=True)

    again = queue.lease(200, 30)
    assert sorted(decode_ticket(lease.body).ticket_id for lease in again) == sorted(one.ticket_id for one in pushed)
    assert queue.memory_mark() != mark, "whoever keeps the mark must learn that something may be lost"
    queue.acknowledge(held[:10])
    queue.release(held[10:])
    queue.extend(held, 30)
    rest = queue.lease(200, 30)
    queue.acknowledge(again)
    queue.acknowledge(rest)
    assert queue.depth() == Depth(ready=0, leased=0, delayed=0)


def test_every_accepted_job_ends_once_though_a_replica_takes_over_that_missed_the_last_writes(
    primary: RedisServer, replica: RedisServer, door: Door, queue: RedisQueue
) -> None:
    """Tickets, leases and acknowledges that the new primary never heard of."""
    here = RedisSystem(queue)
    here.accept(40)
    wait_in_step(primary, replica)
    promote(replica)
    here.accept(20)
    for _ in range(3):
        here.run_worker()
    assert len(queue.lease(5, 30)) == 5
    door.lead_to(replica.port, cut=True)

    assert here.timers.run()["renewed"] == 30
    assert [each["lost"] for each in here.telemetry.named("repair_started")] == ["perhaps the last writes"]
    here.work()
    assert here.not_ended_once() == {}
    assert queue.depth() == Depth(ready=0, leased=0, delayed=0)


def test_what_the_replica_has_seen_it_keeps(primary: RedisServer, replica: RedisServer, door: Door, queue: RedisQueue) -> None:
    queue.push([ticket() for _ in range(10)])
    held = queue.lease(4, 30)
    wait_in_step(primary, replica)
    promote(replica)
    door.lead_to(replica.port, cut=True)

    assert queue.extend(held, 30) == []
    assert queue.depth() == Depth(ready=6, leased=4, delayed=0)
    queue.acknowledge(held)
    assert len(queue.lease(20, 30)) == 6


def test_a_primary_that_turned_into_a_replica_is_left_within_the_call(
    primary: RedisServer, replica: RedisServer, door: Door, queue: RedisQueue
) -> None:
    """Its connections stay open and answer READONLY; the name leads to its successor already."""
    queue.push([ticket() for _ in range(10)])
    held = queue.lease(5, 30)
    wait_in_step(primary, replica)
    promote(replica)
    door.lead_to(replica.port, cut=False)
    primary.ask("REPLICAOF", "127.0.0.1", replica.port)

    assert queue.push([ticket()]) == []
    assert len(queue.lease(20, 30)) == 6
    queue.acknowledge(held)
    assert queue.depth().leased == 6


def test_readonly_holds_what_it_lasts_and_no_longer(redis_binary: Path, tmp_path: Path) -> None:
    """However often it was met: nothing is half done by it, and the first call after it succeeds. On every server, for each has
    its own words for an error in a script."""
    with RedisServer(redis_binary, tmp_path) as server:
        hold_and_recover(server, server.queue())


def hold_and_recover(server: RedisServer, queue: RedisQueue) -> None:
    queue.push([ticket() for _ in range(10)])
    held = queue.lease(5, 30)
    before = queue.depth()
    server.ask("REPLICAOF", "127.0.0.1", NOWHERE)
    for _ in range(20):
        kept = [ticket()]
        assert queue.push(kept) == kept
        for call in (
            lambda: queue.lease(5, 30, 1),
            lambda: queue.acknowledge_and_lease(held, 5, 30),
            lambda: queue.extend(held, 60),
            lambda: queue.release(held),
            lambda: queue.acknowledge(held),
        ):
            with pytest.raises(Unavailable, match="READONLY"):
                call()
        assert queue.depth() == before
    server.ask("REPLICAOF", "NO", "ONE")

    assert queue.push([ticket()]) == []
    assert queue.extend(held, 30) == []
    assert len(queue.acknowledge_and_lease(held, 20, 30)) == 6


def test_a_server_that_still_loads_is_waited_for(tmp_path: Path) -> None:
    with RedisServer(
        redis_server(), tmp_path, ["--appendonly", "yes", "--appendfsync", "no", "--key-load-delay", "200"]
    ) as server:
        queue = server.queue()
        for _ in range(3000):  # a line of its file for each, and so 0.6 s to load them
            queue.push([ticket()])
        met: list[str] = []
        # Again, if a busy machine let nobody look while it loaded.
        for _ in range(5):
            server.kill()
            server.launch()
            leases = _leased_in_the_end(queue, 5000, met)
            assert len(leases) == 3000
            if any("LOADING" in each for each in met):
                break
            queue.release(leases)
        assert any("LOADING" in each for each in met), set(met)


def _leased_in_the_end(queue: RedisQueue, most: int, met: list[str]) -> list[Lease]:
    """What can be leased once the server answers; ``met`` takes what it said until then."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            return queue.lease(most, 30)
        except Unavailable as fault:
            met.append(str(fault))
    raise AssertionError(set(met))
