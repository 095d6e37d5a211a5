"""What the queue in memory keeps beyond the contract: threads, waiting, foreign messages, its order and its ceiling."""

import threading

import pytest

from ringfence.memory.clock import ManualClock
from ringfence.memory.queue import MemoryQueue
from ringfence.wire import Ticket, decode_ticket


def tickets(count: int) -> list[Ticket]:
    return [Ticket(ticket_id=f"t{number}", job_id=f"j{number}", tenant="acme") for number in range(count)]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def queue(clock: ManualClock) -> MemoryQueue:
    return MemoryQueue("default", clock)


def test_threads_never_share_a_lease(queue: MemoryQueue) -> None:
    queue.push(tickets(800))
    start = threading.Barrier(8)
    taken: list[list[str]] = [[] for _ in range(8)]

    def consume(own: list[str]) -> None:
        start.wait()
        while leases := queue.lease(3, 30):
            own.extend(lease.message_id for lease in leases)
            queue.acknowledge(leases)

    threads = [threading.Thread(target=consume, args=(own,)) for own in taken]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    everything = [message for own in taken for message in own]
    assert len(everything) == len(set(everything)) == 800
    assert queue.bodies() == []


def test_of_two_threads_with_one_lease_over_only_the_new_owner_can_extend(queue: MemoryQueue, clock: ManualClock) -> None:
    queue.push(tickets(1))
    older = queue.lease(1, 2)
    clock.advance(2)
    newer = queue.lease(1, 30)
    lost: dict[str, int] = {"older": 0, "newer": 0}
    start = threading.Barrier(2)

    def beat(name: str) -> None:
        start.wait()
        for _ in range(200):
            lost[name] += len(queue.extend(older if name == "older" else newer, 30))

    threads = [threading.Thread(target=beat, args=(name,)) for name in lost]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert lost == {"older": 200, "newer": 0}


def test_the_longest_visible_comes_first(queue: MemoryQueue, clock: ManualClock) -> None:
    late, early = tickets(2)
    queue.push([late], 5)
    queue.push([early], 1)
    clock.advance(10)
    assert [decode_ticket(lease.body).ticket_id for lease in queue.lease(2, 30)] == ["t1", "t0"]


def test_a_waiting_lease_takes_what_becomes_visible_meanwhile(queue: MemoryQueue, clock: ManualClock) -> None:
    queue.push(tickets(1), 3)
    assert len(queue.lease(10, 30, wait_seconds=20)) == 1
    assert clock.monotonic() == pytest.approx(3, abs=0.1)


def test_a_waiting_lease_gives_up(queue: MemoryQueue, clock: ManualClock) -> None:
    assert queue.lease(10, 30, wait_seconds=20) == []
    assert clock.monotonic() == pytest.approx(20)


def test_a_lease_waiting_in_real_time_is_served_by_a_push() -> None:
    queue = MemoryQueue("default")
    got: list[int] = []
    consumer = threading.Thread(target=lambda: got.append(len(queue.lease(1, 30, wait_seconds=30))))
    consumer.start()
    queue.push(tickets(1))
    consumer.join(10)
    assert got == [1]


def test_strangers_can_put_anything_in(queue: MemoryQueue) -> None:
    bodies = ["hello", "", "[1,2]", '{"v":99}']
    for body in bodies:
        queue.put(body)
    assert queue.bodies() == bodies
    assert [lease.body for lease in queue.lease(10, 30)] == bodies


def test_c13_a_scaled_ceiling_holds_however_often_it_is_extended(clock: ManualClock) -> None:
    queue = MemoryQueue("default", clock, max_lease_seconds=12)
    queue.push(tickets(1))
    leases = queue.lease(1, 3)
    while not queue.extend(leases, 3):
        clock.advance(1)
    assert clock.monotonic() == 12
    assert queue.lease(1, 3)[0].deliveries == 2


def test_ten_thousand_tickets_are_no_trouble(queue: MemoryQueue) -> None:
    queue.push(tickets(10_000))
    leased = 0
    while leases := queue.lease(10, 30):
        queue.acknowledge(leases)
        leased += len(leases)
    assert leased == 10_000
