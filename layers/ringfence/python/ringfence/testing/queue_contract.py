"""What every queue must do. Subclass `QueueContract` (and `ReceiptContract` where the engine is exact) and give the fixtures.

    class TestMyQueue(QueueContract):
        @pytest.fixture
        def queue(self): ...
        @pytest.fixture
        def pass_seconds(self): ...

Times are whole seconds, and none is compared more closely than one of them, so that the suite also runs against a real service.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

import pytest

from ringfence.ports import Lease, Queue
from ringfence.wire import Ticket, decode_ticket

PassSeconds = Callable[[float], None]

_numbers = itertools.count(1)


def ticket(tenant: str = "acme", traceparent: str | None = None) -> Ticket:
    """A ticket like no other."""
    number = next(_numbers)
    return Ticket(ticket_id=f"ticket{number}", job_id=f"job{number}", tenant=tenant, name="index", traceparent=traceparent)


def tickets_in(leases: Sequence[Lease]) -> list[str]:
    """The ticket ids, sorted: a queue promises no order."""
    return sorted(decode_ticket(lease.body).ticket_id for lease in leases)


def lease_all(queue: Queue, lease_seconds: float = 30, calls: int = 20) -> list[Lease]:
    """Lease until nothing comes."""
    leases: list[Lease] = []
    for _ in range(calls):
        got = queue.lease(10, lease_seconds)
        if not got:
            break
        leases += got
    return leases


def lease_one(queue: Queue, lease_seconds: float = 30) -> Lease:
    """The one message that is visible."""
    (lease,) = queue.lease(10, lease_seconds)
    return lease


class QueueContract:
    """Push, lease, extend, acknowledge, release and depth, as `ringfence.ports.Queue` promises."""

    @pytest.fixture
    def queue(self) -> Queue:
        """An empty queue of its own for each test."""
        raise NotImplementedError

    @pytest.fixture
    def pass_seconds(self) -> PassSeconds:
        """Lets this much of the queue's time pass, and a moment more."""
        raise NotImplementedError

    def test_a_pushed_ticket_is_leased_as_it_was(self, queue: Queue) -> None:
        pushed = ticket(traceparent="00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
        assert queue.push([pushed]) == []
        lease = lease_one(queue)
        assert decode_ticket(lease.body).ticket_id == pushed.ticket_id
        assert decode_ticket(lease.body).traceparent == pushed.traceparent
        assert (lease.deliveries, lease.queue) == (1, queue.name)
        assert lease.receipt
        assert lease.message_id

    def test_nothing_pushed_is_nothing_taken(self, queue: Queue) -> None:
        assert queue.push([]) == []
        assert queue.lease(10, 30) == []

    @pytest.mark.parametrize("tenant", ["ünïcødé 🦊", "a b\tc\n", "", "x" * 300, "\x00\x1b[31m", '"\\'])
    def test_any_tenant_can_have_tickets(self, queue: Queue, tenant: str) -> None:
        assert queue.push([ticket(tenant)]) == []
        assert decode_ticket(lease_one(queue).body).tenant == tenant

    def test_each_ticket_may_have_a_delay_of_its_own(self, queue: Queue, pass_seconds: PassSeconds) -> None:
        first, second, third = ticket(), ticket(), ticket()
        assert queue.push([first, second, third], [0, 2, 4]) == []
        assert tickets_in(lease_all(queue)) == [first.ticket_id]
        pass_seconds(2)
        assert tickets_in(lease_all(queue)) == [second.ticket_id]
        pass_seconds(2)
        assert tickets_in(lease_all(queue)) == [third.ticket_id]

    def test_as_many_delays_as_tickets(self, queue: Queue) -> None:
        with pytest.raises(ValueError):
            queue.push([ticket(), ticket()], [1.0])
        assert queue.push([], []) == []
        assert queue.lease(10, 30) == []

    def test_many_tickets_are_all_taken_and_each_is_leased_once(self, queue: Queue) -> None:
        pushed = [ticket(f"tenant-{number % 3}") for number in range(25)]
        assert queue.push(pushed) == []
        leases = lease_all(queue)
        assert tickets_in(leases) == sorted(one.ticket_id for one in pushed)
        assert len({lease.receipt for lease in leases}) == len({lease.message_id for lease in leases}) == 25

    def test_the_same_ticket_twice_is_two_messages(self, queue: Queue) -> None:
        one = ticket()
        assert queue.push([one, one]) == []
        assert tickets_in(lease_all(queue)) == [one.ticket_id, one.ticket_id]

    def test_a_lease_takes_no_more_than_asked_for(self, queue: Queue) -> None:
        queue.push([ticket() for _ in range(15)])
        assert len(queue.lease(3, 30)) <= 3
        assert len(queue.lease(12, 30)) <= 12
        assert queue.lease(0, 30) == []

    def test_a_leased_ticket_is_hidden_until_its_lease_is_over(self, queue: Queue, pass_seconds: PassSeconds) -> None:
        queue.push([ticket()])
        first = lease_one(queue, lease_seconds=2)
        assert queue.lease(10, 30) == []
        pass_seconds(2)
        second = lease_one(queue)
        assert second.message_id == first.message_id
        assert second.receipt != first.receipt
        assert (first.deliveries, second.deliveries) == (1, 2)

    def test_an_acknowledged_ticket_never_comes_back(self, queue: Queue, pass_seconds: PassSeconds) -> None:
        queue.push([ticket() for _ in range(12)])
        leases = lease_all(queue, lease_seconds=2)
        assert len(leases) == 12
        queue.acknowledge(leases)
        pass_seconds(2)
        assert queue.lease(10, 30) == []

    def test_acknowledging_one_leaves_the_others(self, queue: Queue, pass_seconds: PassSeconds) -> None:
        queue.push([ticket(), ticket(), ticket()])
        leases = lease_all(queue, lease_seconds=2)
        queue.acknowledge(leases[:1])
        pass_seconds(2)
        assert tickets_in(lease_all(queue)) == tickets_in(leases[1:])

    def test_an_extended_lease_stays_hidden(self, queue: Queue, pass_seconds: PassSeconds) -> None:
        queue.push([ticket() for _ in range(12)])
        leases = lease_all(queue, lease_seconds=4)
        pass_seconds(2)
        assert queue.extend(leases, 8) == []
        pass_seconds(4)
        assert queue.lease(10, 30) == []
        pass_seconds(4)
        assert tickets_in(lease_all(queue)) == tickets_in(leases)

    def test_a_lease_can_be_shortened(self, queue: Queue, pass_seconds: PassSeconds) -> None:
        queue.push([ticket()])
        lease = lease_one(queue, lease_seconds=60)
        assert queue.extend([lease], 2) == []
        pass_seconds(2)
        assert lease_one(queue).message_id == lease.message_id

    def test_a_lease_asked_for_beyond_the_most_is_clipped(self, queue: Queue) -> None:
        queue.push([ticket()])
        lease = lease_one(queue, lease_seconds=queue.max_lease_seconds * 3)
        assert queue.extend([lease], queue.max_lease_seconds * 3) == []
        assert queue.lease(10, 30) == []

    def test_a_released_ticket_is_visible_at_once(self, queue: Queue) -> None:
        queue.push([ticket() for _ in range(12)])
        leases = lease_all(queue)
        queue.release(leases)
        again = lease_all(queue)
        assert tickets_in(again) == tickets_in(leases)
        assert {lease.deliveries for lease in again} == {2}

    def test_a_ticket_released_with_a_delay_comes_after_it(self, queue: Queue, pass_seconds: PassSeconds) -> None:
        queue.push([ticket()])
        lease = lease_one(queue, lease_seconds=60)
        queue.release([lease], 3)
        assert queue.lease(10, 30) == []
        pass_seconds(3)
        assert lease_one(queue).message_id == lease.message_id

    def test_a_delayed_ticket_comes_after_its_delay(self, queue: Queue, pass_seconds: PassSeconds) -> None:
        now, later = ticket(), ticket()
        queue.push([later], delay_seconds=3)
        queue.push([now])
        assert tickets_in(lease_all(queue)) == [now.ticket_id]
        pass_seconds(3)
        assert tickets_in(lease_all(queue)) == [later.ticket_id]

    @pytest.mark.parametrize("delay_seconds", [-5.0, 0.0])
    def test_a_delay_in_the_past_is_none(self, queue: Queue, delay_seconds: float) -> None:
        assert queue.push([ticket()], delay_seconds) == []
        lease = lease_one(queue)
        queue.release([lease], delay_seconds)
        assert lease_one(queue).message_id == lease.message_id

    @pytest.mark.parametrize("beyond", [1.0, 86_400.0, float("inf")])
    def test_a_delay_beyond_the_most_is_clipped_not_refused(self, queue: Queue, beyond: float) -> None:
        assert queue.push([ticket()], queue.max_delay_seconds + beyond) == []
        assert queue.lease(10, 30) == []
        assert queue.depth().delayed == 1

    def test_a_fraction_of_a_second_is_a_delay_too(self, queue: Queue, pass_seconds: PassSeconds) -> None:
        queue.push([ticket()], delay_seconds=0.5)
        assert queue.lease(10, 30) == []
        pass_seconds(1)
        assert len(queue.lease(10, 30)) == 1

    def test_a_lease_that_waits_takes_what_is_there(self, queue: Queue) -> None:
        queue.push([ticket()])
        assert len(queue.lease(10, 30, wait_seconds=1)) == 1

    def test_depth_tells_ready_leased_and_delayed_apart(self, queue: Queue) -> None:
        queue.push([ticket(), ticket(), ticket()])
        queue.push([ticket()], delay_seconds=60)
        assert len(queue.lease(1, 30)) == 1
        depth = queue.depth()
        assert (depth.ready, depth.leased, depth.delayed) == (2, 1, 1)
        assert depth.oldest_ready_seconds is None or 0 <= depth.oldest_ready_seconds < 60

    def test_stale_receipts_are_nobodys_error(self, queue: Queue, pass_seconds: PassSeconds) -> None:
        """C15: late, twice, and after somebody else has acknowledged."""
        queue.push([ticket()])
        stale = lease_one(queue, lease_seconds=1)
        pass_seconds(1)
        current = lease_one(queue)
        queue.acknowledge([current])
        queue.acknowledge([stale])
        queue.acknowledge([stale])
        queue.release([stale])
        queue.release([current], 5)
        assert queue.lease(10, 30) == []

    def test_a_message_that_is_gone_is_a_lost_lease(self, queue: Queue) -> None:
        queue.push([ticket(), ticket()])
        gone, held = lease_all(queue)
        queue.acknowledge([gone])
        assert queue.extend([gone, held], 30) == [gone]

    def test_empty_batches_are_no_calls(self, queue: Queue) -> None:
        queue.acknowledge([])
        queue.release([])
        assert queue.extend([], 30) == []


class ReceiptContract:
    """What only an exact engine keeps: a receipt is of one lease, and over when that is over.

    SQS promises none of it on a standard queue, and its emulators less: there the ledger alone decides.
    """

    @pytest.fixture
    def queue(self) -> Queue:
        """An empty queue of its own for each test."""
        raise NotImplementedError

    @pytest.fixture
    def pass_seconds(self) -> PassSeconds:
        """Lets this much of the queue's time pass, and a moment more."""
        raise NotImplementedError

    def test_a_lease_that_ended_is_lost_even_before_another_has_it(self, queue: Queue, pass_seconds: PassSeconds) -> None:
        queue.push([ticket()])
        lease = lease_one(queue, lease_seconds=2)
        pass_seconds(2)
        assert queue.extend([lease], 30) == [lease]
        assert lease_one(queue).deliveries == 2

    def test_an_older_receipt_cannot_touch_a_newer_lease(self, queue: Queue, pass_seconds: PassSeconds) -> None:
        """C15: before the newer owner is done."""
        queue.push([ticket()])
        older = lease_one(queue, lease_seconds=2)
        pass_seconds(2)
        newer = lease_one(queue, lease_seconds=2)
        assert queue.extend([older], 60) == [older]
        queue.acknowledge([older])
        queue.release([older])
        assert queue.lease(10, 30) == []
        pass_seconds(2)
        assert lease_one(queue).message_id == newer.message_id

    def test_a_receipt_nobody_was_given_does_nothing(self, queue: Queue) -> None:
        """C15"""
        queue.push([ticket()])
        lease = lease_one(queue)
        forged = Lease(lease.body, "forged", 1, lease.message_id, lease.queue)
        assert queue.extend([forged], 60) == [forged]
        queue.acknowledge([forged])
        queue.release([forged])
        assert queue.depth().leased == 1

    def test_a_lease_cannot_outlive_the_ceiling(self, queue: Queue, pass_seconds: PassSeconds) -> None:
        queue.push([ticket()])
        lease = lease_one(queue, lease_seconds=queue.max_lease_seconds)
        pass_seconds(queue.max_lease_seconds / 2)
        assert queue.extend([lease], queue.max_lease_seconds) == []
        pass_seconds(queue.max_lease_seconds / 2)
        assert lease_one(queue).message_id == lease.message_id
        assert queue.extend([lease], 30) == [lease]
