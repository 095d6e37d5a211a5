"""Everything later: due marks become tickets, once the push is in; and the last resort is drained."""

from __future__ import annotations

from ringfence import App, Context
from ringfence.job import State
from ringfence.testing.faults import Faulty, unavailable
from ringfence.testing.system import MemorySystem
from ringfence.wire import Ticket, decode_ticket, encode_ticket


def app() -> App:
    made = App()

    @made.job("noop")
    def noop(ctx: Context) -> None: ...

    return made


def scheduled(here: MemorySystem, delay_seconds: float = 3_600) -> str:
    job_id = here.submit("noop", delay_seconds=delay_seconds).job_id
    here.run_relay()
    return job_id


def test_nothing_is_released_before_its_time_and_everything_at_it() -> None:
    here = MemorySystem(app())
    job_id = scheduled(here)
    here.clock.sleep(3_599)
    assert here.timers.run()["released"] == 0
    here.clock.sleep(1)
    assert here.timers.run()["released"] == 1
    released = here.job(job_id)
    assert (released.state, released.due_id) == (State.QUEUED, None)
    assert here.timers.run()["released"] == 0
    here.run_worker()
    assert here.job(job_id).state is State.SUCCEEDED


def test_a_push_that_fails_leaves_the_mark_for_the_next_run() -> None:
    here = MemorySystem(app(), wrap=lambda name, port: Faulty(port, [unavailable("push")]) if name == "queue:default" else port)
    job_id = scheduled(here)
    here.clock.sleep(3_600)
    assert here.timers.run()["released"] == 0
    assert here.job(job_id).due_id is not None
    assert here.timers.run()["released"] == 1


def test_a_claim_before_the_mark_is_cleared_leaves_it_and_the_second_ticket_is_harmless() -> None:
    here = MemorySystem(app())
    job_id = scheduled(here)
    here.clock.sleep(3_600)
    early_ticket = Ticket(ticket_id="stray", job_id=job_id, tenant="default", name="noop")
    here.queues["default"].push([early_ticket])
    here.run_worker()
    assert here.job(job_id).state is State.SUCCEEDED
    assert here.job(job_id).due_id is None
    assert here.timers.run()["released"] == 0


def test_an_unfinished_job_in_the_last_resort_gets_a_new_ticket_and_an_ended_one_does_not() -> None:
    here = MemorySystem(app())
    waiting, ended = here.submit("noop").job_id, here.submit("noop").job_id
    here.gateway.cancel("default", ended)
    for job_id in (waiting, ended, "unknown"):
        here.last_resort.put(encode_ticket(Ticket(ticket_id="old", job_id=job_id, tenant="default")))
    here.last_resort.put("hello")
    assert here.timers.run()["drained"] == 4
    (body,) = here.memory_queues["default"].bodies()
    assert decode_ticket(body).job_id == waiting
    assert decode_ticket(body).ticket_id != "old"
    assert [kept.data for kept in here.quarantine.items()] == [b"hello"]
    assert here.last_resort.bodies() == []
