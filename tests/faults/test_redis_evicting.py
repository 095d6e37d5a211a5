"""A Redis that throws keys away, or does not let itself be looked into. C19"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path

import pytest

from ringfence.event_names import LEVELS
from ringfence.local.redis_binaries import redis_server as find_redis_server
from ringfence.memory.telemetry import MemoryTelemetry
from ringfence.redis.address import Server
from ringfence.redis.connection import connect
from ringfence.redis.queue import RedisQueue
from ringfence.testing.queue_contract import ticket
from ringfence.testing.redis_server import RedisServer

from .test_redis_full import used


@pytest.fixture
def telemetry() -> MemoryTelemetry:
    return MemoryTelemetry()


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        ("allkeys-lru", ["redis_evicts_queues"]),
        ("volatile-lru", ["redis_evicts_other_keys"]),
        ("noeviction", []),
    ],
)
def test_the_first_call_tells_of_an_evicting_policy(
    policy: str, told: list[str], tmp_path: Path, telemetry: MemoryTelemetry
) -> None:
    with RedisServer(find_redis_server(), tmp_path, ["--maxmemory", "20mb", "--maxmemory-policy", policy]) as server:
        queue = RedisQueue(server.connection(telemetry), "default")
        for _ in range(3):
            queue.push([ticket()])

        assert [name for name, _ in telemetry.events if name.startswith("redis_")] == told
        for _, fields in telemetry.events:
            assert (fields["policy"], fields["server"]) == (policy, f"127.0.0.1:{server.port}")


def test_c19_where_only_keys_that_expire_are_evicted_queues_are_only_warned_of(
    tmp_path: Path, telemetry: MemoryTelemetry
) -> None:
    """They have no end, so others' keys go first, and then a full queue takes no more and loses nothing."""
    assert LEVELS["redis_evicts_other_keys"] == logging.WARNING < LEVELS["redis_evicts_queues"]
    with RedisServer(find_redis_server(), tmp_path, ["--maxmemory-policy", "volatile-lru"]) as server:
        queue = RedisQueue(server.connection(telemetry), "default", telemetry=telemetry)
        for number in range(10):
            server.ask("SET", f"neighbour-{number}", "x" * 50_000, "EX", 1_000)
        server.ask("CONFIG", "SET", "maxmemory", used(server))
        pushed = 0
        while not (untaken := queue.push(tickets := [ticket() for _ in range(250)])):
            pushed += len(tickets)
            assert pushed < 50_000

        assert [name for name, _ in telemetry.events] == ["redis_evicts_other_keys", "queue_memory_new", "redis_call_failed"]
        assert server.ask("KEYS", "neighbour-*") == []
        assert queue.depth().ready == pushed + len(tickets) - len(untaken) > 250


def test_it_is_told_where_config_is_forbidden(tmp_path: Path, telemetry: MemoryTelemetry) -> None:
    options = ["--rename-command", "CONFIG", "", "--maxmemory", "20mb", "--maxmemory-policy", "allkeys-lru"]
    with RedisServer(find_redis_server(), tmp_path, options) as server:
        assert RedisQueue(server.connection(telemetry), "default").push([ticket()]) == []

    assert telemetry.named("redis_evicts_queues")


def test_where_even_info_is_forbidden_the_queue_works_and_that_is_told(tmp_path: Path, telemetry: MemoryTelemetry) -> None:
    with RedisServer(find_redis_server(), tmp_path) as server:
        server.ask("ACL", "SETUSER", "jobs", "on", ">secret", "~ringfence:*", "+@all", "-info", "-config")
        connection = connect(Server("127.0.0.1", server.port, username="jobs", password="secret"), telemetry)
        queue = RedisQueue(connection, "default")
        assert queue.push([ticket()]) == []
        assert len(queue.lease(1, 30, wait_seconds=1)) == 1

        assert queue.memory_mark().endswith("/")
    assert telemetry.named("redis_not_inspected")


def test_a_cluster_tells_of_each_node(redis_nodes: Sequence[RedisServer], telemetry: MemoryTelemetry) -> None:
    redis_nodes[2].ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
    connection = connect(Server("127.0.0.1", redis_nodes[0].port, cluster=True), telemetry)
    RedisQueue(connection, "default").depth()
    redis_nodes[2].ask("CONFIG", "SET", "maxmemory-policy", "noeviction")

    assert telemetry.named("redis_evicts_queues") == [
        {"server": f"127.0.0.1:{redis_nodes[2].port}", "policy": "allkeys-lru", "limit_bytes": "0"}
    ]


def test_a_queue_that_was_evicted_is_noticed(redis_binary: Path, tmp_path: Path, telemetry: MemoryTelemetry) -> None:
    """Alone, with all else on that server still there: the marker lies in the very set."""
    with RedisServer(redis_binary, tmp_path) as server:
        queue = RedisQueue(server.connection(telemetry), "default", telemetry=telemetry)
        queue.push([ticket() for _ in range(1000)])
        server.ask("CONFIG", "SET", "maxmemory-policy", "allkeys-lru")
        server.ask("CONFIG", "SET", "maxmemory", used(server) + 500_000)
        filler = 0
        while server.ask("EXISTS", queue.messages_key):
            server.ask("SET", f"filler-{filler}", "x" * 50_000)
            filler += 1

        assert queue.push([ticket()]) == []
        assert len(telemetry.named("queue_memory_lost")) == 1
        assert len(queue.lease(10, 30)) == 1
