"""From the log to the queues: the prefix that is sent, what holds it, and what rests in the quarantine (C08, C10)."""

from __future__ import annotations

import base64
import gzip
from typing import Any

import pytest

from ringfence import App, Context
from ringfence.aws.events import reads_from_event
from ringfence.job import State
from ringfence.ports import LogEntry
from ringfence.relay import Read
from ringfence.testing.faults import Fault, Faulty, unavailable
from ringfence.testing.given import accepted_record
from ringfence.testing.system import MemorySystem
from ringfence.wire import decode_ticket, encode_records


def app() -> App:
    made = App()

    @made.job("noop")
    def noop(ctx: Context) -> None: ...

    return made


def system(port_name: str = "", *script: Fault) -> MemorySystem:
    def wrap(name: str, port: Any) -> Any:
        return Faulty(port, script) if name == port_name else port

    return MemorySystem(app(), wrap=wrap)


def tickets(here: MemorySystem, queue: str = "default") -> list[str]:
    return [decode_ticket(body).job_id for body in here.memory_queues[queue].bodies()]


def submitted(here: MemorySystem, count: int, **more: Any) -> list[str]:
    return [here.submit("noop", **more).job_id for _ in range(count)]


def test_every_job_gets_a_ticket_in_the_order_of_the_log() -> None:
    here = system()
    job_ids = submitted(here, 25)
    assert here.run_relay() is None
    assert tickets(here) == job_ids


POISON = {
    "invalid base64": {"data": "@@@", "reason": "base64"},
    "gzip": {"data": base64.b64encode(gzip.compress(b"{}")).decode(), "reason": "gzip"},
    "invalid UTF-8": {"data": base64.b64encode(b'{"v":1,"jobs":["\xff"]}').decode(), "reason": "not a log record"},
    "an array": {"data": base64.b64encode(b"[]").decode(), "reason": "not a log record"},
    "no job id": {"data": base64.b64encode(b'{"v":1,"jobs":[{}]}').decode(), "reason": "job_id"},
    "a future version": {"data": base64.b64encode(b'{"v":99,"jobs":[]}').decode(), "reason": "version 99"},
    "KPL bytes": {"data": base64.b64encode(b"\xf3\x89\x9a\xc2\n").decode(), "reason": "Producer Library"},
    "empty": {"data": "", "reason": "empty"},
}


@pytest.mark.parametrize("poison", POISON.values(), ids=POISON.keys())
def test_c08_one_bad_record_among_a_hundred_rests_in_the_quarantine_and_99_go_on(poison: dict[str, str]) -> None:
    here = system()
    job_ids = submitted(here, 99)
    good = [
        {
            "kinesis": {"sequenceNumber": read.sequence, "data": base64.b64encode(read.data).decode()},
            "eventID": f"shardId-7:{read.sequence}",
        }
        for read in here.memory_log.read()
    ]
    bad = {"kinesis": {"sequenceNumber": "55", "data": poison["data"]}, "eventID": "shardId-7:55"}
    reads = reads_from_event({"Records": [*good[:50], bad, *good[50:]]})
    assert here.relay.handle(reads) is None
    assert tickets(here) == job_ids
    (kept,) = here.quarantine.items()
    assert (kept.source, kept.position) == ("log:shardId-7", "55")
    assert poison["reason"] in kept.reason
    assert kept.data in (poison["data"].encode(), base64.b64decode(poison["data"], validate=False))


def test_c10_only_what_was_not_taken_is_read_again() -> None:
    here = system("queue:default", unavailable("push", call=2))
    job_ids = submitted(here, 250)
    unsent = here.run_relay()
    assert unsent == here.memory_log.read()[100].sequence
    assert tickets(here) == job_ids[:100]
    assert here.run_relay() is None
    assert tickets(here) == job_ids


def test_c10_a_ticket_refused_by_itself_names_its_own_record() -> None:
    taken: list[Any] = []

    class Picky:
        name = "default"

        def push(self, pushed: Any, delay_seconds: float = 0.0) -> list[Any]:
            taken.extend(pushed[:12] + pushed[13:])
            return [pushed[12]]

    here = MemorySystem(app(), wrap=lambda name, port: Picky() if name == "queue:default" else port)
    submitted(here, 25)
    assert here.run_relay() == here.memory_log.read()[12].sequence


def test_c10_two_records_of_one_job_are_two_tickets_and_one_run() -> None:
    here = system()
    (job_id,) = submitted(here, 1)
    (record,) = here.memory_log.read()
    here.memory_log.append([LogEntry(record.data, "again")])
    assert here.run_relay() is None
    assert tickets(here) == [job_id, job_id]
    while here.memory_queues["default"].bodies():
        here.run_worker()
        here.clock.sleep(60)
    assert (here.job(job_id).state, here.job(job_id).token) == (State.SUCCEEDED, 1)


def test_another_queue_that_fails_does_not_hide_the_earlier_record() -> None:
    here = system("queue:priority", unavailable("push"))
    submitted(here, 3)
    submitted(here, 1, queue="priority")
    submitted(here, 3)
    assert here.run_relay() == here.memory_log.read()[3].sequence


def test_a_quarantine_out_of_reach_holds_the_log_and_sends_what_came_before() -> None:
    here = MemorySystem(app())
    job_ids = submitted(here, 2)
    reads = here.memory_log.read()
    here.quarantine = Faulty(here.quarantine, [unavailable("put")])  # type: ignore[assignment]
    here.build()
    poison = Read(b"", "99", "shard-1")
    assert here.relay.handle([*reads, poison]) == "99"
    assert tickets(here) == job_ids
    assert here.relay.handle([poison]) is None


def test_an_unregistered_job_is_registered_before_its_ticket_is_pushed() -> None:
    here = system("ledger", unavailable("register", call=1), unavailable("register", call=2))
    job = here.submit("noop")
    assert here.run_relay() == here.memory_log.read()[0].sequence
    assert tickets(here) == []
    assert here.run_relay() is None
    assert tickets(here) == [job.job_id]
    assert here.job(job.job_id).state is State.QUEUED


def test_a_delay_travels_with_the_ticket_and_a_long_one_is_left_to_the_timers() -> None:
    here = system()
    near, far = here.submit("noop", delay_seconds=60.5), here.submit("noop", delay_seconds=3_600)
    here.run_relay()
    assert tickets(here) == [near.job_id]
    assert here.memory_queues["default"].depth().delayed == 1
    here.clock.sleep(60.0)
    assert here.memory_queues["default"].lease(1, 30) == []
    here.clock.sleep(1.0)
    assert len(here.memory_queues["default"].lease(1, 30)) == 1
    assert here.job(far.job_id).due_id is not None


def test_a_job_for_a_queue_that_is_gone_is_dead_with_the_reason_and_the_rest_goes_on() -> None:
    here = system()
    record = accepted_record("noop", job_id="lost", queue="gone", created_at=here.clock.now())
    ((data, _),) = encode_records([record])
    here.memory_log.append([LogEntry(data, "k")])
    good = here.submit("noop")
    assert here.run_relay() is None
    assert tickets(here) == [good.job_id]
    dead = here.job("lost")
    assert (dead.state, dead.error) == (State.DEAD, "there is no queue 'gone'")
    assert here.quarantine.items()[0].job_id == "lost"
