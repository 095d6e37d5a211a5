"""The queue contract on Redis: each server there is on this machine, and a cluster of three (C18).

Most tests do not wait: they let time pass by moving every message's visibility into the past, which is the same to a queue that
knows time only from its server. Those that must see a real clock have short leases.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator

import pytest

from ringfence.redis.address import Server
from ringfence.redis.connection import Connection, connect
from ringfence.redis.queue import RedisQueue
from ringfence.testing.queue_contract import PassSeconds, QueueContract, ReceiptContract
from ringfence.testing.redis_kinds import KINDS, binary_of
from ringfence.testing.redis_server import RedisServer, let_pass

_numbers = itertools.count()


@pytest.fixture(scope="module", params=[*KINDS, "cluster"])
def connection(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Connection]:
    if request.param == "cluster":
        nodes = request.getfixturevalue("redis_nodes")
        yield connect(Server("127.0.0.1", nodes[0].port, cluster=True))
    else:
        with RedisServer(binary_of(request.param), tmp_path_factory.mktemp(request.param)) as server:
            yield server.connection()


class TestRedisQueue(QueueContract, ReceiptContract):
    @pytest.fixture
    def make_queue(self, connection: Connection) -> Callable[..., RedisQueue]:
        return lambda **options: RedisQueue(connection, "default", f"test-{next(_numbers)}", **options)

    @pytest.fixture
    def queue(self, make_queue: Callable[..., RedisQueue]) -> RedisQueue:
        return make_queue()

    @pytest.fixture
    def pass_seconds(self, connection: Connection, queue: RedisQueue) -> PassSeconds:
        return lambda seconds: let_pass(connection, queue, seconds)

    def test_a_lease_cannot_outlive_the_ceiling(self, make_queue: Callable[..., RedisQueue], pass_seconds: PassSeconds) -> None:
        """With a real clock, for a receipt holds the time of its lease."""
        super().test_a_lease_cannot_outlive_the_ceiling(
            make_queue(max_lease_seconds=0.8), lambda seconds: time.sleep(seconds + 0.01)
        )
