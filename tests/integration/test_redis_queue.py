"""What a queue on Redis promises beyond the contract of all queues."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from redis.crc import key_slot

from ringfence.errors import Unavailable
from ringfence.local.redis_binaries import redis_server as find_redis_server
from ringfence.memory.telemetry import MemoryTelemetry
from ringfence.ports import Depth, FusedQueue, Lease
from ringfence.redis import queue as redis_queue
from ringfence.redis.address import Server, parse
from ringfence.redis.connection import connect
from ringfence.redis.queue import RedisQueue
from ringfence.testing.queue_contract import ticket
from ringfence.testing.redis_server import RedisServer
from ringfence.wire import decode_ticket

CANARY = "hunter2-canary"
EMPTY = Depth(ready=0, leased=0, delayed=0)
_names = (f"named-{number}" for number in itertools.count())


@pytest.fixture
def queue(redis_server: RedisServer) -> RedisQueue:
    return redis_server.queue()


def ids_in(leases: list[Lease]) -> list[str]:
    return [decode_ticket(lease.body).ticket_id for lease in leases]


# --- order -----------------------------------------------------------------------------------------------------------------


def test_tickets_come_in_the_order_of_their_pushes(queue: RedisQueue) -> None:
    pushed = [ticket() for _ in range(300)]
    for start in range(0, 300, 20):
        queue.push(pushed[start : start + 20])

    assert ids_in(queue.lease(300, 30)) == [one.ticket_id for one in pushed]


def test_tickets_come_in_the_order_of_their_visibility(redis_server: RedisServer, queue: RedisQueue) -> None:
    late, early, now = ticket(), ticket(), ticket()
    queue.push([late], 5)
    queue.push([early], 2)
    queue.push([now])
    redis_server.let_pass(queue, 5)

    assert ids_in(queue.lease(10, 30)) == [one.ticket_id for one in (now, early, late)]


def test_a_released_ticket_stands_behind_those_that_waited(queue: RedisQueue) -> None:
    first, second = ticket(), ticket()
    queue.push([first])
    (lease,) = queue.lease(1, 30)
    queue.push([second])
    queue.release([lease])

    assert ids_in(queue.lease(10, 30)) == [second.ticket_id, first.ticket_id]


# --- batches ---------------------------------------------------------------------------------------------------------------


def test_more_than_a_batch_is_several_calls_that_look_like_one(queue: RedisQueue) -> None:
    pushed = [ticket() for _ in range(1000)]
    assert queue.push(pushed) == []
    leases = queue.lease(2000, 30)
    assert ids_in(leases) == [one.ticket_id for one in pushed]
    assert queue.extend(leases, 60) == []
    queue.release(leases)
    leases = queue.lease(1000, 30)
    assert len(leases) == 1000
    queue.acknowledge(leases)

    assert queue.depth() == EMPTY


def test_a_batch_of_large_tickets_is_pushed_in_parts(queue: RedisQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_queue, "MAX_PUSH_BYTES", 500)
    pushed = [ticket("t" * size) for size in (10, 500, 10, 200, 200, 200)]
    assert queue.push(pushed) == []

    assert ids_in(queue.lease(10, 30)) == [one.ticket_id for one in pushed]


def test_a_worker_acknowledges_and_leases_in_one_call(queue: RedisQueue) -> None:
    assert isinstance(queue, FusedQueue)
    queue.push([ticket() for _ in range(25)])
    done: list[Lease] = []
    seen: list[str] = []
    while done := queue.acknowledge_and_lease(done, 10, 30):
        seen += ids_in(done)

    assert len(seen) == len(set(seen)) == 25
    assert queue.lease(10, 30) == []
    assert queue.depth().leased == 0


def test_more_may_be_done_than_a_batch(queue: RedisQueue) -> None:
    queue.push([ticket() for _ in range(600)])
    done = queue.lease(600, 30)

    assert queue.acknowledge_and_lease(done, 10, 30) == []
    assert queue.depth() == EMPTY


def test_what_is_done_is_acknowledged_even_if_nothing_more_is_wanted(queue: RedisQueue) -> None:
    queue.push([ticket(), ticket()])
    done = queue.lease(1, 30)

    assert queue.acknowledge_and_lease(done, 0, 30) == []
    assert (queue.depth().ready, queue.depth().leased) == (1, 0)


def test_a_worker_asks_and_reads_the_reply_in_another_thread(redis_server: RedisServer, queue: RedisQueue) -> None:
    queue.push([ticket() for _ in range(600)])
    done = queue.lease(300, 30)
    redis_server.ask("SCRIPT", "FLUSH")

    reply = queue.ask(done, 1000, 30)
    assert queue.depth().ready <= 300, "the thread may go on talking meanwhile"
    got: list[Lease] = []
    reader = threading.Thread(target=lambda: got.extend(reply()))
    reader.start()
    reader.join(10)
    assert len(got) == redis_queue.MAX_BATCH
    assert (queue.depth().ready, queue.depth().leased) == (50, 250)
    assert len(queue.ask(got, 1000, 30)()) == 50
    assert queue.ask((), 1000, 30)() == []
    assert queue.depth().leased == 50


def test_a_reply_that_never_comes_is_told_and_the_next_question_is_answered(redis_server: RedisServer) -> None:
    telemetry = MemoryTelemetry()
    queue = redis_server.queue(telemetry=telemetry)
    queue.push([ticket()])
    reply = queue.ask((), 10, 30)
    assert len(reply()) == 1
    redis_server.ask("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")

    with pytest.raises(Unavailable, match="lease"):
        queue.ask((), 10, 30)()
    assert queue.ask((), 10, 30)() == []
    assert [event["operation"] for event in telemetry.named("redis_call_failed")] == ["lease"]


def test_a_stale_lease_in_the_fused_call_is_passed_over(redis_server: RedisServer, queue: RedisQueue) -> None:
    queue.push([ticket()])
    stale = queue.lease(1, 1)
    redis_server.let_pass(queue, 1)
    current = queue.lease(1, 30)

    assert queue.acknowledge_and_lease(stale, 10, 30) == []
    assert queue.depth().leased == 1
    assert queue.acknowledge_and_lease(current, 10, 30) == []
    assert queue.depth().leased == 0


def test_depth_tells_for_how_long_the_oldest_has_been_ready(redis_server: RedisServer, queue: RedisQueue) -> None:
    assert queue.depth().oldest_ready_seconds == 0
    queue.push([ticket()], 60)
    assert queue.depth().oldest_ready_seconds == 0
    redis_server.let_pass(queue, 100)
    queue.push([ticket()])
    assert 40 <= (queue.depth().oldest_ready_seconds or 0) < 50
    queue.lease(1, 30)
    assert (queue.depth().oldest_ready_seconds or 0) < 10


# --- leases ----------------------------------------------------------------------------------------------------------------


def test_a_lease_that_ended_still_acknowledges_while_nobody_else_has_the_message(
    redis_server: RedisServer, queue: RedisQueue
) -> None:
    queue.push([ticket()])
    leases = queue.lease(1, 1)
    redis_server.let_pass(queue, 1)
    queue.acknowledge(leases)

    assert queue.lease(10, 30) == []
    assert queue.depth().ready == 0


def test_deliveries_are_counted_through_ends_and_releases(redis_server: RedisServer, queue: RedisQueue) -> None:
    queue.push([ticket()])
    counted = []
    for turn in range(6):
        leases = queue.lease(1, 1)
        counted.append(leases[0].deliveries)
        if turn % 2:
            queue.release(leases)
        else:
            queue.extend(leases, 2)
            redis_server.let_pass(queue, 2)

    assert counted == [1, 2, 3, 4, 5, 6]


def test_beyond_the_last_delivery_that_is_counted_a_ticket_still_comes_and_goes(
    redis_server: RedisServer, queue: RedisQueue
) -> None:
    queue.push([ticket()])
    (lease,) = queue.lease(1, 30)
    member = f"{lease.message_id}\x1f{lease.body}"
    redis_server.ask("ZADD", queue.messages_key, f"{1000 + 2046 / 2048!r}", member)
    leases = queue.lease(1, 1)
    assert leases[0].deliveries == 2047
    redis_server.let_pass(queue, 1)
    leases = queue.lease(1, 30)
    assert leases[0].deliveries == 2047
    queue.acknowledge(leases)

    assert queue.depth() == EMPTY


@pytest.mark.parametrize("receipt", ["0.0.", "0", "-1.0.", "nan.0.", "0x0.0.", ""])
def test_a_message_that_was_never_leased_has_no_receipt_to_guess(
    redis_server: RedisServer, queue: RedisQueue, receipt: str
) -> None:
    queue.push([ticket()], 60)
    member: str = redis_server.ask("ZRANGE", queue.messages_key, 0, 0)[0]
    message_id, _, body = member.partition("\x1f")
    forged = Lease(body, receipt + message_id if receipt else "", 1, message_id, queue.name)
    queue.release([forged])
    queue.acknowledge([forged])

    assert queue.extend([forged], 30) == [forged]
    assert queue.depth() == Depth(ready=0, leased=0, delayed=1)


def test_a_lease_that_ended_cannot_hide_the_message_again(redis_server: RedisServer, queue: RedisQueue) -> None:
    queue.push([ticket()])
    leases = queue.lease(1, 1)
    redis_server.let_pass(queue, 1)
    queue.release(leases, 60)

    assert queue.depth() == Depth(ready=1, leased=0, delayed=0)


# --- strangers' messages ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "member", [b"hello", b"", b"[]", b"hello, world!", b"\xff\xfe\x00binary", "ünïcødé".encode(), b"9" * 100_000]
)
def test_a_strangers_message_is_leased_like_any_other(redis_server: RedisServer, queue: RedisQueue, member: bytes) -> None:
    """C24, at the queue: it can be read, kept and got rid of."""
    redis_server.ask("ZADD", queue.messages_key, 0, member)
    leases = queue.lease(10, 1)
    assert [lease.body.encode("utf-8", "surrogateescape") for lease in leases] == [member]
    assert leases[0].deliveries == 1
    assert queue.extend(leases, 30) == []
    queue.release(leases)
    again = queue.lease(10, 30)
    assert [(lease.message_id, lease.deliveries) for lease in again] == [(leases[0].message_id, 2)]
    queue.acknowledge(again)

    assert queue.depth() == EMPTY


def test_strangers_messages_do_not_hold_up_the_others(redis_server: RedisServer, queue: RedisQueue) -> None:
    for score, member in (("-inf", "first"), ("-5.25", "hello"), ("-5.25", "[]"), ("-5.25", "{}")):
        redis_server.ask("ZADD", queue.messages_key, score, member)
    queue.push([ticket()])
    assert queue.depth().ready == 5
    leases = queue.lease(10, 30)

    assert [lease.body for lease in leases[:4]] == ["first", "[]", "hello", "{}"]
    assert len(leases) == 5
    queue.acknowledge(leases)
    assert queue.lease(10, 30) == []


def test_a_message_that_will_never_be_visible_is_in_nobodys_way(redis_server: RedisServer, queue: RedisQueue) -> None:
    redis_server.ask("ZADD", queue.messages_key, "+inf", "never")

    assert queue.lease(10, 30, wait_seconds=0.05) == []
    assert queue.depth() == EMPTY


# --- depth and memory ------------------------------------------------------------------------------------------------------


def test_depth_is_exact_where_it_says_so_and_close_elsewhere(queue: RedisQueue) -> None:
    queue.push([ticket() for _ in range(600)])
    queue.lease(400, 30)
    queue.push([ticket() for _ in range(800)], 60)
    depth = queue.depth()

    assert depth.ready == 200
    assert depth.leased + depth.delayed == 1200
    assert abs(depth.leased - 400) < 60


def test_a_waiting_ticket_costs_little_and_a_lease_nothing(redis_server: RedisServer, queue: RedisQueue) -> None:
    """DESIGN §16: about 200 bytes; what malloc adds differs from server to server."""
    pushed = [ticket() for _ in range(1000)]
    queue.push(pushed)
    waiting = redis_server.ask("MEMORY", "USAGE", queue.messages_key, "SAMPLES", 0)
    body_bytes = len(queue.lease(1, 30)[0].body)
    queue.lease(1000, 30)
    leased = redis_server.ask("MEMORY", "USAGE", queue.messages_key, "SAMPLES", 0)

    assert waiting / 1000 < body_bytes + 130
    assert leased < waiting * 1.05
    assert redis_server.ask("KEYS", f"*{{{queue.name}}}*").count(queue.messages_key) == 1


def test_a_drained_queue_leaves_nothing_behind(redis_server: RedisServer) -> None:
    queue = redis_server.queue()
    queue.push([ticket() for _ in range(100)])
    queue.acknowledge(queue.lease(100, 30))

    assert redis_server.ask("ZCARD", queue.messages_key) == 1  # the marker
    assert redis_server.ask("LLEN", queue.messages_key.replace("messages", "wake")) <= 1


# --- connections -----------------------------------------------------------------------------------------------------------


def test_every_thread_has_a_connection_of_its_own(redis_server: RedisServer, queue: RedisQueue) -> None:
    queue.push([ticket() for _ in range(400)])
    seen: list[str] = []
    ready = threading.Barrier(4)

    def work() -> None:
        ready.wait()
        done: list[Lease] = []
        while done := queue.acknowledge_and_lease(done, 7, 30):
            seen.extend(ids_in(done))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(seen) == len(set(seen)) == 400


def test_a_connection_that_the_server_closed_is_replaced_within_the_call(redis_server: RedisServer, queue: RedisQueue) -> None:
    queue.push([ticket()])
    redis_server.ask("CLIENT", "KILL", "TYPE", "normal")
    assert len(queue.lease(1, 30)) == 1
    redis_server.ask("CLIENT", "KILL", "TYPE", "normal")

    assert queue.push([ticket()]) == []


FORKED = """
import os, sys
from ringfence.redis.address import parse
from ringfence.redis.connection import connect
from ringfence.redis.queue import RedisQueue
from ringfence.testing.queue_contract import ticket

address = parse(sys.argv[1])
queue = RedisQueue(connect(address.server), address.name)
queue.push([ticket() for _ in range(200)])
children = []
for _ in range(3):
    pid = os.fork()
    if pid == 0:
        done, count = [], 0
        while done := queue.acknowledge_and_lease(done, 3, 30):
            count += len(done)
        os._exit(min(count, 255) and 7)
    children.append(pid)
while queue.depth().ready:
    queue.acknowledge(queue.lease(3, 30))
codes = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in children]
assert set(codes) <= {0, 7}, codes
depth = queue.depth()
assert (depth.ready, depth.leased) == (0, 0), depth
queue.push([ticket()])
assert len(queue.lease(10, 30)) == 1
print("one for each")
"""


@pytest.mark.parametrize("suffix", ["", "?cluster=1"])
def test_a_fork_leaves_the_parents_connection_alone(
    suffix: str, redis_server: RedisServer, cluster: RedisServer, tmp_path: Path
) -> None:
    """Were it shared, one process would read the other's reply."""
    server = cluster if suffix else redis_server
    library = Path(redis_queue.__file__).parents[2]
    url = server.url(next(_names)) + suffix
    ran = subprocess.run(
        [sys.executable, "-c", FORKED, url], env={"PYTHONPATH": str(library)}, capture_output=True, text=True, timeout=60
    )

    assert ran.stdout == "one for each\n", ran.stderr


def test_a_frozen_server_is_waited_for_no_longer_than_half_a_lease(tmp_path: Path) -> None:
    with RedisServer(find_redis_server(), tmp_path) as server:
        queue = RedisQueue(server.connection(lease_seconds=0.6), "default")
        queue.push([ticket()])
        os.kill(server.pid, signal.SIGSTOP)
        began = time.monotonic()
        try:
            with pytest.raises(Unavailable, match="Timeout"):
                queue.lease(1, 0.6)
            assert time.monotonic() - began < 0.6
            kept = ticket()
            assert queue.push([kept]) == [kept]
        finally:
            os.kill(server.pid, signal.SIGCONT)
        assert len(queue.lease(10, 30)) >= 1


def test_a_password_opens_the_door_and_is_never_told(tmp_path: Path) -> None:
    """C42"""
    telemetry = MemoryTelemetry()
    with RedisServer(find_redis_server(), tmp_path, ["--requirepass", CANARY]) as server:
        right = parse(f"redis://:{CANARY}@127.0.0.1:{server.port}/q")
        wrong = parse(f"redis://:{CANARY}-not@127.0.0.1:{server.port}/q")
        assert RedisQueue(connect(right.server, telemetry), "q").push([ticket()]) == []
        for server_named in (wrong.server, Server("127.0.0.1", server.port)):
            queue = RedisQueue(connect(server_named, telemetry), "q", telemetry=telemetry)
            with pytest.raises(Unavailable, match=r"WRONGPASS|NOAUTH|AuthenticationError") as refused:
                queue.lease(1, 30)
            assert CANARY not in str(refused.value)
    assert telemetry.named("redis_call_failed")
    assert CANARY not in str(telemetry.events)


def test_databases_of_one_server_are_apart(redis_server: RedisServer) -> None:
    name = next(_names)
    first, second = (RedisQueue(connect(parse(redis_server.url(name) + f"?db={db}").server), name) for db in (0, 1))
    first.push([ticket()])

    assert second.lease(10, 30) == []
    assert len(first.lease(10, 30)) == 1


# --- a cluster -------------------------------------------------------------------------------------------------------------


@pytest.fixture
def cluster(redis_nodes: Sequence[RedisServer]) -> RedisServer:
    """One node of several."""
    return redis_nodes[0]


def test_queues_spread_over_a_cluster_and_each_stays_together(cluster: RedisServer) -> None:
    """C18"""
    connection = connect(Server("127.0.0.1", cluster.port, cluster=True))
    queues = [RedisQueue(connection, f"queue-{number}") for number in range(12)]
    for queue in queues:
        queue.push([ticket()])
        assert len(queue.lease(1, 30, wait_seconds=1)) == 1
        assert queue.lease(1, 30, wait_seconds=0.01) == []
    slots = {key_slot(queue.messages_key.encode()) for queue in queues}

    assert len({slot * 3 // 16_384 for slot in slots}) == 3
    for queue in queues:
        assert key_slot(queue._wake.encode()) == key_slot(queue.messages_key.encode())


def test_a_worker_that_dies_in_a_cluster_loses_nothing(cluster: RedisServer) -> None:
    """C18"""
    connection = connect(Server("127.0.0.1", cluster.port, cluster=True))
    queue = RedisQueue(connection, next(_names))
    queue.push([ticket() for _ in range(5)])
    assert len(queue.lease(5, 0.2)) == 5  # and nobody ever comes back to them

    again = []
    while len(again) < 5:
        got = queue.lease(5, 30, wait_seconds=2)
        assert got, "the ended leases never came back"
        again += got
    assert {lease.deliveries for lease in again} == {2}


def test_a_server_that_belongs_to_a_cluster_says_so(cluster: RedisServer) -> None:
    connection = connect(Server("127.0.0.1", cluster.port))
    refused = []
    for number in range(12):
        try:
            RedisQueue(connection, f"queue-{number}").lease(1, 30)
        except Unavailable as fault:
            refused.append(str(fault))

    assert 0 < len(refused) < 12
    assert all("MOVED" in each for each in refused)
