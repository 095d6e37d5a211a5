"""The guarantee at-least-once, from the gateway to the queue: what such a job costs, and where it gets a row all the same."""

from __future__ import annotations

from typing import Any

import pytest

from ringfence import App, Context
from ringfence.acceptance import Accepted, Refusal, Submission
from ringfence.aws.sqs_batches import MAX_REQUEST_BYTES
from ringfence.errors import Rejected
from ringfence.job import Guarantee, Job, State
from ringfence.memory.clock import ManualClock
from ringfence.ports import LogEntry
from ringfence.relay import WINDOW_JOBS
from ringfence.testing.faults import Fault, Faulty, lie, unavailable
from ringfence.testing.system import MemorySystem
from ringfence.wire import MAX_PAYLOAD_BYTES, JobRecord, Ticket, decode_record, decode_ticket, encode_records, encode_ticket


class System(MemorySystem):
    """With faults in front of some ports, and every run of its one job remembered."""

    def __init__(self, faults: dict[str, list[Fault]] | None = None, **settings: Any) -> None:
        app = App()
        self.runs: list[str] = []

        @app.job("note")
        def note(ctx: Context, n: int = 0) -> None:
            self.runs.append(ctx.job_id)

        script = {"ledger": [], **(faults or {})}
        super().__init__(app, wrap=lambda name, port: Faulty(port, script[name]) if name in script else port)
        if settings:
            self.queue_settings.change("default", settings)

    @property
    def ledger_calls(self) -> list[str]:
        assert isinstance(self.ledger, Faulty)
        return [call.method for call in self.ledger.calls]

    def ask(self, *submissions: Submission) -> list[Accepted | Refusal]:
        return self.gateway.submit("default", submissions)

    def submitted(self, count: int = 1, **more: Any) -> list[str]:
        answers = self.ask(*[light(**more)] * count)
        return [answer.job.job_id for answer in answers if isinstance(answer, Accepted)]

    def tickets(self, queue: str = "default") -> list[Ticket]:
        return [decode_ticket(body) for body in self.memory_queues[queue].bodies()]

    def pushed(self, queue: str = "default") -> list[str]:
        return [ticket.job_id for ticket in self.tickets(queue)]

    def rows(self) -> list[Job]:
        return self.memory_ledger.all_jobs()

    def in_line(self) -> list[str]:
        """Who stands in line, the first first."""
        return [job.job_id for job in self.memory_ledger.line("default", 10**6)]

    def work(self) -> None:
        while self.run_worker(most=100):
            pass


def light(**more: Any) -> Submission:
    """A submission with this guarantee."""
    return Submission(**{"name": "note", "payload": "{}", "guarantee": Guarantee.AT_LEAST_ONCE, **more})


# --- accepting -------------------------------------------------------------------------------------------------------


def test_the_ledger_is_not_asked_and_the_log_alone_holds_the_job() -> None:
    here = System()
    (answer,) = here.ask(light(payload='{"n":1.0}', max_attempts=3, ordering_key="o"))
    assert isinstance(answer, Accepted)
    assert (answer.job.state, answer.guarantee, answer.repeated) == (State.QUEUED, Guarantee.AT_LEAST_ONCE, False)
    ((record,),) = (decode_record(read.data) for read in here.memory_log.read())
    assert (record.job_id, record.guarantee, record.registered) == (answer.job.job_id, Guarantee.AT_LEAST_ONCE, False)
    here.submitted(500)
    assert here.ledger_calls == []
    with pytest.raises(Rejected) as refusal:
        here.gateway.get("default", answer.job.job_id)
    assert refusal.value.status == 404
    assert "at-least-once" in str(refusal.value)


def test_a_key_is_refused_for_it_needs_a_row() -> None:
    here = System()
    (answer,) = here.ask(light(idempotency_key="k"))
    assert isinstance(answer, Refusal)
    assert (answer.status, answer.kind, answer.pointer) == (422, "idempotency-key-needs-row", "/idempotency_key")
    assert here.memory_log.read() == []


def test_of_many_only_those_with_the_guarantee_once_are_registered() -> None:
    here = System()
    asked = [
        light(),
        Submission(name="note", payload="{}"),
        light(queue="nope"),
        Submission(name="note", payload="{}"),
        light(),
    ]
    answers = here.ask(*asked)
    assert [type(answer) for answer in answers] == [Accepted, Accepted, Refusal, Accepted, Accepted]
    assert [answer.guarantee for answer in answers if isinstance(answer, Accepted)] == [
        submission.guarantee for submission, answer in zip(asked, answers, strict=True) if isinstance(answer, Accepted)
    ]
    assert here.ledger_calls == ["register", "register"]
    here.run_relay()
    here.work()
    assert sorted(here.runs) == sorted(answer.job.job_id for answer in answers if isinstance(answer, Accepted))


def test_a_job_that_the_log_did_not_take_is_refused_without_a_promise_that_it_will_not_run() -> None:
    here = System({"log": [lie("append", [None])]})
    (answer,) = here.ask(light())
    assert isinstance(answer, Refusal)
    assert (answer.status, answer.retry_after_seconds) == (503, 1.0)
    assert "may have been accepted" in answer.detail
    assert here.ledger_calls == []


def test_the_payload_has_its_usual_limit() -> None:
    here = System()
    (answer,) = here.ask(light(payload='"' + "x" * MAX_PAYLOAD_BYTES + '"'))
    assert isinstance(answer, Refusal)
    assert (answer.status, answer.kind) == (413, "payload-too-large")


# --- riding in the ticket --------------------------------------------------------------------------------------------


def test_the_ticket_carries_the_job_which_runs_without_a_row() -> None:
    here = System()
    (job_id,) = here.submitted(payload='{"n":1}', max_attempts=3)
    assert here.run_relay() is None
    (ticket,) = here.tickets()
    assert (ticket.job_id, ticket.payload, ticket.max_attempts, ticket.name) == (job_id, '{"n":1}', 3, "note")
    here.work()
    assert here.runs == [job_id]
    assert (here.ledger_calls, here.rows()) == ([], [])


@pytest.mark.parametrize("delay_seconds", [0.5, 900])
def test_a_delay_that_the_queue_can_hold_rides_along(delay_seconds: float) -> None:
    here = System()
    here.submitted(delay_seconds=delay_seconds)
    assert here.run_relay() is None
    assert here.memory_queues["default"].depth().delayed == 1
    here.clock.sleep(delay_seconds - 0.1)
    here.work()
    assert here.runs == []
    here.clock.sleep(1)
    here.work()
    assert (len(here.runs), here.rows()) == (1, [])


def test_what_is_later_gets_a_row_from_the_relay_and_is_from_then_on_a_job_like_any_other() -> None:
    here = System()
    (answer,) = here.ask(light(payload='{"n":1}', delay_seconds=3_600))
    assert isinstance(answer, Accepted)
    assert answer.job.state is State.SCHEDULED
    job_id = answer.job.job_id
    assert here.ledger_calls == []
    assert here.run_relay() is None
    row = here.job(job_id)
    assert (row.state, row.payload, row.run_at) == (State.SCHEDULED, '{"n":1}', here.clock.now() + 3_600_000)
    assert here.pushed() == []
    here.clock.sleep(3_601)
    here.timers.run()
    assert [ticket.payload for ticket in here.tickets()] == [None]
    here.work()
    assert (here.runs, here.job(job_id).state, here.job(job_id).token) == ([job_id], State.SUCCEEDED, 1)


def test_one_that_waits_on_its_row_can_be_cancelled() -> None:
    here = System()
    (job_id,) = here.submitted(delay_seconds=3_600)
    here.run_relay()
    assert here.gateway.cancel("default", job_id).state is State.CANCELLED
    here.clock.sleep(3_601)
    here.timers.run()
    here.work()
    assert here.runs == []


def test_rows_for_later_are_put_together_and_not_one_by_one() -> None:
    here = System()
    job_ids = here.submitted(500, delay_seconds=7_200)
    assert here.run_relay() is None
    assert sorted(row.job_id for row in here.rows()) == sorted(job_ids)
    assert here.ledger_calls == ["write_many"] * 20


def test_a_relay_whose_clock_is_behind_runs_nothing_early_for_want_of_a_longer_delay() -> None:
    here = System()
    (job_id,) = here.submitted(delay_seconds=900)
    late = System()
    late.clock = ManualClock(here.clock.now() - 60_000)
    late.queues, late.ledger = here.queues, here.ledger
    late.build()
    assert late.relay.handle(here.memory_log.read()) is None
    assert here.pushed() == []
    assert here.job(job_id).run_at == here.clock.now() + 900_000


def test_a_job_for_a_queue_that_is_gone_is_dead_with_the_reason_and_its_payload() -> None:
    here = System()
    (job_id,) = here.submitted(queue="priority", payload='{"n":7}')
    del here.queues["priority"]
    here.build()
    assert here.run_relay() is None
    row = here.job(job_id)
    assert (row.state, row.error, row.payload) == (State.DEAD, "there is no queue 'priority'", '{"n":7}')


def foreign(here: System, payload: str) -> JobRecord:
    """A record that no gateway would have written."""
    return JobRecord(
        job_id="large",
        tenant="😀" * 512,
        queue="default",
        name="n" * 128,
        payload=payload,
        payload_sha256="0" * 64,
        created_at=here.clock.now(),
        max_attempts=5,
        registered=False,
        guarantee=Guarantee.AT_LEAST_ONCE,
    )


def test_a_payload_that_no_queue_would_take_rests_in_the_quarantine_and_does_not_hold_the_shard() -> None:
    here = System()
    record = foreign(here, '"' + "😀" * (MAX_PAYLOAD_BYTES - 2) + '"')
    ((data, _),) = encode_records([record])
    here.memory_log.append([LogEntry(data, "k")])
    job_ids = here.submitted(3)
    assert here.run_relay() is None
    assert here.pushed() == job_ids
    (kept,) = here.quarantine.items()
    assert kept.job_id == "large"
    assert f"at most {MAX_PAYLOAD_BYTES}" in kept.reason


def test_a_record_of_strange_characters_still_fits_a_message() -> None:
    here = System()
    record = foreign(here, '"' + "\0" * (MAX_PAYLOAD_BYTES - 2) + '"')
    ((data, _),) = encode_records([record])
    here.memory_log.append([LogEntry(data, "k")])
    assert here.run_relay() is None
    (ticket,) = here.tickets()
    assert 128 * 1024 < len(encode_ticket(ticket)) < MAX_REQUEST_BYTES


@pytest.mark.parametrize("filler", ["a", "😀", "é", "\n", '\\"', "\x7f", "\\u0001"])
def test_c04_whatever_the_gateway_lets_through_fits_a_message_of_any_queue(filler: str) -> None:
    here = System()
    payload = '{"n": [' + filler * ((MAX_PAYLOAD_BYTES - 9) // len(filler.encode())) + "]}"
    (answer,) = here.gateway.submit("t😀" * 256, [light(payload=payload, name="n" * 64)])
    assert isinstance(answer, Accepted)
    here.run_relay()
    (ticket,) = here.tickets()
    assert ticket.payload == payload
    assert len(encode_ticket(ticket)) < 128 * 1024, "half of what SQS takes at least"


# --- the pace --------------------------------------------------------------------------------------------------------


def mixed(here: System, count: int) -> list[str]:
    """Jobs of both guarantees by turns, in their order."""
    answers = here.ask(*[light() if n % 2 else Submission(name="note", payload="{}") for n in range(count)])
    return [answer.job.job_id for answer in answers if isinstance(answer, Accepted)]


def test_a_paused_queue_parks_those_without_a_row_too_in_order_with_the_others() -> None:
    here = System(paused=True)
    job_ids = mixed(here, 120)
    assert here.run_relay() is None
    assert (here.pushed(), here.in_line()) == ([], job_ids)
    assert {row.state for row in here.rows()} == {State.SCHEDULED}
    here.queue_settings.change("default", {"paused": False})
    here.clock.sleep(5)
    newcomers = here.submitted(2)
    here.run_relay()
    assert here.pushed() == [], "newcomers stand behind the parked"
    here.timers.run()
    assert here.pushed() == job_ids + newcomers
    here.clock.sleep(1)
    here.work()
    assert here.runs == job_ids + newcomers
    assert {(row.state, row.token) for row in here.rows()} == {(State.SUCCEEDED, 1)}


def test_none_passes_the_high_water_mark() -> None:
    here = System(high_water_mark=100)
    expected: list[str] = []
    for _ in range(8):
        expected += here.submitted(50)
        assert here.run_relay() is None
        depth = here.memory_queues["default"].depth()
        assert depth.ready + depth.leased + depth.delayed <= 100
        here.clock.sleep(1)
    assert here.pushed() == expected[:100]
    assert here.in_line() == expected[100:]
    for _ in range(20):
        here.work()
        here.timers.run()
        here.clock.sleep(1)
    assert here.runs == expected


def test_a_rate_holds_for_them_and_what_goes_later_than_the_horizon_is_parked() -> None:
    here = System(rate_per_second=1.0, burst=1)
    job_ids = here.submitted(200)
    assert here.run_relay() is None
    assert here.pushed() == job_ids[:121]
    assert here.in_line() == job_ids[121:]
    for second in range(10, 200, 10):
        here.clock.sleep(10)
        here.timers.run()
        here.work()
        assert len(here.runs) == second + 1
    here.clock.sleep(10)
    here.work()
    assert here.runs == job_ids


def test_one_with_a_time_of_its_own_waits_on_its_row_where_a_pace_is_kept() -> None:
    here = System(rate_per_second=1.0)
    (job_id,) = here.submitted(delay_seconds=60)
    assert here.run_relay() is None
    row = here.job(job_id)
    assert (row.state, row.in_line, here.pushed()) == (State.SCHEDULED, False, [])
    here.clock.sleep(61)
    here.timers.run()
    here.work()
    assert here.runs == [job_id]


# --- read again ------------------------------------------------------------------------------------------------------


def test_a_batch_that_is_read_again_parks_each_once_and_in_its_old_place() -> None:
    here = System(paused=True)
    job_ids = mixed(here, 60)
    here.run_relay()
    before = sorted(here.rows(), key=lambda row: row.job_id)
    here.clock.sleep(5)
    assert here.relay.handle(here.memory_log.read()) is None
    assert sorted(here.rows(), key=lambda row: row.job_id) == before
    assert here.in_line() == job_ids


@pytest.mark.parametrize("ended", [State.CANCELLED, State.SUCCEEDED])
def test_a_batch_that_is_read_again_parks_none_that_has_ended(ended: State) -> None:
    here = System(paused=True)
    (job_id,) = here.submitted()
    here.run_relay()
    if ended is State.CANCELLED:
        here.gateway.cancel("default", job_id)
    else:
        here.queue_settings.change("default", {"paused": False})
        here.timers.run()
        here.work()
        here.queue_settings.change("default", {"paused": True})
    here.clock.sleep(5)
    before = here.job(job_id)
    assert before.state is ended
    here.build()
    assert here.relay.handle(here.memory_log.read()) is None
    assert here.job(job_id) == before
    assert here.in_line() == []


def test_a_park_that_meets_a_throttle_is_tried_again_and_keeps_its_place() -> None:
    here = System({"ledger": [lie("write_many", [None] * 25, call=3)]}, paused=True)
    job_ids = here.submitted(300)
    assert here.run_relay() is None
    assert here.in_line() == job_ids


def test_a_park_that_fails_holds_its_record_and_what_was_pushed_before_is_not_pushed_again() -> None:
    targets: list[str] = []
    throttled = lie("write_many", [None] * 25, call=None, where=lambda writes: any(row.job_id in targets for row in writes))
    here = System({"ledger": [throttled]}, high_water_mark=50)
    job_ids = here.submitted(300)
    targets.append(job_ids[60])
    assert here.run_relay() == here.memory_log.read()[0].sequence
    assert here.pushed() == job_ids[:50]
    for _ in range(3):
        here.clock.sleep(1)
        assert here.run_relay() == here.memory_log.read()[0].sequence
    targets.clear()
    here.clock.sleep(1)
    assert here.run_relay() is None
    assert here.pushed() == job_ids[:50]
    assert sorted(here.in_line()) == sorted(job_ids[50:])


def test_a_ledger_out_of_reach_holds_those_for_later_and_lets_the_others_run_once() -> None:
    here = System({"ledger": [lie("write_many", [None], call=number) for number in range(1, 9)]})
    earlier = here.submitted(WINDOW_JOBS)
    (later,) = here.submitted(delay_seconds=3_600)
    behind = here.submitted(WINDOW_JOBS + 50)
    held_at = here.memory_log.read()[1].sequence
    assert [here.run_relay(), here.run_relay(), here.run_relay()] == [held_at, held_at, None]
    here.work()
    assert here.runs == earlier + behind
    assert here.job(later).state is State.SCHEDULED


def test_tickets_that_were_not_taken_are_pushed_again_and_only_those() -> None:
    here = System({"queue:default": [unavailable("push", call=2), unavailable("push", call=3)]})
    job_ids = [here.submitted()[0] for _ in range(250)]
    assert here.run_relay() == here.memory_log.read()[100].sequence
    assert here.run_relay() == here.memory_log.read()[100].sequence
    assert here.run_relay() is None
    assert here.pushed() == job_ids


def test_another_queue_that_fails_makes_none_of_this_one_run_twice() -> None:
    here = System({"queue:priority": [unavailable("push", call=None, where=lambda *_: len(failing) > 0)]})
    failing = ["for now"]
    first = here.submitted()
    held = here.submitted(queue="priority")
    rest = here.submitted(30)
    held_at = here.memory_log.read()[1].sequence
    assert [here.run_relay() for _ in range(5)] == [held_at] * 5
    failing.clear()
    assert here.run_relay() is None
    assert (here.pushed(), here.pushed("priority")) == (first + rest, held)


def test_a_fresh_relay_knows_nothing_of_that_and_pushes_what_it_reads() -> None:
    """Which is what at least once says."""
    here = System({"queue:priority": [unavailable("push")]})
    held = here.submitted(queue="priority")
    rest = here.submitted(3)
    here.run_relay()
    here.build()
    assert here.run_relay() is None
    assert (here.pushed(), here.pushed("priority")) == (rest * 2, held)
