"""Accepting work: what is promised by a 202, what is refused, and what a key stands for (C01, C02, C04, C05, C32)."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from ringfence import App, Context
from ringfence.acceptance import Accepted, Refusal, Submission
from ringfence.errors import Rejected
from ringfence.job import State
from ringfence.memory.clock import ManualClock
from ringfence.memory.log import MemoryLog
from ringfence.ports import LogEntry
from ringfence.testing.faults import Fault, Faulty, lie, reply_lost, unavailable
from ringfence.testing.system import MemorySystem
from ringfence.wire import MAX_PAYLOAD_BYTES


def counting_app() -> App:
    app = App()

    @app.job("count")
    def count(ctx: Context, n: int = 0) -> None:
        ctx.effects.update("Counts", {"job": ctx.job_id}, add={"runs": 1})

    return app


def system(**more: Any) -> MemorySystem:
    return MemorySystem(counting_app(), tables={"Counts": ["job"]}, **more)


def with_faults(port_name: str, *script: Fault) -> MemorySystem:
    return system(wrap=lambda name, port: Faulty(port, script) if name == port_name else port)


def ask(here: MemorySystem, *submissions: Submission, tenant: str = "default") -> list[Accepted | Refusal]:
    return here.gateway.submit(tenant, submissions)


def test_an_accepted_job_is_registered_and_in_the_log_before_the_answer() -> None:
    here = system()
    job = here.submit("count", '{"n":1}')
    assert here.job(job.job_id).state is State.QUEUED
    assert len(here.memory_log.read()) == 1


def test_c01_without_a_key_two_requests_are_two_jobs_and_both_run() -> None:
    here = system()
    jobs = [here.submit("count", payload).job_id for payload in ('{"n":1}', '{"n":2}', '{"n":2}')]
    here.run_relay()
    here.run_worker()
    assert len(set(jobs)) == 3
    assert [here.ledger.read_item("Counts", {"job": job_id}) for job_id in jobs] == [{"job": each, "runs": 1} for each in jobs]


def test_c01_a_key_that_reads_null_is_a_key_like_any_other() -> None:
    here = system()
    assert here.submit("count", idempotency_key="null").job_id == here.submit("count", idempotency_key="null").job_id


def test_c02_the_same_key_and_request_is_the_same_job_and_another_payload_is_refused() -> None:
    here = system()
    first = here.submit("count", '{"n":1}', idempotency_key="k")
    for other in ('{"n":2}', '{"n":2}', '{"n":1.0}'):
        (answer,) = ask(here, Submission(name="count", payload=other, idempotency_key="k"))
        assert isinstance(answer, Refusal)
        assert (answer.status, answer.kind) == (422, "idempotency-key-reused")
    assert here.submit("count", ' { "n" : 1 } ', idempotency_key="k").job_id == first.job_id


def test_c02_a_key_also_covers_the_name_and_the_queue() -> None:
    here = system()
    here.submit("count", idempotency_key="k")
    for other in (
        Submission(name="other", payload="{}", idempotency_key="k"),
        Submission(name="count", payload="{}", queue="priority", idempotency_key="k"),
    ):
        (answer,) = ask(here, other)
        assert isinstance(answer, Refusal)


def test_c37_keys_of_two_tenants_never_meet() -> None:
    here = system()
    mine, theirs = (ask(here, Submission(name="count", payload="{}", idempotency_key="k"), tenant=t)[0] for t in ("a", "b"))
    assert isinstance(mine, Accepted)
    assert isinstance(theirs, Accepted)
    assert mine.job.job_id != theirs.job.job_id
    with pytest.raises(Rejected) as foreign:
        here.gateway.get("a", theirs.job.job_id)
    with pytest.raises(Rejected) as unknown:
        here.gateway.get("a", "nosuchjob")
    assert (foreign.value.status, str(foreign.value)) == (404, str(unknown.value))


def test_c37_an_id_carries_more_chance_than_a_uuid() -> None:
    here = system()
    ids = [here.submit("count").job_id for _ in range(500)]
    assert {len(job_id) for job_id in ids} == {26}
    assert all(len(set(digits)) == 32 for digits in zip(*ids, strict=True)), "five bits in each digit: 130"


def test_c02_twenty_first_requests_at_once_are_one_job_with_one_effect() -> None:
    here = system()
    with ThreadPoolExecutor(20) as pool:
        jobs = list(pool.map(lambda _: here.submit("count", '{"n":1}', idempotency_key="k"), range(20)))
    (job_id,) = {job.job_id for job in jobs}
    here.run_relay()
    while here.run_worker():
        pass
    assert here.ledger.read_item("Counts", {"job": job_id}) == {"job": job_id, "runs": 1}
    assert here.job(job_id).token == 1


def test_c02_after_its_row_has_expired_a_key_is_free_again() -> None:
    here = system()
    first = here.submit("count", '{"n":1}', idempotency_key="k")
    here.run_relay()
    here.run_worker()
    assert here.job(first.job_id).state is State.SUCCEEDED
    assert isinstance(here.clock, ManualClock)
    expires_at = here.job(first.job_id).expires_at
    assert expires_at is not None
    here.clock.sleep(expires_at - here.clock.now() / 1000)
    (refused,) = ask(here, Submission(name="count", payload='{"n":2}', idempotency_key="k"))
    assert isinstance(refused, Refusal)
    here.clock.sleep(1)
    again = here.submit("count", '{"n":2}', idempotency_key="k")
    assert (again.state, again.token) == (State.QUEUED, 0)
    assert here.submit("count", '{"n":2}', idempotency_key="k").version == again.version, "and stands for that one from now on"


def test_a_repeat_of_a_job_that_never_reached_the_log_is_appended_again() -> None:
    here = with_faults("log", lie("append", [None]))
    (lost,) = ask(here, Submission(name="count", payload="{}", idempotency_key="k"))
    assert isinstance(lost, Refusal)
    assert (lost.status, lost.retry_after_seconds) == (503, 1.0)
    job = here.submit("count", idempotency_key="k")
    here.run_relay()
    here.run_worker()
    assert here.job(job.job_id).state is State.SUCCEEDED


def test_a_keyless_job_that_was_refused_does_not_run_later() -> None:
    here = with_faults("log", lie("append", [None]))
    (refused,) = ask(here, Submission(name="count", payload="{}"))
    assert isinstance(refused, Refusal)
    (row,) = here.ledger.list_jobs("default", ["default"]).jobs
    assert row.state is State.CANCELLED


def test_c05_answers_follow_their_entries_when_some_are_not_appended() -> None:
    here = with_faults("log", lie("append", ["s1", None, "s3"]))
    ordered = [Submission(name="count", payload=f'{{"n":{n}}}', ordering_key=f"o{n}") for n in range(3)]
    answers = ask(here, *ordered)
    assert [type(answer) for answer in answers] == [Accepted, Refusal, Accepted]


def test_a_keyless_job_is_accepted_although_the_ledger_is_throttled_and_the_relay_registers_it() -> None:
    here = with_faults("ledger", unavailable("register"))
    job = here.submit("count")
    assert here.ledger.get(job.job_id) is None
    here.run_relay()
    assert here.job(job.job_id).state is State.QUEUED
    here.run_worker()
    assert here.job(job.job_id).state is State.SUCCEEDED


def test_a_keyed_job_is_not_accepted_while_the_ledger_is_throttled() -> None:
    here = with_faults("ledger", unavailable("register"))
    (answer,) = ask(here, Submission(name="count", payload="{}", idempotency_key="k"))
    assert isinstance(answer, Refusal)
    assert answer.status == 503
    assert here.memory_log.read() == []


@pytest.mark.parametrize("filler", ["a", "😀", "\\u0001", "é", '\\"'])
def test_c04_the_limit_counts_bytes_and_what_it_admits_runs_with_its_hash_unchanged(filler: str) -> None:
    room = MAX_PAYLOAD_BYTES - len('{"s":""}')
    repeats, rest = divmod(room, len(filler.encode()))
    fits = '{"s":"' + filler * repeats + "b" * rest + '"}'
    seen: list[tuple[str, str]] = []
    app = App()

    @app.job("keep")
    def keep(ctx: Context, s: str) -> None:
        seen.append((ctx.payload, ctx.payload_sha256))

    here = MemorySystem(app)
    job = here.submit("keep", fits)
    here.run_relay()
    here.run_worker()
    assert seen == [(fits, job.payload_sha256)]
    records = len(here.memory_log.read())
    (answer,) = ask(here, Submission(name="keep", payload=fits[:-2] + 'b"}'))
    assert isinstance(answer, Refusal)
    assert (answer.status, answer.pointer) == (413, "/payload")
    assert len(here.memory_log.read()) == records


def test_a_keyless_job_is_withdrawn_even_if_nobody_was_told_that_its_row_is_there() -> None:
    here = system(wrap=lambda name, port: Faulty(port, faults[name]) if name in faults else port)
    (refused,) = ask(here, Submission(name="count", payload="{}", delay_seconds=3_600))
    assert isinstance(refused, Refusal)
    here.clock.sleep(4_000)
    here.timers.run()
    here.run_worker()
    (row,) = here.ledger.list_jobs("default", ["default"]).jobs
    assert row.state is State.CANCELLED


faults = {"ledger": [reply_lost("register")], "log": [lie("append", [None])]}


def test_a_keyless_job_that_could_not_be_withdrawn_is_not_said_to_be_gone() -> None:
    """It may still run: the timers give a row without a ticket one."""
    down: dict[str, list[Fault]] = {"ledger": [unavailable("write")], "log": [lie("append", [None])]}
    here = system(wrap=lambda name, port: Faulty(port, down[name]) if name in down else port)
    (refused,) = ask(here, Submission(name="count", payload="{}"))
    assert isinstance(refused, Refusal)
    assert (refused.status, "may have been accepted" in refused.detail) == (503, True)


def test_a_repeat_after_a_redrive_with_another_payload_is_still_the_same_request() -> None:
    here = system()
    job = here.submit("count", '{"n":"wrong"}', idempotency_key="k")
    here.run_relay()
    here.run_worker()
    here.gateway.redrive("default", job.job_id, '{"n":3}')
    assert here.submit("count", ' {"n": "wrong"} ', idempotency_key="k").job_id == job.job_id
    (other,) = ask(here, Submission(name="count", payload='{"n":3}', idempotency_key="k"))
    assert isinstance(other, Refusal)


def test_an_unknown_queue_is_refused_and_the_known_ones_named() -> None:
    (answer,) = ask(system(), Submission(name="count", payload="{}", queue="nope"))
    assert isinstance(answer, Refusal)
    assert (answer.kind, answer.pointer) == ("unknown-queue", "/queue")
    assert "default, priority" in answer.detail


@pytest.mark.parametrize(
    ("delay_seconds", "state", "marked"),
    [
        (0, "queued", False),
        (899, "queued", False),
        (900, "queued", False),
        (901, "scheduled", True),
        (46_800, "scheduled", True),
    ],
)
def test_c12_what_a_queue_cannot_delay_is_scheduled_with_a_due_mark(delay_seconds: float, state: str, marked: bool) -> None:
    here = system()
    job = here.job(here.submit("count", delay_seconds=delay_seconds).job_id)
    assert (job.state, job.due_id is not None) == (state, marked)


def test_a_time_in_the_past_means_now() -> None:
    here = system()
    assert here.submit("count", run_at=here.clock.now() - 5).run_at is None


def test_a_job_may_be_scheduled_for_the_same_day_next_year_and_not_beyond() -> None:
    here = system()
    year_seconds = 366 * 24 * 3600.0
    (accepted,) = ask(here, Submission(name="count", payload="{}", delay_seconds=year_seconds))
    assert isinstance(accepted, Accepted)
    for beyond, pointer in (
        (Submission(name="count", payload="{}", delay_seconds=year_seconds + 1), "/delay_seconds"),
        (Submission(name="count", payload="{}", run_at=here.clock.now() + round(year_seconds * 1000) + 1), "/run_at"),
    ):
        (answer,) = ask(here, beyond)
        assert isinstance(answer, Refusal)
        assert (answer.kind, answer.pointer) == ("too-far-ahead", pointer)


def test_c32_a_waiting_job_is_cancelled_at_once_and_never_runs() -> None:
    here = system()
    job = here.submit("count")
    assert here.gateway.cancel("default", job.job_id).state is State.CANCELLED
    assert here.gateway.cancel("default", job.job_id).state is State.CANCELLED
    here.run_relay()
    here.run_worker()
    assert here.job(job.job_id).state is State.CANCELLED
    assert here.ledger.read_item("Counts", {"job": job.job_id}) is None
    assert here.memory_queues["default"].bodies() == []


def test_c32_an_ended_job_is_left_alone_by_a_cancel() -> None:
    here = system()
    job = here.submit("count")
    here.run_relay()
    here.run_worker()
    assert here.gateway.cancel("default", job.job_id).state is State.SUCCEEDED


def test_only_a_dead_job_is_redriven_and_its_payload_may_be_mended() -> None:
    here = system()
    job = here.submit("count", '{"n":"wrong"}')
    with pytest.raises(Rejected) as refusal:
        here.gateway.redrive("default", job.job_id)
    assert (refusal.value.status, refusal.value.kind) == (409, "not-dead")
    here.run_relay()
    here.run_worker()
    assert here.job(job.job_id).state is State.DEAD
    again = here.gateway.redrive("default", job.job_id, '{"n":3}')
    assert (again.state, again.token) == (State.SCHEDULED, 1)
    here.timers.run()
    here.run_worker()
    ended = here.job(job.job_id)
    assert (ended.state, ended.token, ended.payload, ended.error) == (State.SUCCEEDED, 2, '{"n":3}', None)


def test_nobody_is_told_that_nothing_was_accepted_of_a_job_that_has_run() -> None:
    """The answer of the log is lost, and the job has ended before the gateway can call it back."""
    app = App()
    app.job("noop")(lambda ctx: None)

    class Overtaken(MemoryLog):
        def append(self, entries: Sequence[LogEntry]) -> list[str | None]:
            super().append(entries)
            here.run_relay()
            here.run_worker()
            return [None] * len(entries)

    log = Overtaken()
    here = MemorySystem(app, wrap=lambda name, port: log if name == "log" else port)
    here.memory_log = log
    (answer,) = here.gateway.submit("default", [Submission(name="noop", payload="{}")])
    assert isinstance(answer, Refusal)
    assert "may have been accepted" in answer.detail
    (job,) = here.ledger.list_jobs("default", ["default"]).jobs
    assert job.state is State.SUCCEEDED
