"""The Python client over a real loopback connection: exact values, safe retries, errors a caller can tell apart."""

from __future__ import annotations

import json
import random
import socket
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from http.client import HTTPConnection
from typing import Any

import pytest

from ringfence import App, Context, Dead
from ringfence.client import Client, JobRequest, RawJson, Submitted
from ringfence.errors import NotFound, Rejected, StillRunning, Unavailable
from ringfence.job import Guarantee, State
from ringfence.memory.clock import ManualClock
from ringfence.testing.memory_api import Event, MemoryApi, served
from ringfence.testing.system import MemorySystem


def jobs() -> App:
    app = App()

    @app.job("double")
    def double(ctx: Context, n: int) -> dict[str, int]:
        return {"n": n * 2}

    @app.job("fail")
    def fail(ctx: Context) -> None:
        raise Dead("no")

    return app


class Front:
    """What stands between the client and the API: passes requests on, keeps them, and misbehaves as told."""

    def __init__(self, api: MemoryApi) -> None:
        self.api = api
        self.requests: list[Event] = []
        self.instead: list[Event | None] = []
        """What is answered instead of the next requests; None: the true answer."""

    def answer(self, event: Event) -> Event:
        self.requests.append(event)
        instead = self.instead.pop(0) if self.instead else None
        return instead or self.api.answer(event)


def refusing(status: int, retry_after: str | None = None) -> Event:
    headers = {} if retry_after is None else {"Retry-After": retry_after}
    return {"statusCode": status, "headers": headers, "body": '{"message":"Service Unavailable"}'}


@pytest.fixture
def front() -> Front:
    return Front(MemoryApi(MemorySystem(jobs()), wait_cap_seconds=20))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def client(front: Front, clock: ManualClock) -> Iterator[Client]:
    with (
        served(front.answer) as url,
        Client(url, front.api.key(), clock=clock, random_source=random.Random(1), timeout_seconds=5) as client,
    ):
        yield client


def run(front: Front) -> None:
    front.api.system.run_relay()
    while front.api.system.run_worker():
        pass


# --- the verbs -------------------------------------------------------------------------------------------------------


def test_a_job_goes_in_and_its_result_comes_out(front: Front, client: Client) -> None:
    submitted = client.submit("double", {"n": 2**60})
    assert client.get(submitted.job_id).state is State.QUEUED
    run(front)
    job = client.wait(submitted.job_id)
    assert (job.state, job.result, job.payload) == (State.SUCCEEDED, {"n": 2**61}, {"n": 2**60})


def test_every_option_reaches_the_job(front: Front, client: Client) -> None:
    at = datetime(2023, 11, 15, 1, 2, 3, 456_000, tzinfo=UTC)
    submitted = client.submit("double", queue="priority", run_at=at, max_attempts=9, ordering_key="o", idempotency_key="k")
    job = front.api.system.job(submitted.job_id)
    assert (job.queue, job.max_attempts, job.run_at) == ("priority", 9, 1_700_010_123_456)
    assert client.submit("double", queue="priority", idempotency_key="k").repeated


def test_a_job_without_a_row_is_sent_without_a_key(front: Front, client: Client) -> None:
    submitted = client.submit("double", {"n": 1}, guarantee="at-least-once")
    assert (submitted.guarantee, submitted.idempotency_key) == (Guarantee.AT_LEAST_ONCE, None)
    many = [JobRequest(name="double", payload={"n": 1}, guarantee=guarantee) for guarantee in Guarantee]
    once, light = client.submit_many(many)
    assert isinstance(once, Submitted)
    assert isinstance(light, Submitted)
    assert (once.guarantee, light.guarantee, light.idempotency_key) == (Guarantee.ONCE, Guarantee.AT_LEAST_ONCE, None)
    assert client.get(once.job_id).state is State.QUEUED
    for job_id in (submitted.job_id, light.job_id):
        with pytest.raises(NotFound, match="at-least-once"):
            client.wait(job_id)


def test_a_retry_may_submit_a_job_without_a_row_twice(front: Front, client: Client) -> None:
    """Which is what at least once says."""
    answer = front.api.answer

    def answer_lost(event: Event) -> Event:
        front.api.answer = answer  # type: ignore[method-assign]
        answer(event)
        return refusing(503)

    front.api.answer = answer_lost  # type: ignore[method-assign]
    client.submit("double", {"n": 1}, guarantee=Guarantee.AT_LEAST_ONCE)
    front.api.system.run_relay()
    assert front.api.system.memory_queues["default"].depth().ready == 2


def test_a_key_for_a_job_without_a_row_is_refused_and_an_unknown_guarantee_never_leaves(front: Front, client: Client) -> None:
    with pytest.raises(Rejected, match="guarantee once") as refusal:
        client.submit("double", guarantee="at-least-once", idempotency_key="k")
    assert (refusal.value.status, refusal.value.kind) == (422, "idempotency-key-needs-row")
    front.requests.clear()
    with pytest.raises(ValueError, match="exactly-once"):
        client.submit("double", guarantee="exactly-once")
    assert not front.requests


def test_raw_json_travels_in_its_own_text(front: Front, client: Client) -> None:
    text = '{ "a": 1.10, "b": [1E5, -0.0, "\\u00e9"] }'
    job_id = client.submit("double", RawJson(text)).job_id
    assert front.api.system.job(job_id).payload == text
    assert client.get(job_id).payload_text == text


@pytest.mark.parametrize(
    "payload", [float("nan"), float("inf"), "\ud800", RawJson("{} {}"), RawJson('{"a":1,"a":2}'), {1: object()}]
)
def test_what_is_not_json_never_leaves(front: Front, client: Client, payload: Any) -> None:
    with pytest.raises((ValueError, TypeError, Rejected)):
        client.submit("double", payload)
    with pytest.raises((ValueError, TypeError, Rejected)):
        client.submit_many([JobRequest(name="double", payload=payload)])
    assert not front.requests


def test_a_time_without_an_offset_never_leaves(front: Front, client: Client) -> None:
    with pytest.raises(ValueError, match="time zone"):
        client.submit("double", run_at=datetime(2030, 1, 1))
    assert not front.requests


@pytest.mark.parametrize(
    ("call", "named"),
    [
        (lambda client: client.submit("double", run_at="2026-12-01"), "run_at is to be a datetime or None, not str"),
        (lambda client: client.submit("double", run_at=date(2026, 12, 1)), "run_at is to be a datetime or None, not date"),
        (
            lambda client: client.submit("double", delay_seconds="10"),
            "delay_seconds is to be a whole number or a number or None, not str",
        ),
        (lambda client: client.submit("double", delay_seconds=timedelta(1)), "delay_seconds .* not timedelta"),
        (lambda client: client.submit("double", max_attempts="5"), "max_attempts is to be a whole number, not str"),
        (lambda client: client.submit(b"double"), "name is to be text, not bytes"),
        (lambda client: client.submit("double", idempotency_key=b"k"), "idempotency_key is to be text or None, not bytes"),
        (lambda client: client.submit("double", traceparent=1), "traceparent is to be text or None, not int"),
        (lambda client: client.submit_many([{"name": "double"}]), "request is to be a JobRequest, not dict"),
        (lambda client: client.get(7), "job_id is to be text, not int"),
        (lambda client: client.wait("a" * 26, "10"), "timeout_seconds .* not str"),
        (lambda client: list(client.list(limit="5")), "limit is to be a whole number or None, not str"),
        (lambda client: client.queue(None), "name is to be text, not None"),
        (lambda client: client.quarantine("5"), "limit is to be a whole number, not str"),
        (lambda client: client.set_queue("default", burst="5"), "burst is to be a whole number or left out, not str"),
        (lambda client: client.set_queue("default", rate_per_second="30/m"), "rate_per_second .* not str"),
        (lambda client: client.set_queue("default", paused="yes"), "paused is to be True or False or left out, not str"),
        (lambda client: client.get(None), "job_id is to be text, not None"),
        (lambda client: Client(7), "base_url is to be text, not int"),
        (lambda client: Client("http://127.0.0.1", b"rf_secret"), "api_key is to be text or None, not bytes"),
        (lambda client: Client("http://127.0.0.1", retry_seconds="5"), "retry_seconds .* not str"),
    ],
)
def test_an_argument_of_a_wrong_type_is_named_and_never_leaves(
    front: Front, client: Client, call: Callable[[Any], object], named: str
) -> None:
    with pytest.raises(TypeError, match=named) as told:
        call(client)
    assert "rf_secret" not in str(told.value)
    assert not front.requests


def test_jobs_are_listed_over_all_pages(front: Front, client: Client) -> None:
    outcomes = client.submit_many(JobRequest(name="double", payload={"n": n}) for n in range(230))
    ids = {outcome.job_id for outcome in outcomes if isinstance(outcome, Submitted)}
    assert {job.job_id for job in client.list()} == ids
    assert len(list(client.list(limit=130))) == 130
    assert list(client.list(state="dead")) == []


def test_a_dead_job_is_found_redriven_and_cancelled(front: Front, client: Client) -> None:
    job_id = client.submit("fail").job_id
    run(front)
    [dead] = client.list(state=State.DEAD)
    assert (dead.job_id, dead.error) == (job_id, "no")
    assert client.redrive(job_id, {"again": True}).payload == {"again": True}
    assert client.cancel(job_id).state is State.CANCELLED


def test_the_queues_tell_their_depths(front: Front, client: Client) -> None:
    client.submit("double")
    front.api.system.run_relay()
    assert client.queues()["default"].ready == 1


# --- errors ----------------------------------------------------------------------------------------------------------


def test_an_unknown_job_is_a_lookup_error(client: Client) -> None:
    with pytest.raises(NotFound) as caught:
        client.get("../../v1/health")
    assert isinstance(caught.value, LookupError)


def test_a_refusal_tells_its_kind_and_where(client: Client) -> None:
    with pytest.raises(Rejected) as caught:
        client.submit("no/such name")
    assert (caught.value.status, caught.value.kind, caught.value.pointer) == (422, "invalid-request", "/name")


def test_a_wrong_key_is_refused_at_once(front: Front, clock: ManualClock) -> None:
    with served(front.answer) as url, Client(url, "rf_" + "A" * 43, clock=clock) as client:
        with pytest.raises(Rejected) as caught:
            client.queues()
        assert caught.value.status == 401
        assert len(front.requests) == 1


def test_redriving_a_living_job_is_refused(client: Client) -> None:
    job_id = client.submit("double").job_id
    with pytest.raises(Rejected) as caught:
        client.redrive(job_id)
    assert caught.value.kind == "not-dead"


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:8080", "ftp://host", "http://user:secret@host", "http://host/?q", "http://host/#f"]
)
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ValueError):
        Client(url)


def test_a_key_is_not_sent_unencrypted_to_another_machine() -> None:
    with pytest.raises(ValueError, match="unencrypted"):
        Client("http://queue.example", "rf_x")
    Client("https://queue.example", "rf_x")
    Client("http://queue.example", "rf_x", allow_plain_http=True)


# --- patience --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("status", [429, 502, 503, 504])
def test_a_submission_is_sent_again_under_its_key_until_it_is_accepted(
    front: Front, client: Client, clock: ManualClock, status: int
) -> None:
    front.instead = [refusing(status), refusing(status, retry_after="7")]
    submitted = client.submit("double", {"n": 1})
    assert submitted.repeated is False
    assert len({event["body"] for event in front.requests}) == 1
    assert len(front.requests) == 3
    assert 7 <= clock.monotonic() < 15


def test_a_lost_answer_does_not_make_a_second_job(front: Front, client: Client) -> None:
    true_answer = front.api.answer

    def answer_lost(event: Event) -> Event:
        front.api.answer = true_answer  # type: ignore[method-assign]
        true_answer(event)
        return refusing(502)

    front.api.answer = answer_lost  # type: ignore[method-assign]
    submitted = client.submit("double", {"n": 1})
    assert submitted.repeated
    assert [job.job_id for job in client.list()] == [submitted.job_id]


def test_a_redrive_whose_answer_was_lost_has_been_done(front: Front, client: Client) -> None:
    job_id = client.submit("fail").job_id
    run(front)
    front.api.request("POST", f"/v1/jobs/{job_id}/redrive", key=front.api.key())
    front.instead = [refusing(502)]
    assert client.redrive(job_id).state is State.SCHEDULED


def test_patience_ends(front: Front, client: Client, clock: ManualClock) -> None:
    front.instead = [refusing(503)] * 1_000
    with pytest.raises(Unavailable):
        client.get("a" * 26)
    assert clock.monotonic() <= 30
    assert 5 < len(front.requests) < 60


def test_a_wait_longer_than_the_patience_is_not_begun(front: Front, client: Client, clock: ManualClock) -> None:
    front.instead = [refusing(503, retry_after="3600")]
    with pytest.raises(Unavailable) as caught:
        client.get("a" * 26)
    assert caught.value.retry_after_seconds == 3_600
    assert clock.monotonic() == 0


def test_other_faults_of_the_server_are_not_hammered(front: Front, client: Client) -> None:
    front.instead = [refusing(500)]
    with pytest.raises(Unavailable):
        client.get("a" * 26)
    assert len(front.requests) == 1


def test_nobody_listening_is_unavailable(clock: ManualClock) -> None:
    with served(lambda event: {}) as url:
        pass
    with pytest.raises(Unavailable, match="cannot be reached"):
        Client(url, clock=clock).queues()
    assert clock.monotonic() > 20


def test_a_kept_alive_connection_is_used_again(front: Front, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[None] = []
    connect = HTTPConnection.connect
    monkeypatch.setattr(HTTPConnection, "connect", lambda self: (opened.append(None), connect(self))[1])
    for _ in range(5):
        client.submit("double")
    assert len(opened) == 1


def test_a_connection_that_was_closed_while_idle_is_opened_again_at_once(client: Client, clock: ManualClock) -> None:
    client.submit("double")
    (own,) = client._transport._idle
    assert own.sock is not None
    own.sock.shutdown(socket.SHUT_RDWR)
    client.submit("double")
    assert clock.monotonic() == 0


# --- waiting ---------------------------------------------------------------------------------------------------------


def test_waiting_ends_with_the_time(front: Front, client: Client, clock: ManualClock) -> None:
    front.api.settings = type(front.api.settings)(ledger_table="m", stream="m", queues={}, wait_cap_seconds=0)
    job_id = client.submit("double").job_id
    asked_before = len(front.requests)
    with pytest.raises(StillRunning) as caught:
        client.wait(job_id, timeout_seconds=60)
    assert isinstance(caught.value, TimeoutError)
    assert clock.monotonic() == pytest.approx(60)
    assert 10 < len(front.requests) - asked_before < 40, "less and less often"


@pytest.mark.parametrize(("timeout_seconds", "least", "most"), [(5, 1, 5), (0, 0.1, 1), (100, 20, 30)])
def test_waiting_for_an_api_that_is_not_there_ends_with_the_time_and_with_the_patience(
    clock: ManualClock, timeout_seconds: float, least: float, most: float
) -> None:
    with served(lambda event: {}) as url:
        pass
    with pytest.raises(Unavailable, match="cannot be reached"):
        Client(url, clock=clock, random_source=random.Random(1)).wait("a" * 26, timeout_seconds)
    assert least <= clock.monotonic() <= most


def test_an_api_that_holds_requests_is_asked_to(front: Front, client: Client) -> None:
    job_id = client.submit("fail").job_id
    run(front)
    assert client.wait(job_id, timeout_seconds=5).state is State.DEAD
    assert front.requests[-1]["rawQueryString"] == "wait=5.000"


# --- many ------------------------------------------------------------------------------------------------------------


def test_many_jobs_go_in_five_hundred_at_a_time_and_in_order(front: Front, client: Client) -> None:
    outcomes = client.submit_many(JobRequest(name="double", payload={"n": n}) for n in range(1_203))
    assert len(front.requests) == 3
    payloads = [front.api.system.job(outcome.job_id).payload for outcome in outcomes if isinstance(outcome, Submitted)]
    assert payloads == [f'{{"n":{n}}}' for n in range(1_203)]


def test_large_jobs_are_split_by_their_bytes(front: Front, client: Client) -> None:
    outcomes = client.submit_many(JobRequest(name="double", payload="x" * 30_000) for _ in range(150))
    assert all(isinstance(outcome, Submitted) for outcome in outcomes)
    assert len(front.requests) == 3


def test_requests_are_taken_only_as_they_are_sent(front: Front, client: Client) -> None:
    taken: list[int] = []

    def endless() -> Iterator[JobRequest]:
        n = 0
        while True:
            taken.append(n)
            yield JobRequest(name="double", payload={"n": n})
            n += 1

    batches = client.submit_in_batches(endless())
    assert len(next(batches)) == 500
    assert len(taken) <= 501


def test_each_refused_job_of_many_has_its_own_error(front: Front, client: Client) -> None:
    client.submit("double", {"n": 1}, idempotency_key="k")
    outcomes = client.submit_many(
        [
            JobRequest(name="double"),
            JobRequest(name="double", payload={"n": 2}, idempotency_key="k"),
            JobRequest(name="double", payload="x" * 40_000),
        ]
    )
    assert isinstance(outcomes[0], Submitted)
    assert [outcome.kind for outcome in outcomes if isinstance(outcome, Rejected)] == [
        "idempotency-key-reused",
        "payload-too-large",
    ]


def test_a_malformed_job_is_blamed_and_its_neighbours_are_told(front: Front, client: Client) -> None:
    outcomes = client.submit_many([JobRequest(name="double"), JobRequest(name="no/name"), JobRequest(name="double")])
    assert [outcome.kind for outcome in outcomes if isinstance(outcome, Rejected)] == [
        "batch-refused",
        "invalid-request",
        "batch-refused",
    ]
    assert isinstance(outcomes[1], Rejected)
    assert outcomes[1].pointer == "/name"
    assert list(client.list()) == []


def test_only_the_jobs_that_were_refused_for_now_are_sent_again(front: Front, client: Client, clock: ManualClock) -> None:
    first = client.submit("double").job_id
    busy = {"type": "https://ringfence.dev/problems/unavailable", "title": "Unavailable", "status": 503, "detail": "busy"}
    entries = [
        {"status": 202, "job_id": first, "state": "queued", "repeated": False},
        {"status": 503, "problem": busy, "retry_after_seconds": 2.0},
        {"status": 503, "problem": busy, "retry_after_seconds": 2.0},
    ]
    front.instead = [{"statusCode": 207, "headers": {}, "body": json.dumps({"jobs": entries})}]
    outcomes = client.submit_many(JobRequest(name="double", payload={"n": n}) for n in range(3))
    assert all(isinstance(outcome, Submitted) for outcome in outcomes)
    assert len(front.api.system.ledger.list_jobs("default", ["default"]).jobs) == 3
    assert clock.monotonic() >= 2


def test_an_answer_of_another_number_of_jobs_is_none(front: Front, client: Client) -> None:
    front.instead = [{"statusCode": 202, "headers": {}, "body": '{"jobs": []}'}]
    (outcome,) = client.submit_many([JobRequest(name="double")])
    assert isinstance(outcome, Submitted)


def test_a_batch_and_its_requests_share_one_patience(front: Front, client: Client, clock: ManualClock) -> None:
    """Refused by entry for most of it, and then as a whole."""
    busy = {"type": "https://ringfence.dev/problems/unavailable", "title": "Unavailable", "status": 503, "detail": "busy"}
    entry = {"status": 503, "problem": busy, "retry_after_seconds": 25.0}
    front.instead = [{"statusCode": 207, "headers": {}, "body": json.dumps({"jobs": [entry]})}, *[refusing(503)] * 1_000]
    (outcome,) = client.submit_many([JobRequest(name="double")])
    assert isinstance(outcome, Unavailable)
    assert 25 <= clock.monotonic() <= 30


def test_jobs_that_stay_refused_for_now_end_as_unavailable(front: Front, client: Client, clock: ManualClock) -> None:
    front.instead = [refusing(503)] * 1_000
    outcomes = client.submit_many([JobRequest(name="double")] * 3)
    assert all(isinstance(outcome, Unavailable) for outcome in outcomes)
    assert clock.monotonic() <= 30


def test_a_key_with_a_line_break_is_refused_before_anything_is_sent() -> None:
    for wrong in ("rf_abc\n", "\n", "rf_a b", "rf_é"):
        with pytest.raises(ValueError, match="no key has"):
            Client("http://127.0.0.1:1", wrong)
