"""A lease that waits is woken; it does not poll. The look that each takes by itself now and then is put off here, so that only
being woken, or knowing the next visibility, can end a wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import pytest

from ringfence.errors import Unavailable
from ringfence.ports import Lease
from ringfence.redis import queue as redis_queue
from ringfence.redis.queue import RedisQueue
from ringfence.redis.single import SingleServer
from ringfence.testing.queue_contract import ticket
from ringfence.testing.redis_server import RedisServer

LONG_SECONDS = 60.0
SOON_SECONDS = 10.0
"""For what comes at once, on however busy a machine; far below `LONG_SECONDS`."""


@pytest.fixture(autouse=True)
def no_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redis_queue, "LOOK_SECONDS", LONG_SECONDS)


@pytest.fixture
def queue(redis_server: RedisServer) -> RedisQueue:
    return redis_server.queue()


Wait = Callable[..., "Future[list[Lease]]"]


@pytest.fixture
def wait(redis_server: RedisServer, queue: RedisQueue) -> Wait:
    """Starts a thread that waits for one message, and returns when it blocks."""

    def start(lease_seconds: float = 30, wait_seconds: float = LONG_SECONDS) -> Future[list[Lease]]:
        leased: Future[list[Lease]] = Future()
        before = blocked(redis_server)
        threading.Thread(
            target=lambda: leased.set_result(queue.lease(1, lease_seconds, wait_seconds=wait_seconds)), daemon=True
        ).start()
        until(lambda: blocked(redis_server) > before)
        return leased

    return start


def blocked(server: RedisServer) -> int:
    told: str = server.ask("INFO", "clients")
    return int(told.split("blocked_clients:")[1].split()[0])


def until(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SOON_SECONDS
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_a_push_wakes_who_waits(queue: RedisQueue, wait: Wait) -> None:
    leased = wait()
    queue.push([ticket()])

    assert len(leased.result(SOON_SECONDS)) == 1


def test_who_is_woken_has_its_ticket_without_another_round_trip(
    monkeypatch: pytest.MonkeyPatch, queue: RedisQueue, wait: Wait
) -> None:
    asked: list[str] = []
    ask = SingleServer._ask

    def recorded(server: SingleServer, *commands: tuple[str | int, ...], blocked_seconds: float = 0.0) -> Any:
        if threading.current_thread() is not threading.main_thread():
            asked.append(" ".join(str(command[0]) for command in commands))
        return ask(server, *commands, blocked_seconds=blocked_seconds)

    assert queue.lease(1, 1.0) == []  # the server knows the script from now on
    monkeypatch.setattr(SingleServer, "_ask", recorded)
    leased = wait()
    queue.push([ticket()])

    assert leased.result(SOON_SECONDS)
    assert asked == ["EVALSHA", "BLPOP EVALSHA"]


def test_who_is_woken_by_a_server_that_has_forgotten_the_script_has_its_ticket_too(
    redis_server: RedisServer, queue: RedisQueue, wait: Wait
) -> None:
    leased = wait()
    redis_server.ask("SCRIPT", "FLUSH")
    queue.push([ticket()])

    assert len(leased.result(SOON_SECONDS)) == 1


def test_a_wait_that_is_refused_leaves_no_reply_for_the_next_call(redis_server: RedisServer, queue: RedisQueue) -> None:
    redis_server.ask("SET", queue._wake, "no list")
    with pytest.raises(Unavailable, match="WRONGTYPE"):
        queue.lease(1, 30, wait_seconds=1)
    redis_server.ask("DEL", queue._wake)
    queue.push([ticket()])

    assert queue.depth().ready == 1


def test_one_push_wakes_as_many_as_it_has_tickets_for(queue: RedisQueue, wait: Wait) -> None:
    waiting = [wait() for _ in range(5)]
    queue.push([ticket() for _ in range(5)])
    leases = [lease for leased in waiting for lease in leased.result(SOON_SECONDS)]

    assert len({lease.message_id for lease in leases}) == 5


def test_pushes_in_a_row_each_wake_somebody(queue: RedisQueue, wait: Wait) -> None:
    waiting = [wait() for _ in range(5)]
    for _ in range(5):
        queue.push([ticket()])

    assert all(leased.result(SOON_SECONDS) for leased in waiting)


def test_a_release_wakes_who_waits(queue: RedisQueue, wait: Wait) -> None:
    queue.push([ticket()])
    held = queue.lease(1, 30)
    leased = wait()
    queue.release(held)

    assert leased.result(SOON_SECONDS)[0].deliveries == 2


@pytest.mark.parametrize("delayed_first", [True, False])
def test_a_delayed_ticket_ends_the_wait_when_it_is_due(queue: RedisQueue, wait: Wait, delayed_first: bool) -> None:
    if delayed_first:
        queue.push([ticket()], delay_seconds=0.5)
        began = time.monotonic()
        leased = wait()
    else:
        leased = wait()
        began = time.monotonic()
        queue.push([ticket()], delay_seconds=0.5)

    assert len(leased.result(SOON_SECONDS)) == 1
    assert time.monotonic() - began > 0.4


def test_a_lease_that_ends_ends_the_wait(queue: RedisQueue, wait: Wait) -> None:
    queue.push([ticket()])
    queue.lease(1, 0.4)

    assert wait().result(SOON_SECONDS)[0].deliveries == 2


def test_a_short_lease_is_watched_by_those_who_go_on_waiting(queue: RedisQueue, wait: Wait) -> None:
    """They knew of nothing when they began to wait, and whoever took the ticket is not there when its lease ends."""
    waiting = [wait(lease_seconds=0.4), wait(lease_seconds=0.4)]
    queue.push([ticket()])

    assert sorted(leased.result(SOON_SECONDS)[0].deliveries for leased in waiting) == [1, 2]


def test_whoever_gives_up_leaves_the_watch_to_another(queue: RedisQueue, wait: Wait) -> None:
    """The push wakes one, who then knows when the ticket is due, and stops waiting before."""
    brief, patient = wait(wait_seconds=0.6), wait()
    queue.push([ticket()], delay_seconds=1)

    assert brief.result(SOON_SECONDS) == []
    assert len(patient.result(SOON_SECONDS)) == 1


def test_a_token_left_behind_costs_a_later_wait_one_look(redis_server: RedisServer, queue: RedisQueue, wait: Wait) -> None:
    for _ in range(10):
        queue.push([ticket()])
    queue.acknowledge(queue.lease(10, 30))
    leased = wait()
    until(lambda: redis_server.ask("EXISTS", queue._wake) == 0 and blocked(redis_server) == 1)
    queue.push([ticket()])

    assert len(leased.result(SOON_SECONDS)) == 1


def test_who_waits_asks_nothing_meanwhile(redis_server: RedisServer, queue: RedisQueue, wait: Wait) -> None:
    redis_server.ask("CONFIG", "RESETSTAT")
    leased = wait()
    calls = evaluations(redis_server)
    with pytest.raises(TimeoutError):
        leased.result(0.3)

    assert evaluations(redis_server) == calls <= 2
    queue.push([ticket()])
    leased.result(SOON_SECONDS)


def evaluations(server: RedisServer) -> int:
    told: str = server.ask("INFO", "commandstats")
    return sum(int(line.split("calls=")[1].split(",")[0]) for line in told.splitlines() if line.startswith("cmdstat_eval"))


def test_a_wait_ends_in_time_when_nothing_comes(queue: RedisQueue) -> None:
    began = time.monotonic()

    assert queue.lease(1, 30, wait_seconds=0.2) == []
    assert 0.2 <= time.monotonic() - began < SOON_SECONDS


def test_what_is_done_is_gone_before_the_wait_begins(redis_server: RedisServer, queue: RedisQueue) -> None:
    queue.push([ticket()])
    done = queue.lease(1, 30)
    thread = threading.Thread(target=lambda: queue.acknowledge_and_lease(done, 1, 30, wait_seconds=LONG_SECONDS), daemon=True)
    thread.start()
    until(lambda: blocked(redis_server) == 1)

    assert queue.depth().leased == 0
    queue.push([ticket()])
    thread.join(SOON_SECONDS)
    assert not thread.is_alive()
