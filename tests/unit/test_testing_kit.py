"""The public kit: jobs whose effect does not stay single are caught, at the very moment, and those whose effect does pass."""

from __future__ import annotations

import asyncio
import re
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import boto3
import pytest
from botocore.awsrequest import AWSRequest, AWSResponse

from jobs import app as example_jobs
from jobs import index_module
from ringfence import App, Context, Dead, Put, Retry, Update
from ringfence.testing import FaultReport, Receiver, ReceiverRefused, assert_effect_lands_once, effect_lands_once
from ringfence.testing.lives import in_time
from ringfence.testing.system import MemorySystem

TABLES = {"Counts": ["id"], "Marks": ["job"]}


class Outside:
    """A place that nothing fences: a file, a table written by another client, somebody's API."""

    def __init__(self) -> None:
        self.count = 0

    def effect(self) -> None:
        self.count += 1

    def arrange(self, _system: MemorySystem) -> None:
        self.count = 0

    def observe(self, _system: MemorySystem) -> int:
        return self.count

    @property
    def seen(self) -> dict[str, Any]:
        return {"arrange": self.arrange, "observe": self.observe}


def job(code: Callable[..., Any], **options: Any) -> App:
    """An app of this one job, named ``job``."""
    app = App()
    app.job("job", **options)(code)
    return app


def found(app: App, payload: Any = None, **more: Any) -> str:
    """What the report says of a job that must be caught."""
    with pytest.raises(AssertionError) as caught:
        assert_effect_lands_once(app, "job", payload, **more)
    return str(caught.value)


def lives(report: str) -> list[str]:
    """The lives that a report tells in full."""
    return [line.rpartition("[")[2].rstrip("]") for line in report.splitlines() if line.endswith("]") and "    [" in line]


# --- the example jobs ------------------------------------------------------------------------------------------------------


def test_the_example_jobs_stay_single(monkeypatch: pytest.MonkeyPatch) -> None:
    signup = assert_effect_lands_once(
        example_jobs, "signup", {"email": "ada@example.com", "name": "Ada"}, tables={"Users": ["email"], "Profiles": ["email"]}
    )
    assert set(signup.lives) == {"crash", "freeze", "lost-reply", "duplicate", "redelivery", "replay"}
    assert signup.lives["crash"] == signup.moments
    assert_effect_lands_once(
        example_jobs,
        "charge",
        {"account_id": "ada"},
        tables={"Accounts": ["account_id"], "Charges": ["charge_id"]},
        items={"Accounts": [{"account_id": "ada", "balance_cents": 12_000}]},
        lines=False,
    )
    monkeypatch.setattr(index_module, "_read", lambda key: b"import os\n")
    counted = {"Modules": ["module"], "PackageTotals": ["package"]}
    assert_effect_lands_once(example_jobs, "index_module", {"key": "json/tool.py"}, tables=counted, lines=False)


# --- jobs that are wrong ---------------------------------------------------------------------------------------------------


def test_an_effect_outside_the_transaction_is_found_twice() -> None:
    outside = Outside()

    def code(ctx: Context) -> None:
        outside.effect()

    report = found(job(code), **outside.seen)
    assert lives(report) == ["crash-5", "freeze-2", "freeze-3", "freeze-4", "freeze-5"]
    assert "landed twice: killed after the job's last line" in report
    assert "observed held    {'value': 2}\n             not     {'value': 1}" in report
    assert "Stage it with ctx.effects" in report


def test_an_item_written_by_boto3_is_found_twice() -> None:
    written: list[bytes] = []

    def answer(request: AWSRequest, **_: Any) -> AWSResponse:
        written.append(request.body)
        response = AWSResponse(request.url, 200, {}, None)
        response._content = b"{}"
        return response

    dynamodb = boto3.client("dynamodb", "us-east-1", aws_access_key_id="test", aws_secret_access_key="test")
    dynamodb.meta.events.register("before-send.dynamodb.*", answer)

    def code(ctx: Context) -> None:
        dynamodb.put_item(TableName="Payments", Item={"id": {"S": uuid.uuid4().hex}})
        ctx.effects.put("Marks", {"job": ctx.job_id})

    report = found(job(code), tables=TABLES, arrange=lambda _: written.clear(), observe=lambda _: len(written))
    assert re.search(r"landed twice: killed before test_testing_kit.py:\d+  ctx\.effects\.put\(", report)


def test_a_charge_without_an_idempotency_key_is_found_twice() -> None:
    stripe = Receiver("stripe")

    def code(ctx: Context, cents: int) -> None:
        stripe(cents)

    report = found(job(code), {"cents": 500}, receivers=[stripe])
    assert "landed twice: the reply lost after the call of stripe" in report
    assert "receiver stripe held    {'arguments': [500]} (2 times)" in report
    assert "stripe was called without an idempotency key" in report


def test_a_key_made_anew_by_each_attempt_is_no_key() -> None:
    stripe = Receiver("stripe")

    def code(ctx: Context) -> None:
        stripe(idempotency_key=f"{ctx.job_id}-{ctx.token}")

    assert "another idempotency key by each attempt" in found(job(code), receivers=[stripe])


def test_a_token_alone_does_not_keep_the_next_owner_out() -> None:
    shelf = Receiver("shelf", knows_keys=False, knows_tokens=True)

    def code(ctx: Context) -> None:
        shelf(token=ctx.token, idempotency_key=ctx.idempotency_key)

    report = found(job(code), receivers=[shelf])
    assert "killed after the call of shelf" in report
    assert "shelf does not look at idempotency keys" in report


def test_a_version_that_each_attempt_reads_anew_adds_twice() -> None:
    def code(ctx: Context) -> None:
        there = ctx.read("Counts", {"id": "all"}) or {}
        ctx.write(Update(table="Counts", key={"id": "all"}, add={"n": 1}, version=there.get("version", 0)))

    report = found(job(code), tables=TABLES)
    assert "landed twice: killed after ctx.write" in report
    assert "table Counts held    {'id': 'all', 'n': 2, 'version': 2}" in report
    assert "Counts was written by an attempt that did not come to its end" in report


def test_an_increment_by_ctx_write_is_refused_before_anything_happens() -> None:
    def code(ctx: Context) -> None:
        ctx.write(Update(table="Counts", key={"id": "all"}, add={"n": 1}))

    report = found(job(code), tables=TABLES)
    assert "job ends dead, not succeeded, though nothing happens to it" in report
    assert "Update without unless_exists or version would be repeated" in report


def test_who_looks_before_it_acts_and_marks_after_it_acts_twice_all_the_same() -> None:
    outside = Outside()

    def code(ctx: Context) -> None:
        if ctx.read("Marks", {"job": ctx.job_id}) is None:
            outside.effect()
            ctx.write(Put(table="Marks", item={"job": ctx.job_id}, unless_exists=True))

    report = found(job(code), tables=TABLES, **outside.seen)
    assert "landed twice: killed before test_testing_kit.py:" in report
    without_lines = found(job(code), tables=TABLES, lines=False, **outside.seen)
    assert "landed twice: frozen past its lease after ctx.read of Marks" in without_lines


def test_who_marks_before_it_acts_does_not_act_at_all() -> None:
    outside = Outside()

    def code(ctx: Context) -> None:
        if ctx.write(Put(table="Marks", item={"job": ctx.job_id}, unless_exists=True)):
            outside.effect()

    report = found(job(code), tables=TABLES, only="crash-4", **outside.seen)
    assert "landed never: killed after ctx.write" in report


def test_a_job_that_swallows_the_loss_of_its_lease_is_found() -> None:
    shelf = Receiver("shelf", knows_keys=False)

    def code(ctx: Context) -> None:
        with suppress(Exception):
            ctx.checkpoint({"half": True})
        shelf(ctx.idempotency_key)

    report = found(job(code), receivers=[shelf], only="freeze-3")
    assert "landed twice: frozen past its lease before test_testing_kit.py" in report


def test_a_job_that_takes_its_second_attempt_for_done_is_found() -> None:
    def code(ctx: Context) -> None:
        if ctx.attempt == 1:
            ctx.effects.update("Counts", {"id": "all"}, add={"n": 1})

    report = found(job(code), tables=TABLES, only="crash-3")
    assert "landed never" in report
    assert "table Counts held    nothing" in report


def test_a_job_that_waits_for_its_own_dead_attempt_does_not_end_well() -> None:
    def code(ctx: Context) -> None:
        if not ctx.write(Put(table="Marks", item={"job": "the lock"}, unless_exists=True)):
            raise Retry("somebody else is at it")
        ctx.effects.delete("Marks", {"job": "the lock"})
        ctx.effects.put("Counts", {"id": ctx.job_id})

    report = found(job(code), tables=TABLES, only="crash-4")
    assert "somebody else is at it" in report
    assert "the job: dead after 5 attempts" in report


def test_a_job_that_holds_a_lock_while_it_is_frozen_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    def impatient(live: Any, seconds: float, life: str) -> Any:
        return in_time(live, 0.2 if life == "freeze-4" else seconds, life)

    monkeypatch.setattr(effect_lands_once, "in_time", impatient)
    lock = threading.Lock()

    def code(ctx: Context) -> None:
        with lock:
            ctx.write(Put(table="Marks", item={"job": ctx.job_id}, unless_exists=True))

    with pytest.raises(TimeoutError, match=r"life freeze-4 was not over after 0\.2 s; does the job hold a lock"):
        assert_effect_lands_once(job(code), "job", tables=TABLES, only="freeze-4")
    lock.release()  # and the threads end


# --- jobs that are right ---------------------------------------------------------------------------------------------------


def test_a_charge_with_a_key_stays_single_also_when_it_is_awaited() -> None:
    stripe = Receiver("stripe", answer={"paid": True})

    async def code(ctx: Context, cents: int) -> Any:
        paid = await stripe.awaited(cents, idempotency_key=ctx.idempotency_key, token=ctx.token)
        await asyncio.sleep(0)
        ctx.effects.put("Marks", {"job": ctx.job_id, "token": ctx.token})
        return paid

    report = assert_effect_lands_once(job(code), "job", {"cents": 500}, receivers=[stripe], tables=TABLES)
    assert report.lives["crash"] == report.lives["freeze"] == report.moments
    assert len(stripe.landed) == 1


def test_tokens_times_and_random_ids_are_not_taken_for_second_effects() -> None:
    def code(ctx: Context) -> None:
        made = {"job": ctx.job_id, "at": time.time_ns(), "token": ctx.token, "random": uuid.uuid4().hex}
        ctx.write(Put(table="Marks", item=made, unless_exists=True))
        ctx.effects.put("Counts", {"id": uuid.uuid4().hex, "n": 1})

    assert assert_effect_lands_once(job(code), "job", tables=TABLES).lives["crash"] > 5


def test_an_attribute_that_another_attempt_may_give_another_value_can_be_left_out() -> None:
    def code(ctx: Context) -> None:
        ctx.effects.put("Marks", {"job": ctx.job_id, "attempt": ctx.attempt})

    report = found(job(code), tables=TABLES, only="crash-2")
    assert "landed otherwise" in report
    assert "name the attributes in ignore=" in report
    assert_effect_lands_once(job(code), "job", tables=TABLES, only="crash-2", ignore=["attempt"])


def test_a_job_that_must_fail_must_leave_nothing() -> None:
    def code(ctx: Context) -> None:
        ctx.effects.put("Marks", {"job": ctx.job_id})
        raise Dead("no such account")

    assert_effect_lands_once(job(code), "job", tables=TABLES, ends="dead", lines=False)
    assert "ends dead, not succeeded" in found(job(code), tables=TABLES)


def test_a_loop_of_twenty_is_struck_as_often_as_one_of_five() -> None:
    def code(ctx: Context, parts: int) -> None:
        for part in range(ctx.last_checkpoint or 0, parts):
            ctx.checkpoint(part + 1)
        ctx.effects.put("Marks", {"job": ctx.job_id})

    def run(parts: int) -> FaultReport:
        return assert_effect_lands_once(job(code), "job", {"parts": parts}, tables=TABLES, lines=False)

    few, many = run(5), run(20)
    assert many.lives == few.lives
    assert many.moments - few.moments == 15


def test_a_killed_process_calls_nobody_any_more() -> None:
    stripe = Receiver("stripe", knows_keys=False)

    def code(ctx: Context) -> None:
        try:
            ctx.checkpoint(1)
        finally:
            if ctx.attempt == 1:
                stripe("released")
        if ctx.attempt > 1:
            stripe("released")

    assert_effect_lands_once(job(code), "job", receivers=[stripe], only="crash-4")


# --- other promises --------------------------------------------------------------------------------------------------------


def test_at_least_once_says_how_often_it_landed_twice() -> None:
    outside = Outside()

    def code(ctx: Context) -> None:
        outside.effect()

    report = assert_effect_lands_once(job(code), "job", guarantee="at-least-once", **outside.seen)
    assert report.tolerated["twice"] >= 4
    assert report.summary.endswith(f"twice in {report.tolerated['twice']}, as at-least-once allows")


@pytest.mark.parametrize("life", ["duplicate-1", "redelivery", "replay", "freeze-3"])
def test_what_comes_twice_runs_twice_where_nothing_fences_it(life: str) -> None:
    outside = Outside()

    def code(ctx: Context) -> None:
        outside.count += 1

    report = assert_effect_lands_once(job(code), "job", guarantee="at-least-once", only=life, **outside.seen)
    assert report.tolerated == {"twice": 1}


def test_at_least_once_is_not_never() -> None:
    outside, begun = Outside(), set[str]()

    def code(ctx: Context) -> None:
        if ctx.job_id in begun:
            return
        begun.add(ctx.job_id)
        outside.effect()

    assert "landed never" in found(job(code), guarantee="at-least-once", **outside.seen)


def test_a_job_of_one_attempt_may_die_without_its_effect_but_not_with_two() -> None:
    stripe = Receiver("stripe")

    def code(ctx: Context) -> None:
        stripe()

    once = assert_effect_lands_once(job(code, max_attempts=1), "job", receivers=[stripe], only="crash-2")
    assert once.summary == ("job: 1 life (crash 1); its effect landed at most once, and in 1 not at all, as it has one attempt")

    def refuses_to_go_on(ctx: Context) -> None:
        if ctx.attempt > 1:
            raise Dead("somebody was here before")
        stripe()

    assert "landed never" in found(job(refuses_to_go_on, max_attempts=2), receivers=[stripe], only="crash-2")


# --- tests that could not fail ---------------------------------------------------------------------------------------------


def test_an_effect_that_nobody_looks_at_is_no_pass() -> None:
    outside = Outside()

    def code(ctx: Context) -> None:
        outside.effect()

    assert "changes nothing that is looked at (table Counts, table Marks)" in found(job(code), tables=TABLES)
    assert "two undisturbed lives differ in observed" in found(job(code), observe=outside.observe)


@pytest.mark.parametrize(
    ("name", "more", "told"),
    [
        ("typo", {}, "no job named 'typo', only job"),
        ("job", {"only": "crash-99"}, "there is no life 'crash-99'"),
        ("job", {"guarantee": "exactly-once"}, "exactly-once"),
        ("job", {"ends": "well"}, "well"),
    ],
)
def test_what_there_is_not_is_a_value_error(name: str, more: dict[str, Any], told: str) -> None:
    def code(ctx: Context) -> None:
        ctx.effects.put("Marks", {"job": ctx.job_id})

    with pytest.raises(ValueError, match=told):
        assert_effect_lands_once(job(code), name, tables=TABLES, **more)


# --- the receiver ----------------------------------------------------------------------------------------------------------


def landed(receiver: Receiver) -> Sequence[bool]:
    return [call.landed for call in receiver.calls]


def test_a_receiver_answers_a_repeated_key_as_it_did_and_refuses_it_for_anything_else() -> None:
    numbers = iter(range(10))
    stripe = Receiver("stripe", answer=lambda *_, **__: next(numbers))
    assert [stripe(5, idempotency_key="k"), stripe(5, idempotency_key="k", token=2), stripe(5)] == [0, 0, 1]
    with pytest.raises(ReceiverRefused, match="stripe: the key 'k' was used with other arguments"):
        stripe(6, idempotency_key="k")
    assert landed(stripe) == [True, False, True, False]
    stripe.forget()
    assert (stripe.calls, stripe(6, idempotency_key="k")) == ([], 2)


def test_a_receiver_of_tokens_refuses_late_ones_and_calls_without() -> None:
    shelf = Receiver("shelf", knows_tokens=True, token="fence")
    shelf(fence=2)
    shelf(fence=2)
    shelf(fence=5)
    for late in ({"fence": 4}, {}):
        with pytest.raises(ReceiverRefused):
            shelf(**late)
    assert landed(shelf) == [True, True, True, False, False]
