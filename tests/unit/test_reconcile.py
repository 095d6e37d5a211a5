"""Jobs without a ticket get one: what a queue has lost, soon; what nobody noticed, in a round; and nothing is harmed by it."""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from ringfence import App, Context, Retry, reconcile, transitions
from ringfence.acceptance import Accepted, Submission
from ringfence.errors import Unavailable
from ringfence.job import Job, PastAttempt, State
from ringfence.patience import PATIENCE_SECONDS
from ringfence.reconcile import AFTER_HOURS, EVERY_HOURS, TAKES_NONE, UNKNOWN_QUEUE, Found
from ringfence.renewal import last_change, renewals_due
from ringfence.testing.faults import Call, Crash, Fault, Faulty, crash, reply_lost, unavailable
from ringfence.testing.system import MemorySystem
from ringfence.wire import Ticket, decode_ticket

HOUR = 3_600.0
DAY = 24 * HOUR


def app(during: Callable[[Context], None] = lambda _ctx: None) -> App:
    made = App()

    @made.job("noop")
    def noop(ctx: Context) -> None:
        during(ctx)

    @made.job("fails_once")
    def fails_once(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise Retry("again", after_seconds=300)

    return made


class System(MemorySystem):
    """One that has been running for a while: the marks of its queues are known, and a first round is over."""

    def __init__(self, **ports: list[Fault]) -> None:
        """With faults in front of the ports that are named, ``queue_default`` and the like for the queues. They are counted
        from now on, and only while it is ``armed``."""
        self.armed = False
        scripts = {name.replace("_", ":"): [self._if_armed(fault) for fault in script] for name, script in ports.items()}
        super().__init__(app(), wrap=lambda name, port: Faulty(port, scripts[name]) if name in scripts else port)
        self.timers.run()
        self.armed = True

    def _if_armed(self, fault: Fault) -> Fault:
        return dataclasses.replace(fault, where=lambda *_, **__: self.armed)


def submitted(here: MemorySystem, count: int = 1, queue: str = "default", name: str = "noop") -> list[str]:
    """Jobs whose tickets are in the queue."""
    answers = here.gateway.submit("default", [Submission(name=name, payload="{}", queue=queue)] * count)
    assert here.run_relay() is None
    return [answer.job.job_id for answer in answers if isinstance(answer, Accepted)]


def tickets(here: MemorySystem, queue: str = "default") -> Counter[str]:
    return Counter(decode_ticket(body).job_id for body in here.memory_queues[queue].bodies())


def work(here: MemorySystem, queue: str = "default") -> None:
    while here.run_worker(queue=queue):
        pass


def purge(here: MemorySystem, queue: str = "default") -> None:
    """Somebody takes the tickets out of the queue, and its mark stays."""
    here.memory_queues[queue].acknowledge(here.memory_queues[queue].lease(10**6, 30))


def states(here: MemorySystem, job_ids: list[str]) -> set[State]:
    return {here.job(job_id).state for job_id in job_ids}


# --- how long it has waited --------------------------------------------------------------------------------------------


def row(**fields: Any) -> Job:
    defaults: dict[str, Any] = {"state": State.QUEUED, "payload": "{}", "payload_sha256": "", "created_at": 100}
    return Job(job_id="a", tenant="t", queue="default", name="noop", **{**defaults, **fields})


@pytest.mark.parametrize(
    ("job", "changed"),
    [
        (row(), 100),
        (row(run_at=500), 500),
        (row(state=State.RUNNING, started_at=300, lease_until=900), 900),
        (row(started_at=300, history=(PastAttempt(1, 300, 700, "retry"),)), 700),
        (row(started_at=300, run_at=800, history=(PastAttempt(1, 300, 700, "retry"),)), 800),
    ],
)
def test_a_lease_and_a_delay_explain_the_wait_until_their_end(job: Job, changed: int) -> None:
    assert last_change(job) == changed


def test_another_ticket_is_due_with_each_doubling_of_the_wait() -> None:
    assert [renewals_due(hours, 25) for hours in (-5, 0, 24, 25, 49, 50, 99, 100, 336)] == [0, 0, 0, 1, 1, 2, 2, 3, 4]


# --- a round -----------------------------------------------------------------------------------------------------------


def test_a_job_whose_ticket_nobody_noticed_to_be_lost_runs_after_a_round() -> None:
    here = System()
    job_ids = submitted(here, 3)
    purge(here)
    here.clock.sleep(AFTER_HOURS * HOUR - 1)
    assert here.timers.run()["renewed"] == 0
    here.clock.sleep(EVERY_HOURS * HOUR)
    assert here.timers.run()["renewed"] == 3
    work(here)
    assert states(here, job_ids) == {State.SUCCEEDED}


def test_a_registered_job_that_was_never_appended_may_run() -> None:
    here = System(log=[crash("append", when="before")])
    with pytest.raises(Crash):
        here.gateway.submit("default", [Submission(name="noop", payload="{}")])
    here.build()
    (never_appended,) = here.memory_ledger.all_jobs()
    assert (never_appended.state, never_appended.token) == (State.QUEUED, 0)
    here.clock.sleep(2 * DAY)
    here.timers.run()
    work(here)
    assert here.job(never_appended.job_id).state is State.SUCCEEDED


def test_c15_a_ticket_that_a_late_owner_has_deleted_is_pushed_again() -> None:
    """As SQS may do for a stale receipt, under the newer owner, who then dies: the job is in the ledger."""

    def during(ctx: Context) -> None:
        if ctx.token < 3:
            raise Crash

    here = MemorySystem(app(during))
    here.timers.run()
    (job_id,) = submitted(here)
    queue = here.memory_queues["default"]
    for _ in ("the first owner sleeps on", "the newer one dies"):
        here.clock.sleep(31)
        leases = queue.lease(1, 30)
        with pytest.raises(Crash):
            here.worker().handle(queue, leases)
    queue.acknowledge(leases)
    assert tickets(here) == {}
    here.clock.sleep(2 * DAY)
    assert here.timers.run()["renewed"] == 1
    work(here)
    assert (here.job(job_id).state, here.job(job_id).token) == (State.SUCCEEDED, 3)


@pytest.mark.parametrize("dies_at", [None, "unmarked", "due", "write"])
def test_c21_leases_of_a_killed_worker_end_by_themselves_whatever_has_become_of_the_timers(dies_at: str | None) -> None:
    """There is no reaper, and no lock that somebody could die with."""
    alive: list[bool] = []

    def during(_ctx: Context) -> None:
        if not alive:
            raise Crash

    script = [] if dies_at is None else [crash(dies_at, when="before", call=None, where=lambda *_, **__: timers_run)]
    timers_run = False
    here = MemorySystem(app(during), wrap=lambda name, port: Faulty(port, script) if name == "ledger" else port)
    job_ids = submitted(here, 5)
    here.submit("noop", delay_seconds=3_600)
    with pytest.raises(Crash):
        here.run_worker()
    alive.append(True)
    timers_run = True
    with suppress(Crash):
        here.timers.run()
    timers_run = False
    assert here.run_worker() == 0
    here.clock.sleep(31)
    work(here)
    assert states(here, job_ids) == {State.SUCCEEDED}
    assert sorted(here.job(job_id).token for job_id in job_ids) == [1, 1, 1, 1, 2]


def test_a_round_comes_once_a_day_and_leaves_alone_what_has_no_need_of_it() -> None:
    here = System()
    waiting, ended = submitted(here), submitted(here)
    here.gateway.cancel("default", *ended)
    far = here.submit("noop", delay_seconds=30 * DAY).job_id
    purge(here)
    for _ in range(3):
        here.clock.sleep(2 * DAY)
        submitted(here)
        before = here.clock.now()
        here.timers.run()
        here.timers.run()
        assert here.clock.now() == before
    assert [event["examined"] for event in here.telemetry.named("round_finished")] == [0, 4, 5, 6]
    assert tickets(here)[waiting[0]] >= 1
    assert tickets(here).keys().isdisjoint({*ended, far})


def test_a_queue_that_nobody_serves_does_not_fill_up_with_duplicates() -> None:
    here = System()
    (job_id,) = submitted(here)
    for _ in range(14):
        here.clock.sleep(DAY)
        here.timers.run()
    assert tickets(here) == {job_id: 5}


def test_a_job_of_a_queue_that_is_gone_is_dead_with_the_reason() -> None:
    here = System()
    (job_id,) = submitted(here, queue="priority")
    here.queues.pop("priority")
    here.build()
    here.clock.sleep(2 * DAY)
    here.timers.run()
    assert (here.job(job_id).state, here.job(job_id).error) == (State.DEAD, "there is no queue 'priority'")


def test_what_a_queue_did_not_take_waits_for_the_next_round_and_keeps_nobody_waiting() -> None:
    here = System(queue_priority=[unavailable("push", call=2)])
    (missed,), (other,) = submitted(here, queue="priority"), submitted(here)
    purge(here)
    purge(here, "priority")
    here.clock.sleep(2 * DAY)
    assert here.timers.run()["renewed"] == 1
    assert (tickets(here), tickets(here, "priority")) == ({other: 1}, {})
    assert here.telemetry.named("round_finished")[-1]["missed"] == 1
    here.clock.sleep(DAY)
    here.timers.run()
    assert tickets(here, "priority") == {missed: 1}


# --- a memory that was lost --------------------------------------------------------------------------------------------


def test_what_is_new_has_lost_nothing() -> None:
    here = MemorySystem(app())
    here.timers.run()
    here.timers.run()
    assert here.telemetry.named("repair_started") == []
    assert here.sweeps.read().marks == {"default": "1/0", "priority": "1/0"}


@pytest.mark.parametrize(("lost", "what"), [(None, "everything"), (3, "perhaps the last writes")])
def test_a_queue_that_lost_its_memory_is_noticed_and_every_job_of_it_ends_once(lost: int | None, what: str) -> None:
    here = System()
    done, beside = submitted(here, 5), submitted(here, 5, queue="priority")
    work(here)
    job_ids = submitted(here, 500)
    here.memory_queues["default"].lose(lost)
    assert here.timers.run()["renewed"] == 500
    assert tickets(here).keys() == set(job_ids)
    assert set(tickets(here, "priority").values()) == {1}
    assert [(each["queue"], each["lost"]) for each in here.telemetry.named("repair_started")] == [("default", what)]
    assert len(here.telemetry.named("queue_memory_lost")) == (what == "everything")
    (finished,) = here.telemetry.named("repair_finished")
    assert (finished["queues"], finished["renewed"], finished["examined"]) == ("default", 500, 510)
    work(here)
    work(here, "priority")
    assert states(here, [*done, *beside, *job_ids]) == {State.SUCCEEDED}
    assert {here.job(job_id).token for job_id in [*done, *beside, *job_ids]} == {1}
    assert here.timers.run()["renewed"] == 0


def test_a_job_that_runs_meanwhile_is_not_harmed_and_its_second_ticket_finds_it_ended() -> None:
    here = System()
    seen: list[tuple[int, Counter[str]]] = []

    def lose_and_repair(ctx: Context) -> None:
        here.memory_queues["default"].lose()
        here.timers.run()
        beside = here.run_worker(here.worker("worker-b"))
        seen.append((beside, tickets(here)))

    here.app = app(lose_and_repair)
    (job_id,) = submitted(here)
    here.run_worker()
    assert seen == [(1, Counter({job_id: 1}))], "held, so put back"
    here.clock.sleep(60)
    work(here)
    job = here.job(job_id)
    assert (job.state, job.token, job.attempts, tickets(here)) == (State.SUCCEEDED, 1, 1, {})


def test_a_job_whose_worker_died_with_the_queue_is_taken_over() -> None:
    here = System(ledger=[])
    (job_id,) = submitted(here)
    here.app = app(lambda _ctx: crash("", when="before").act(Call("job", (), {})))
    with pytest.raises(Crash):
        here.run_worker()
    assert here.job(job_id).state is State.RUNNING
    here.memory_queues["default"].lose()
    here.timers.run()
    here.app = app()
    for _ in range(4):
        here.clock.sleep(30)
        work(here)
    assert (here.job(job_id).state, here.job(job_id).token) == (State.SUCCEEDED, 2)


def test_a_retry_whose_delayed_ticket_was_lost_does_not_come_early() -> None:
    here = System()
    (job_id,) = submitted(here, name="fails_once")
    here.run_worker()
    run_at = here.job(job_id).run_at
    assert run_at is not None
    assert run_at >= here.clock.now() + 300_000
    here.memory_queues["default"].lose()
    here.timers.run()
    assert here.run_worker() == 0
    here.clock.sleep((run_at - here.clock.now()) / 1000 - 1)
    assert here.run_worker() == 0
    here.clock.sleep(1)
    assert here.run_worker() == 1
    assert here.job(job_id).state is State.SUCCEEDED


def test_of_two_that_are_lost_the_one_that_takes_no_tickets_does_not_hold_up_the_other() -> None:
    here = System(queue_priority=[unavailable("push", call=None)])
    here.armed = False
    urgent, others = submitted(here, 30, queue="priority"), submitted(here, 30)
    for queue in here.memory_queues.values():
        queue.lose()
    here.armed = True
    assert here.timers.run(lambda: 50.0, linger=True)["renewed"] == 30
    assert tickets(here).keys() == set(others)
    (left,) = here.sweeps.read().repairs
    assert left.queues == ["priority"]
    here.armed = False
    assert here.timers.run()["renewed"] == 30
    assert tickets(here, "priority") == dict.fromkeys(urgent, 1)
    assert here.sweeps.read().repairs == []


def test_a_queue_out_of_reach_keeps_its_old_mark_and_is_asked_again() -> None:
    here = System(queue_default=[unavailable("memory_mark")])
    (job_id,) = submitted(here)
    here.memory_queues["default"].lose()
    assert here.timers.run()["renewed"] == 0
    assert here.timers.run()["renewed"] == 1
    assert tickets(here) == {job_id: 1}


# --- at the pace of the queue ------------------------------------------------------------------------------------------


def test_a_high_water_mark_holds_for_renewed_tickets_too() -> None:
    here = System()
    job_ids = submitted(here, 300)
    here.memory_queues["default"].lose()
    here.queue_settings.change("default", {"high_water_mark": 40})
    here.clock.sleep(5)
    deepest = 0
    for _ in range(30):
        here.timers.run()
        deepest = max(deepest, sum(tickets(here).values()))
        work(here)
        here.clock.sleep(1)
    assert deepest == 40
    assert states(here, job_ids) == {State.SUCCEEDED}


def test_a_rate_holds_for_renewed_tickets_too() -> None:
    here = System()
    job_ids = submitted(here, 150)
    here.memory_queues["default"].lose()
    here.queue_settings.change("default", {"rate_per_second": 1.0})
    here.clock.sleep(5)
    assert here.timers.run()["renewed"] == 150
    assert sum(tickets(here).values()) <= 122, "no further ahead than the horizon"
    ended = []
    for _ in range(160):
        work(here)
        ended.append(sum(here.job(job_id).state is State.SUCCEEDED for job_id in job_ids))
        here.clock.sleep(1)
        here.timers.run()
    assert ended[99] <= 102
    assert ended[-1] == 150


def test_a_pause_holds_for_renewed_tickets_too() -> None:
    here = System()
    job_ids = submitted(here, 10)
    here.queue_settings.change("default", {"paused": True})
    here.clock.sleep(5)
    here.memory_queues["default"].lose()
    here.timers.run()
    assert tickets(here) == {}
    here.queue_settings.change("default", {"paused": False})
    here.clock.sleep(5)
    here.timers.run()
    work(here)
    assert states(here, job_ids) == {State.SUCCEEDED}


def test_who_stands_in_line_in_a_group_keeps_the_place_there_and_gets_no_other() -> None:
    here = System()
    here.queue_settings.change("default", {"rate_per_second": 1.0})
    here.clock.sleep(5)
    job_ids = submitted(here, 300)
    pushed = len(tickets(here))
    here.memory_queues["default"].lose()
    here.timers.run()
    (first, *_) = here.memory_ledger.groups("default", 10)
    assert [job_id for job_id, _ in first.waiting] == job_ids[pushed:][: len(first.job_ids)]
    marked = [job.job_id for job in here.memory_ledger.line("default", 1_000)]
    assert sorted(marked) == sorted(job_ids[:pushed]), "whose tickets were lost: they stand behind the others now"
    assert [each["count"] for each in here.telemetry.named("tickets_renewed")] == [pushed]
    assert here.reconciler.at_once(None, 0, dry_run=True) == {}


def test_who_left_a_group_just_before_the_loss_gets_another_ticket() -> None:
    here = System()
    here.queue_settings.change("default", {"high_water_mark": 10})
    here.clock.sleep(5)
    job_ids = submitted(here, 60)
    here.memory_queues["default"].lose()
    here.clock.sleep(2)
    here.timers.run()  # this repair has looked at the groups
    here.clock.sleep(2)
    work(here)
    here.timers.run()
    assert len(tickets(here)) == 10
    here.memory_queues["default"].lose()
    here.timers.run()
    for _ in range(8):
        here.clock.sleep(2)
        work(here)
        here.timers.run()
    assert states(here, job_ids) == {State.SUCCEEDED}


def test_who_was_claimed_while_standing_in_a_group_is_not_waiting_there() -> None:
    """By a second ticket. Its turn in line brings nothing, so if it is lost after that it must get one."""
    here = System()
    here.queue_settings.change("default", {"high_water_mark": 1})
    here.clock.sleep(5)
    job_ids = submitted(here, 30, name="fails_once")
    here.queues["default"].push([Ticket(ticket_id="second", job_id=job_ids[7], tenant="default")])
    here.run_worker()
    assert (here.job(job_ids[7]).token, here.job(job_ids[7]).due_id) == (1, None)
    here.memory_queues["default"].lose()
    here.timers.run()
    here.queue_settings.change("default", {"high_water_mark": 1_000})
    for _ in range(4):
        here.clock.sleep(400)
        here.timers.run()
        work(here)
    assert states(here, job_ids) == {State.SUCCEEDED}


def test_a_job_that_changes_while_it_is_parked_is_looked_at_again() -> None:
    """A heartbeat gets in first and the mark is refused: were that the end of it, the job had neither mark nor ticket."""
    ids = (f"beat{number}" for number in itertools.count())

    def beat(_call: Call) -> None:
        job = here.job(job_id)
        here.memory_ledger.write(
            transitions.heartbeat(job, write_id=next(ids), lease_until=here.clock.now() + 30_000, progress=None)
        )

    here = System(ledger=[Fault(method="write_many", act=beat, when="before", call=1)])
    here.app = app(lambda _ctx: crash("", when="before").act(Call("job", (), {})))
    (job_id,) = submitted(here)
    with pytest.raises(Crash):
        here.run_worker()
    here.queue_settings.change("default", {"paused": True})
    here.clock.sleep(5)
    here.memory_queues["default"].lose()
    version = here.job(job_id).version
    here.timers.run()
    job = here.job(job_id)
    assert (job.version, job.state, job.in_line) == (version + 2, State.RUNNING, True)


# --- in many runs, some of which die -----------------------------------------------------------------------------------


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reconcile, "PAGE_ROWS", 3)


class Turns:
    """``remaining_seconds`` of an invocation that has time for so many questions."""

    def __init__(self, questions: int) -> None:
        self.left = questions

    def __call__(self) -> float:
        self.left -= 1
        return 60.0 if self.left > 0 else 0.0


@pytest.mark.usefixtures("small_pages")
def test_a_repair_goes_on_where_the_last_run_ended() -> None:
    here = System(ledger=[])
    job_ids = submitted(here, 100)
    here.memory_queues["default"].lose()
    runs = 0
    while (runs := runs + 1) < 50 and not here.telemetry.named("repair_finished"):
        here.build()  # a fresh process each time: all it knows is in the ledger
        here.timers.run(Turns(15))
    assert runs > 2
    assert tickets(here) == dict.fromkeys(job_ids, 1), "nothing is done twice if nobody dies"
    pages = [call.args[:3] for call in here.ledger.calls_of("unmarked")]
    assert len(set(pages)) == len(pages) - 8, "the first page of each segment was read in the round before"


@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("method", ["replace", "push", "unmarked"])
def test_c21_wherever_a_run_dies_the_next_ones_finish_the_repair(method: str, when: Any) -> None:
    port = {"replace": "sweeps", "push": "queue_default", "unmarked": "ledger"}[method]
    for call in (1, 2, 3):
        here = System(**{port: [crash(method, when=when, call=call)]})
        here.armed = False
        job_ids = submitted(here, 80)
        here.memory_queues["default"].lose()
        here.armed = True
        with pytest.raises(Crash):
            here.timers.run()
        here.build()
        here.timers.run()
        assert tickets(here).keys() == set(job_ids)
        assert here.sweeps.read().repairs == []


@pytest.mark.usefixtures("small_pages")
def test_c21_two_runs_at_once_are_as_good_as_one() -> None:
    """Another run goes through everything while this one holds a page in its hands."""
    other: list[MemorySystem] = []

    def run_beside(_call: Call) -> None:
        if len(other) == 0:
            other.append(here)
            here.build()
            here.timers.run()

    here = System(ledger=[Fault(method="unmarked", act=run_beside, when="after", call=12)])
    job_ids = submitted(here, 60)
    here.memory_queues["default"].lose()
    here.timers.run()
    assert len(other) == 1
    assert tickets(here).keys() == set(job_ids)
    assert max(tickets(here).values()) == 2
    assert here.sweeps.read().repairs == []


@pytest.mark.usefixtures("small_pages")
def test_notes_whose_reply_was_lost_cost_second_tickets_at_most() -> None:
    here = System(sweeps=[reply_lost("replace", call=1), reply_lost("replace", call=3)])
    job_ids = submitted(here, 60)
    here.memory_queues["default"].lose()
    told = 0
    for _ in range(4):
        try:
            here.timers.run()
        except Unavailable:
            told += 1
    assert told == 2
    assert tickets(here).keys() == set(job_ids)
    assert here.sweeps.read().repairs == []


@pytest.mark.usefixtures("small_pages")
def test_a_queue_that_is_lost_again_is_repaired_from_the_beginning() -> None:
    here = System()
    job_ids = submitted(here, 200)
    here.memory_queues["default"].lose()
    here.timers.run(Turns(15))  # four pages of each segment; with many more, ids by chance fall so that all is done
    assert 0 < len(tickets(here)) <= 96
    here.memory_queues["default"].lose()
    here.timers.run()
    assert tickets(here) == dict.fromkeys(job_ids, 1)
    assert here.sweeps.read().repairs == []


def test_a_throttled_ledger_ends_the_run_and_the_next_goes_on() -> None:
    here = System(ledger=[unavailable("unmarked")])
    (job_id,) = submitted(here)
    here.memory_queues["default"].lose()
    with pytest.raises(Unavailable):
        here.timers.run()
    assert [each["part"] for each in here.telemetry.named("timers_held")] == ["repair"]
    here.timers.run()
    assert tickets(here) == {job_id: 1}


def test_a_run_that_lingers_goes_on_with_a_repair_and_does_not_wait_for_one_that_is_stuck(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    here = System()
    monkeypatch.setattr(reconcile, "PAGE_ROWS", 3)
    submitted(here, 100)
    here.memory_queues["default"].lose()
    start = here.clock.now()

    def page(*args: Any) -> Any:
        here.clock.sleep(0.5)  # so a slice is over before the repair is
        return real(*args)

    real = here.memory_ledger.unmarked
    monkeypatch.setattr(here.memory_ledger, "unmarked", page)
    assert here.timers.run(linger=True)["renewed"] == 100
    assert here.clock.now() - start > 2 * reconcile.SLICE_SECONDS * 1000
    monkeypatch.undo()

    here.memory_queues["default"].lose()
    monkeypatch.setattr(here.memory_queues["default"], "push", lambda tickets, _delay: tickets)
    start = here.clock.now()
    here.timers.run(linger=True)
    assert here.clock.now() == start
    assert len(here.sweeps.read().repairs) == 1


# --- by hand -----------------------------------------------------------------------------------------------------------


def test_by_hand_everything_is_looked_through_at_once() -> None:
    here = System()
    old, beside = submitted(here, 5), submitted(here, 2, queue="priority")
    here.clock.sleep(2 * HOUR)
    young = submitted(here)
    for queue in here.queues:
        purge(here, queue)
    told: list[int] = []
    reconciler = here.reconciler
    assert reconciler.at_once(None, HOUR, dry_run=True, tell=told.append) == {"default": Found(5), "priority": Found(2)}
    assert sum(told) == 8
    assert tickets(here) == {}
    assert reconciler.at_once(["priority"], HOUR) == {"priority": Found(2, 2)}
    assert tickets(here, "priority") == dict.fromkeys(beside, 1)
    assert reconciler.at_once(["default"], HOUR) == {"default": Found(5, 5)}
    assert tickets(here) == dict.fromkeys(old, 1)
    assert reconciler.at_once(["default"], 0) == {"default": Found(6, 6)}
    assert tickets(here)[young[0]] == 1
    assert here.sweeps.read().repairs == []


def test_by_hand_a_queue_that_takes_nothing_or_is_unknown_is_told() -> None:
    here = System(queue_default=[unavailable("push", call=2)])
    submitted(here)
    submitted(here, queue="priority")
    here.queues.pop("priority")
    here.build()
    found = here.reconciler.at_once(None, 0)
    assert found == {
        "default": Found(1, 0, TAKES_NONE),
        "priority": Found(1, 0, UNKNOWN_QUEUE),
    }


@pytest.mark.parametrize("page", [1, 2])
def test_by_hand_a_ledger_that_has_never_answered_is_waited_for_less_than_one_that_has(
    monkeypatch: pytest.MonkeyPatch, page: int
) -> None:
    monkeypatch.setattr(reconcile, "PAGE_ROWS", 1)
    silent = unavailable("unmarked", call=None, where=lambda *args: page == 1 or args[2] is not None)
    here = MemorySystem(app(), wrap=lambda name, port: Faulty(port, [silent]) if name == "ledger" else port)
    submitted(here, 50)
    began = here.clock.monotonic()
    with pytest.raises(Unavailable):
        here.reconciler.at_once(None, 0)
    waited_seconds = here.clock.monotonic() - began
    assert (waited_seconds <= reconcile.FIRST_PATIENCE_SECONDS) == (page == 1)
    assert waited_seconds <= PATIENCE_SECONDS
