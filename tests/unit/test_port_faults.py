"""A faulty port does what its script says, when it says, and nothing else."""

import threading
from typing import Any

import pytest

from ringfence.errors import Unavailable
from ringfence.memory.clock import ManualClock
from ringfence.memory.queue import MemoryQueue
from ringfence.testing.faults import Crash, Faulty, Freeze, crash, freeze, lie, reply_lost, unavailable
from ringfence.testing.queue_contract import PassSeconds, QueueContract, ReceiptContract
from ringfence.wire import Ticket

TICKET = Ticket(ticket_id="t", job_id="j", tenant="acme")


@pytest.fixture
def queue() -> MemoryQueue:
    return MemoryQueue("default", ManualClock())


class TestFaultyWithoutFaults(QueueContract, ReceiptContract):
    """The wrapper alone changes nothing: it passes the contract of what it wraps."""

    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    def queue(self, clock: ManualClock) -> Any:
        return Faulty(MemoryQueue("default", clock), [])

    @pytest.fixture
    def pass_seconds(self, clock: ManualClock) -> PassSeconds:
        return lambda seconds: clock.advance(seconds + 0.001)


def test_a_crash_before_a_call_leaves_it_undone(queue: MemoryQueue) -> None:
    faulty = Faulty(queue, [crash("push", when="before")])
    with pytest.raises(Crash):
        faulty.push([TICKET])
    assert queue.bodies() == []
    assert faulty.push([TICKET]) == []
    assert len(queue.bodies()) == 1


def test_a_crash_after_a_call_leaves_it_done(queue: MemoryQueue) -> None:
    faulty = Faulty(queue, [crash("push", when="after", call=2)])
    faulty.push([TICKET])
    with pytest.raises(Crash):
        faulty.push([TICKET])
    assert len(queue.bodies()) == 2


def test_a_crash_is_nothing_that_the_product_could_catch_by_mistake() -> None:
    assert not issubclass(Crash, Exception)


def test_unavailable_strikes_before_and_a_lost_reply_after(queue: MemoryQueue) -> None:
    faulty = Faulty(queue, [unavailable("push"), reply_lost("push", call=2)])
    for left_behind in (0, 1):
        with pytest.raises(Unavailable):
            faulty.push([TICKET])
        assert len(queue.bodies()) == left_behind


def test_a_lie_is_told_instead_of_the_call(queue: MemoryQueue) -> None:
    faulty = Faulty(queue, [lie("push", [TICKET])])
    assert faulty.push([TICKET]) == [TICKET]
    assert queue.bodies() == []


def test_a_fault_without_a_number_strikes_every_time(queue: MemoryQueue) -> None:
    faulty = Faulty(queue, [unavailable("depth", call=None)])
    for _ in range(3):
        with pytest.raises(Unavailable):
            faulty.depth()
    assert len(faulty.fired) == 3


def test_only_calls_that_match_are_counted(queue: MemoryQueue) -> None:
    faulty = Faulty(queue, [crash("push", when="before", call=2, where=lambda tickets, *_: tickets[0].job_id == "chosen")])
    chosen = Ticket(ticket_id="t", job_id="chosen", tenant="acme")
    faulty.push([chosen])
    faulty.push([TICKET])
    with pytest.raises(Crash):
        faulty.push([chosen])


def test_calls_are_recorded_struck_or_not(queue: MemoryQueue) -> None:
    faulty = Faulty(queue, [unavailable("push")])
    with pytest.raises(Unavailable):
        faulty.push([TICKET], 5)
    faulty.push([TICKET], delay_seconds=0)
    faulty.lease(1, 30)
    assert [(call.method, call.args, call.kwargs) for call in faulty.calls] == [
        ("push", ([TICKET], 5), {}),
        ("push", ([TICKET],), {"delay_seconds": 0}),
        ("lease", (1, 30), {}),
    ]
    assert [fault.method for fault in faulty.fired] == ["push"]
    assert len(faulty.calls_of("push")) == 2


def test_attributes_pass_through(queue: MemoryQueue) -> None:
    faulty = Faulty(queue, [])
    assert (faulty.name, faulty.max_delay_seconds) == ("default", 900.0)
    with pytest.raises(AttributeError):
        _ = faulty.nonsense


def test_a_script_for_a_method_that_does_not_exist_is_refused(queue: MemoryQueue) -> None:
    with pytest.raises(ValueError, match="pusch"):
        Faulty(queue, [crash("pusch", when="before")])


@pytest.mark.parametrize(("when", "done_while_frozen"), [("before", 0), ("after", 1)])
def test_a_frozen_caller_waits_until_thawed(queue: MemoryQueue, when: Any, done_while_frozen: int) -> None:
    gate = Freeze()
    faulty = Faulty(queue, [freeze(gate, "push", when=when)])
    frozen = threading.Thread(target=faulty.push, args=([TICKET],))
    frozen.start()
    try:
        gate.wait_until_frozen()
        assert len(queue.bodies()) == done_while_frozen
        assert frozen.is_alive()
        faulty.push([TICKET])
        assert len(queue.bodies()) == done_while_frozen + 1
    finally:
        gate.thaw()
        frozen.join(10)
    assert not frozen.is_alive()
    assert len(queue.bodies()) == 2


def test_a_freeze_that_nobody_reaches_is_told() -> None:
    with pytest.raises(TimeoutError):
        Freeze().wait_until_frozen(timeout_seconds=0)


def test_among_many_threads_exactly_one_call_is_struck(queue: MemoryQueue) -> None:
    faulty = Faulty(queue, [unavailable("push", call=50)])
    struck: list[int] = []
    start = threading.Barrier(8)

    def push_many(thread: int) -> None:
        start.wait()
        for _ in range(20):
            try:
                faulty.push([TICKET])
            except Unavailable:
                struck.append(thread)

    threads = [threading.Thread(target=push_many, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(struck) == 1
    assert len(queue.bodies()) == 159
    assert len(faulty.calls) == 160
