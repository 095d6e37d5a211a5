"""Redis forgets its scripts, is killed, and comes back with what it had, or with nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ringfence.errors import Unavailable
from ringfence.local.redis_binaries import redis_server as find_redis_server
from ringfence.memory.telemetry import MemoryTelemetry
from ringfence.ports import Depth, Lease
from ringfence.redis.address import Server
from ringfence.redis.connection import connect
from ringfence.redis.queue import RedisQueue
from ringfence.testing.queue_contract import ticket
from ringfence.testing.redis_server import RedisServer, redis_cluster
from ringfence.testing.redis_system import RedisSystem
from ringfence.wire import decode_ticket

WITH_A_FILE = ("--appendonly", "yes", "--appendfsync", "no")
"""A SIGKILL loses nothing even so: what was written outlives the process in the page cache. (Not so with ``everysec``, which
puts off writing while an earlier fsync takes its time.)"""


@pytest.fixture
def telemetry() -> MemoryTelemetry:
    return MemoryTelemetry()


@pytest.fixture
def forgetful(tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(find_redis_server(), tmp_path) as server:
        yield server


@pytest.fixture
def with_a_file(redis_binary: Path, tmp_path: Path) -> Iterator[RedisServer]:
    with RedisServer(redis_binary, tmp_path, WITH_A_FILE) as server:
        yield server


def ids_in(leases: list[Lease]) -> list[str]:
    return [decode_ticket(lease.body).ticket_id for lease in leases]


def sources_sent(server: RedisServer) -> int:
    """How often a script had to be told again."""
    told: str = server.ask("INFO", "commandstats")
    return sum(int(line.split("calls=")[1].split(",")[0]) for line in told.splitlines() if line.startswith("cmdstat_eval:"))


def crash(server: RedisServer) -> None:
    server.kill()
    server.restart()


def test_scripts_that_are_flushed_amid_traffic_cost_nobody_a_call(redis_server: RedisServer) -> None:
    """C17"""
    queue = redis_server.queue()
    pushed = [ticket() for _ in range(3000)]
    seen: list[str] = []
    faults: list[BaseException] = []

    def push() -> None:
        for start in range(0, len(pushed), 20):
            assert queue.push(pushed[start : start + 20]) == []

    def work() -> None:
        done: list[Lease] = []
        while len(seen) < len(pushed):
            queue.extend(done, 30)
            done = queue.acknowledge_and_lease(done, 10, 30, wait_seconds=0.05)
            seen.extend(ids_in(done))
        queue.acknowledge(done)

    def run(part: Callable[[], None]) -> None:
        try:
            part()
        except BaseException as fault:  # noqa: BLE001 - told below
            faults.append(fault)

    threads = [threading.Thread(target=run, args=(part,)) for part in (push, work, work)]
    for thread in threads:
        thread.start()
    before = sources_sent(redis_server)
    flushes = 0
    while any(thread.is_alive() for thread in threads):
        redis_server.ask("SCRIPT", "FLUSH")
        flushes += 1
    for thread in threads:
        thread.join()

    assert not faults
    assert flushes > 10
    assert sources_sent(redis_server) - before > 10
    assert sorted(seen) == sorted(one.ticket_id for one in pushed)
    assert queue.depth() == Depth(ready=0, leased=0, delayed=0)


def test_scripts_that_are_flushed_between_the_parts_of_a_push_lose_and_double_nothing(
    redis_server: RedisServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """C17: each part is a call of its own, so that none is half applied."""
    queue = redis_server.queue()
    run, parts = queue._run, 0

    def flush_and_run(verb: str, *arguments: object) -> object:
        nonlocal parts
        parts += 1
        redis_server.ask("SCRIPT", "FLUSH")
        return run(verb, *arguments)

    monkeypatch.setattr(queue, "_run", flush_and_run)
    before = sources_sent(redis_server)
    assert queue.push([ticket(traceparent="x" * 4_000) for _ in range(1_000)]) == []
    assert parts > 2
    assert sources_sent(redis_server) - before == parts
    monkeypatch.undo()
    assert queue.depth() == Depth(ready=1_000, leased=0, delayed=0)


def test_a_killed_server_with_its_file_comes_back_with_every_lease(
    with_a_file: RedisServer, telemetry: MemoryTelemetry
) -> None:
    """C17, C20: also that its scripts are unknown again is nobody's error."""
    queue = with_a_file.queue(telemetry=telemetry)
    queue.push([ticket() for _ in range(100)])
    queue.push([ticket() for _ in range(10)], 600)
    held = queue.lease(20, 30)
    queue.acknowledge(held[:5])
    mark = queue.memory_mark()
    crash(with_a_file)

    assert queue.extend(held, 30) == held[:5]
    assert queue.depth() == Depth(ready=80, leased=15, delayed=10)
    queue.acknowledge(held[5:10])
    queue.release(held[10:])
    again = queue.lease(200, 30)
    assert sorted(lease.deliveries for lease in again) == [1] * 80 + [2] * 10
    assert queue.memory_mark().partition("/")[0] == mark.partition("/")[0]
    assert telemetry.named("queue_memory_lost") == []


def test_a_server_that_comes_back_empty_takes_tickets_again_and_is_noticed(
    forgetful: RedisServer, telemetry: MemoryTelemetry
) -> None:
    queue = forgetful.queue("payments", telemetry=telemetry)
    queue.push([ticket() for _ in range(100)])
    held = queue.lease(10, 30)
    mark = queue.memory_mark()
    crash(forgetful)

    assert queue.push([ticket()]) == []
    assert telemetry.named("queue_memory_lost") == [{"queue": "payments"}]
    assert queue.extend(held, 30) == held
    queue.acknowledge(held)
    queue.release(held)
    assert len(queue.lease(10, 30)) == 1
    assert queue.memory_mark().partition("/")[0] != mark.partition("/")[0]


def test_a_worker_alone_notices_that_the_memory_is_lost(forgetful: RedisServer, telemetry: MemoryTelemetry) -> None:
    """Nobody may push any more; then it is the idle workers that find an empty queue."""
    queue = forgetful.queue("payments", telemetry=telemetry)
    queue.push([ticket()])
    queue.acknowledge(queue.lease(1, 30))
    assert queue.lease(1, 30) == []
    assert telemetry.named("queue_memory_lost") == []
    crash(forgetful)
    assert queue.lease(1, 30) == []
    assert queue.lease(1, 30) == []

    assert telemetry.named("queue_memory_lost") == [{"queue": "payments"}]


def test_a_process_that_comes_later_finds_another_mark(forgetful: RedisServer) -> None:
    """One that was not there cannot know by itself whether the queue is new; whoever keeps the mark can."""
    before = forgetful.queue("payments").memory_mark()
    assert forgetful.queue("payments").memory_mark() == before
    assert forgetful.queue("default").memory_mark() != before
    crash(forgetful)
    forgetful.queue("payments").push([ticket()])

    assert forgetful.queue("payments").memory_mark() != before


def flush(server: RedisServer) -> None:
    server.ask("FLUSHALL")


@pytest.mark.parametrize("lose", [crash, flush])
def test_every_accepted_job_ends_once_though_redis_has_lost_them_all(
    forgetful: RedisServer, lose: Callable[[RedisServer], None]
) -> None:
    """C17: some done, some leased by a worker that is gone, the rest waiting; and some that come when all is lost already."""
    queue = forgetful.queue("default")
    here = RedisSystem(queue)
    here.accept(20)
    here.work()
    lost = here.accept(300)
    assert len(queue.lease(10, 30)) == 10
    lose(forgetful)
    here.accept(5)

    assert here.timers.run()["renewed"] == 305
    assert [each["lost"] for each in here.telemetry.named("repair_started")] == ["everything"]
    here.work()
    assert here.not_ended_once() == {}
    assert queue.depth() == Depth(ready=0, leased=0, delayed=0)
    assert here.runs.keys() >= set(lost)
    assert here.timers.run()["renewed"] == 0


def test_a_restart_that_may_have_lost_the_last_writes_is_repaired_too(with_a_file: RedisServer) -> None:
    """It had a file and lost nothing, which nobody knows: second tickets find their jobs ended."""
    here = RedisSystem(with_a_file.queue("default"))
    here.accept(50)
    crash(with_a_file)

    assert here.timers.run()["renewed"] == 50
    assert [each["lost"] for each in here.telemetry.named("repair_started")] == ["perhaps the last writes"]
    here.work()
    assert here.not_ended_once() == {}


def test_a_flushed_set_is_a_lost_memory_too(redis_server: RedisServer, telemetry: MemoryTelemetry) -> None:
    queue = redis_server.queue(telemetry=telemetry)
    queue.push([ticket()])
    redis_server.ask("DEL", queue.messages_key)
    queue.push([ticket()])

    assert len(telemetry.named("queue_memory_lost")) == 1


def test_while_there_is_no_server_nothing_is_taken_and_nothing_hangs(
    forgetful: RedisServer, telemetry: MemoryTelemetry
) -> None:
    queue = forgetful.queue(telemetry=telemetry)
    queue.push([ticket()])
    held = queue.lease(1, 30)
    forgetful.kill()
    kept = [ticket(), ticket()]

    assert queue.push(kept) == kept
    for call in (
        lambda: queue.lease(1, 30, 1),
        lambda: queue.extend(held, 30),
        lambda: queue.acknowledge(held),
        lambda: queue.release(held),
        lambda: queue.depth(),
        lambda: queue.check(),
        lambda: queue.memory_mark(),
        lambda: queue.acknowledge_and_lease(held, 1, 30),
    ):
        with pytest.raises(Unavailable, match="ConnectionError"):
            call()
    assert {fields["operation"] for fields in telemetry.named("redis_call_failed")} >= {"push", "lease", "acknowledge"}
    forgetful.restart()
    queue.check()
    assert queue.push(kept) == []
    assert len(queue.lease(10, 30)) == 2


def test_a_worker_that_waits_while_the_server_is_killed_is_told(forgetful: RedisServer) -> None:
    queue = forgetful.queue()
    told: list[BaseException] = []

    def work() -> None:
        try:
            queue.lease(1, 30, wait_seconds=60)
        except Unavailable as fault:
            told.append(fault)

    thread = threading.Thread(target=work)
    thread.start()
    while "blocked_clients:1" not in forgetful.ask("INFO", "clients"):
        pass
    forgetful.kill()
    thread.join(20)

    assert not thread.is_alive()
    assert len(told) == 1


def test_the_check_runs_what_leases(redis_server: RedisServer) -> None:
    """C17: a PING would be answered by a Redis on which no lease can succeed."""
    queue = redis_server.queue()
    queue.push([ticket()])
    queue.check()
    assert queue.depth().ready == 1
    redis_server.ask("DEL", queue.messages_key)
    redis_server.ask("SET", queue.messages_key, "not a set")

    with pytest.raises(Unavailable, match="WRONGTYPE"):
        queue.check()


def test_a_cluster_that_loses_a_node_is_unavailable_until_it_is_back(tmp_path: Path) -> None:
    """C18"""
    with redis_cluster(find_redis_server(), tmp_path) as nodes:
        queue = RedisQueue(connect(Server("127.0.0.1", nodes[0].port, cluster=True)), "default")
        queue.push([ticket()])
        held = queue.lease(1, 30)
        (owner,) = (node for node in nodes if node.ask("DBSIZE"))
        owner.kill()
        kept = ticket()
        with pytest.raises(Unavailable):
            queue.lease(1, 30)
        assert queue.push([kept]) == [kept]
        owner.restart()
        deadline = time.monotonic() + 20
        while queue.push([kept]):
            assert time.monotonic() < deadline

        assert queue.extend(held, 30) == held, "it had no file"
        assert ids_in(queue.lease(10, 30)) == [kept.ticket_id]
