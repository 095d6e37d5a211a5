"""Everything later: due marks become tickets, once the push is in; and the last resort is drained."""

from __future__ import annotations

import dataclasses

import pytest

from ringfence import App, Context
from ringfence.errors import Unavailable
from ringfence.ids import shard_of
from ringfence.job import State
from ringfence.memory.clock import ManualClock
from ringfence.memory.queue import MemoryQueue
from ringfence.ports import DUE_SHARDS
from ringfence.testing.faults import Faulty, unavailable
from ringfence.testing.system import MemorySystem
from ringfence.timers import LOOK_AHEAD_SECONDS
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


def test_a_ticket_is_pushed_by_the_run_before_its_time_and_is_visible_at_it() -> None:
    here = MemorySystem(app())
    job_id = scheduled(here)
    here.clock.sleep(3_600 - LOOK_AHEAD_SECONDS - 1)
    assert here.timers.run()["released"] == 0
    here.clock.sleep(1)
    assert here.timers.run()["released"] == 1
    released = here.job(job_id)
    assert (released.state, released.due_id) == (State.QUEUED, None)
    assert here.timers.run()["released"] == 0
    here.clock.sleep(LOOK_AHEAD_SECONDS - 1)
    assert here.run_worker() == 0
    here.clock.sleep(1)
    assert here.run_worker() == 1
    assert here.job(job_id).state is State.SUCCEEDED


MINUTE_SECONDS = 60


@pytest.mark.parametrize("delay_seconds", [-7_200, 0, 899, 900, 901, 3_600, 46_800])
def test_c12_a_job_for_any_time_starts_once_and_within_the_minute_and_meanwhile_holds_nothing(delay_seconds: int) -> None:
    """With timers that run once a minute, and a worker that looks each second for as long as it matters."""
    started: list[int] = []
    clock, made = ManualClock(), App()
    made.job("noop")(lambda ctx: started.append(clock.now()))
    here = MemorySystem(made, clock=clock, wrap=lambda name, port: Faulty(port, []) if name == "queue:default" else port)
    asked = here.queues["default"]
    due = clock.now() + delay_seconds * 1_000
    here.submit("noop", run_at=due)
    here.run_relay()
    for second in range(max(0, delay_seconds) + 3 * MINUTE_SECONDS):
        if second % MINUTE_SECONDS == 0:
            here.timers.run()
            assert started or here.memory_queues["default"].depth().leased == 0
        if second > delay_seconds - MINUTE_SECONDS:
            here.run_worker()
        here.clock.sleep(1)
    assert len(started) == 1
    assert due <= started[0] <= max(due, due - delay_seconds * 1_000) + 1_000
    delays = [call.args[1] for call in asked.calls_of("push")]
    assert all(0 <= each <= 900 for delay in delays for each in ([delay] if isinstance(delay, int | float) else delay))


def test_a_push_that_fails_leaves_the_mark_for_the_next_run() -> None:
    here = MemorySystem(app(), wrap=lambda name, port: Faulty(port, [unavailable("push")]) if name == "queue:default" else port)
    job_id = scheduled(here)
    here.clock.sleep(3_600)
    assert here.timers.run()["released"] == 0
    assert here.job(job_id).due_id is not None
    assert here.timers.run()["released"] == 1


def test_a_claim_leaves_the_mark_alone_and_the_ticket_it_brings_finds_the_job_held_then_finished() -> None:
    beside: list[int] = []

    def during(ctx: Context) -> None:
        beside.append(here.timers.run()["released"])

    made = App()
    made.job("noop")(during)
    here = MemorySystem(made)
    job_id = scheduled(here)
    here.clock.sleep(3_600)
    stray = Ticket(ticket_id="stray", job_id=job_id, tenant="default", name="noop")
    here.queues["default"].push([stray])
    here.run_worker()
    row = here.job(job_id)
    assert (beside, row.state, row.token, row.due_id) == ([1], State.SUCCEEDED, 1, None)
    here.run_worker()
    assert here.memory_queues["default"].bodies() == []
    assert here.job(job_id).token == 1


def test_rows_of_a_queue_that_is_gone_are_dead_and_stand_in_nobodys_way() -> None:
    here = MemorySystem(app())
    good = scheduled(here)
    later = dataclasses.replace(here.job(good), queue="gone", run_at=here.clock.now())
    for number in range(2_000):
        here.ledger.register(dataclasses.replace(later, job_id=f"gone{number}", write_id="w"))
    here.clock.sleep(3_600)
    assert here.timers.run()["released"] == 1
    assert here.job(good).state is State.QUEUED
    dead = here.job("gone7")
    assert (dead.state, dead.error, dead.due_id) == (State.DEAD, "there is no queue 'gone'", None)


def test_a_queue_that_takes_nothing_stands_in_nobodys_way() -> None:
    stuck = Faulty(MemoryQueue("priority"), [unavailable("push", call=None)])
    here = MemorySystem(app(), wrap=lambda name, port: stuck if name == "queue:priority" else port)
    for _ in range(1_500):
        here.submit("noop", queue="priority", delay_seconds=1_000)
    good = here.submit("noop", delay_seconds=2_000).job_id
    here.clock.sleep(2_000)
    assert here.timers.run()["released"] == 1
    assert here.job(good).state is State.QUEUED


def test_an_invocation_that_ends_leaves_the_rest_to_the_next() -> None:
    here = MemorySystem(app())
    scheduled(here)
    here.clock.sleep(3_600)
    assert here.timers.run(lambda: 5.0) == {"released": 0, "drained": 0, "renewed": 0}
    assert here.timers.run(lambda: 50.0)["released"] == 1


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


def test_a_job_without_a_row_that_ends_in_the_last_resort_is_kept_in_the_quarantine() -> None:
    here = MemorySystem(app())
    carried = Ticket(
        ticket_id="old", job_id="carried", tenant="default", name="noop", payload="{}", max_attempts=5, created_at=1
    )
    here.last_resort.put(encode_ticket(carried))
    assert here.timers.run()["drained"] == 1
    (kept,) = here.quarantine.items()
    assert (kept.job_id, kept.data.decode()) == ("carried", encode_ticket(carried))
    assert (here.last_resort.bodies(), here.memory_queues["default"].bodies()) == ([], [])


def test_one_throttled_shard_does_not_keep_the_others_waiting_and_is_told_at_the_end() -> None:
    throttled = [unavailable("due", call=None, where=lambda shard, *_: shard == 0)]
    here = MemorySystem(app(), wrap=lambda name, port: Faulty(port, throttled) if name == "ledger" else port)
    jobs = [scheduled(here) for _ in range(40)]
    here.clock.sleep(3_600)
    with pytest.raises(Unavailable):
        here.timers.run()
    waiting = [job_id for job_id in jobs if here.job(job_id).due_id is not None]
    assert waiting == [job_id for job_id in jobs if shard_of(job_id, DUE_SHARDS) == 0]


def test_how_queues_stand_that_cloudwatch_does_not_know_is_told_once_a_minute() -> None:
    here = MemorySystem(
        app(), wrap=lambda name, port: Faulty(port, [unavailable("depth")]) if name == "queue:priority" else port
    )
    for delay_seconds in (0, 0, 600):
        scheduled(here, delay_seconds)
    here.queues["default"].lease(1, 900)
    here.clock.sleep(45)
    for _ in range(59):
        here.timers.run()
        here.clock.sleep(1)
    told = here.telemetry.named("queue_depth")
    assert told[0] == {"queue": "default", "ready": 1, "leased": 1, "delayed": 1, "oldest_ready_seconds": 45.0}
    assert [each["queue"] for each in told] == ["default", "default", "priority"], "what cannot be asked is asked next time"
    assert here.telemetry.named("timers_held") == []
