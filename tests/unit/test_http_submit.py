"""Submitting over HTTP: what is accepted, what is refused and where the answer points (C01, C02, C03, C04)."""

from __future__ import annotations

import json
import time
import tracemalloc
from typing import Any

import pytest

from ringfence import App
from ringfence.http.request import MAX_BODY_BYTES
from ringfence.jsontext import MAX_DEPTH, sha256
from ringfence.testing.faults import Faulty, unavailable
from ringfence.testing.memory_api import Answered, MemoryApi
from ringfence.testing.system import MemorySystem
from ringfence.wire import MAX_PAYLOAD_BYTES

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture
def api() -> MemoryApi:
    return MemoryApi(MemorySystem(App()))


def submit(api: MemoryApi, body: Any, **headers: str) -> Answered:
    text = body if isinstance(body, str | bytes) else json.dumps(body)
    return api.request("POST", "/v1/jobs", text, key=api.key(), **headers)


def nothing_was_accepted(api: MemoryApi) -> bool:
    return not api.system.memory_log.read() and not api.system.ledger.list_jobs("default", ["default"]).jobs


def test_an_accepted_job_is_answered_with_its_place_and_state(api: MemoryApi) -> None:
    answer = submit(api, {"name": "signup", "payload": {"email": "ada@example.com"}})
    assert answer.status == 202
    assert answer.headers["location"] == f"/v1/jobs/{answer.document['job_id']}"
    assert answer.document["state"] == "queued"
    assert answer.document["repeated"] is False
    assert api.system.job(answer.document["job_id"]).payload == '{"email": "ada@example.com"}'


def test_every_field_reaches_the_job(api: MemoryApi) -> None:
    body = {"name": "a", "queue": "priority", "delay_seconds": 1.5, "max_attempts": 7, "ordering_key": "customer 7"}
    job = api.system.job(submit(api, body, traceparent=TRACEPARENT).document["job_id"])
    assert (job.queue, job.max_attempts, job.traceparent) == ("priority", 7, TRACEPARENT)
    assert job.run_at == api.clock.now() + 1_500


def test_a_job_without_a_payload_has_an_empty_object(api: MemoryApi) -> None:
    assert api.system.job(submit(api, {"name": "a"}).document["job_id"]).payload == "{}"


@pytest.mark.parametrize(
    ("written", "millis"),
    [
        ("2023-11-14T23:00:00Z", 1_700_002_800_000),
        ("2023-11-15T01:00:00.5+02:00", 1_700_002_800_500),
        ("2023-11-14T23:00:00.000001Z", 1_700_002_800_001),
    ],
    ids=["utc", "an offset", "never before its time"],
)
def test_c12_a_time_to_run_at_is_kept_to_the_millisecond(api: MemoryApi, written: str, millis: int) -> None:
    assert api.system.job(submit(api, {"name": "a", "run_at": written}).document["job_id"]).run_at == millis


@pytest.mark.parametrize(
    "header", ["00-zz-b7ad6b7169203331-01", "", f"ff{TRACEPARENT[2:]}", f"00-{'0' * 32}-b7ad6b7169203331-01"]
)
def test_a_trace_context_that_is_none_is_forgotten(api: MemoryApi, header: str) -> None:
    assert api.system.job(submit(api, {"name": "a"}, traceparent=header).document["job_id"]).traceparent is None


# --- exact values ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "payload",
    [
        "9007199254740993",
        "[1e300, -0.0, 1E5, 1.0, 0.1]",
        '{"z": 1, "a": {"nested": [true, null, ""]}}',
        '"\\u0000\\ud83d\\ude00 \u202e é"',
        '{ "white" :\t"space" }',
        "123456789012345678901234567890",
        "null",
    ],
)
def test_a_payload_comes_back_in_its_own_text(api: MemoryApi, payload: str) -> None:
    answer = submit(api, f'{{"name": "a", "payload": {payload}}}'.encode())
    shown = api.request("GET", answer.headers["location"], key=api.key())
    assert f'"payload":{payload}' in shown.text
    assert shown.document["payload_sha256"] == answer.document["payload_sha256"] == sha256(payload)


# --- idempotency keys ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("payloads", [("1", "2"), ("1", "1")], ids=["different", "alike"])
def test_c01_without_a_key_two_requests_are_two_jobs(api: MemoryApi, payloads: tuple[str, str]) -> None:
    answers = [submit(api, {"name": "a", "payload": payload}) for payload in payloads]
    assert len({answer.document["job_id"] for answer in answers}) == 2
    assert [answer.document["repeated"] for answer in answers] == [False, False]
    assert [api.system.job(answer.document["job_id"]).payload for answer in answers] == [f'"{payload}"' for payload in payloads]


@pytest.mark.parametrize("value", ["", "   ", '""', '"  "', '"never closed', 'a"b', "two, keys", '"a", "b"', "é", "x" * 256])
def test_c01_a_blank_or_malformed_key_is_refused(api: MemoryApi, value: str) -> None:
    answer = submit(api, {"name": "a"}, idempotency_key=value)
    assert (answer.status, answer.kind) == (400, "invalid-idempotency-key")
    assert nothing_was_accepted(api)


@pytest.mark.parametrize("value", [":", '"--"', "[][]"])
def test_c01_a_key_put_together_from_missing_parts_is_refused(api: MemoryApi, value: str) -> None:
    assert submit(api, {"name": "a"}, idempotency_key=value).status == 400


def test_c01_a_key_that_reads_null_is_a_key_like_any_other(api: MemoryApi) -> None:
    first, second = (submit(api, {"name": "a"}, idempotency_key="null") for _ in range(2))
    assert first.document["job_id"] == second.document["job_id"]


def test_a_quoted_key_a_bare_one_and_the_field_are_the_same_key(api: MemoryApi) -> None:
    quoted = submit(api, {"name": "a"}, idempotency_key='"order-1"')
    bare = submit(api, {"name": "a"}, idempotency_key=" order-1 ")
    field = submit(api, {"name": "a", "idempotency_key": "order-1"})
    both = submit(api, {"name": "a", "idempotency_key": "order-1"}, idempotency_key="order-1")
    assert len({answer.document["job_id"] for answer in (quoted, bare, field, both)}) == 1
    assert [answer.document["repeated"] for answer in (quoted, bare, field, both)] == [False, True, True, True]


def test_a_quoted_key_may_hold_spaces_and_escaped_quotes(api: MemoryApi) -> None:
    quoted = submit(api, {"name": "a"}, idempotency_key=r'"say \"hi\" \\ twice"')
    field = submit(api, {"name": "a", "idempotency_key": 'say "hi" \\ twice'})
    assert quoted.document["job_id"] == field.document["job_id"]


def test_a_header_and_a_field_that_differ_are_refused(api: MemoryApi) -> None:
    answer = submit(api, {"name": "a", "idempotency_key": "k1"}, idempotency_key="k2")
    assert (answer.status, answer.kind) == (400, "idempotency-keys-differ")
    assert nothing_was_accepted(api)


def test_one_header_cannot_stand_for_many_jobs(api: MemoryApi) -> None:
    assert submit(api, {"jobs": [{"name": "a"}]}, idempotency_key="k").status == 400
    assert nothing_was_accepted(api)


def test_c02_a_key_means_one_request_for_good(api: MemoryApi) -> None:
    def send(payload: str) -> Answered:
        return submit(api, f'{{"name":"pay","payload":{payload}}}', idempotency_key="k")

    first = send('{"amount":1,"currency":"EUR"}')
    assert first.status == 202
    appended = len(api.system.memory_log.read())
    for other in ('{"amount":2,"currency":"EUR"}', '{"amount":2,"currency":"EUR"}', '{"amount":1.0,"currency":"EUR"}'):
        refused = send(other)
        assert (refused.status, refused.kind) == (422, "idempotency-key-reused")
    assert len(api.system.memory_log.read()) == appended, "what is refused creates no job"
    assert [job.job_id for job in api.system.memory_ledger.all_jobs()] == [first.document["job_id"]]
    for same in ('{"amount":1,"currency":"EUR"}', '{ "currency": "EUR", "amount": 1 }'):
        repeated = send(same)
        assert repeated.status == 202
        assert repeated.document["job_id"] == first.document["job_id"]
        assert repeated.document["repeated"] is True


# --- at least once ---------------------------------------------------------------------------------------------------


LIGHT = {"name": "a", "guarantee": "at-least-once"}


def test_a_job_without_a_row_is_accepted_without_a_page_to_look_at(api: MemoryApi) -> None:
    answer = submit(api, {**LIGHT, "payload": [1.0]})
    assert answer.status == 202
    assert "location" not in answer.headers
    assert (answer.document["state"], answer.document["guarantee"]) == ("queued", "at-least-once")
    assert answer.document["payload_sha256"] == sha256("[1.0]")
    assert not api.system.ledger.list_jobs("default", ["default"]).jobs
    job_id = answer.document["job_id"]
    for method, path in (("GET", ""), ("POST", "/cancel"), ("POST", "/redrive")):
        refused = api.request(method, f"/v1/jobs/{job_id}{path}", key=api.key())
        assert (refused.status, refused.kind) == (404, "not-found")
        assert "at-least-once" in refused.document["detail"]


def test_the_guarantee_that_is_not_named_is_once_and_is_told(api: MemoryApi) -> None:
    for body in ({"name": "a"}, {"name": "a", "guarantee": "once"}):
        answer = submit(api, body)
        assert answer.document["guarantee"] == "once"
        assert api.request("GET", answer.headers["location"], key=api.key()).status == 200


def test_a_key_in_the_header_or_the_body_is_refused_for_a_job_without_a_row(api: MemoryApi) -> None:
    for answer in (submit(api, LIGHT, idempotency_key="k"), submit(api, {**LIGHT, "idempotency_key": "k"})):
        assert (answer.status, answer.kind) == (422, "idempotency-key-needs-row")
        assert answer.document["pointer"] == "/idempotency_key"
        assert "guarantee once" in answer.document["detail"]
    assert nothing_was_accepted(api)


def test_jobs_of_both_guarantees_may_be_submitted_together(api: MemoryApi) -> None:
    answer = submit(api, {"jobs": [LIGHT, {"name": "a", "idempotency_key": "k"}, LIGHT]})
    assert answer.status == 202
    assert [entry["guarantee"] for entry in answer.document["jobs"]] == ["at-least-once", "once", "at-least-once"]
    answer = submit(api, {"jobs": [LIGHT, {**LIGHT, "idempotency_key": "k"}, {"name": "a"}]})
    assert answer.status == 207
    assert [entry["status"] for entry in answer.document["jobs"]] == [202, 422, 202]
    assert answer.document["jobs"][1]["problem"]["pointer"] == "/jobs/1/idempotency_key"
    assert "guarantee" not in answer.document["jobs"][1]


# --- hostile and malformed bodies ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "status", "kind"),
    [
        ("[" * 20_000 + "]" * 20_000, 422, "too-deep"),
        ('{"name":"a","payload":' + "[" * 20_000, 422, "too-deep"),
        ('{"a":NaN}', 400, "not-json"),
        ('{"name":"a","payload":Infinity}', 400, "not-json"),
        ("[1e999]", 422, "number-out-of-range"),
        ('{"a":1,"a":2}', 422, "duplicate-key"),
        ('{"name":"a","name":"a"}', 422, "duplicate-key"),
        ('{"name":"a","payload":' + "9" * 5_000 + "}", 422, "number-too-long"),
        ('{"name":"a","payload":"\\ud800"}', 422, "lone-surrogate"),
        ("\ufeff{}", 400, "not-json"),
        (b'{"name":"\xff"}', 400, "not-utf8"),
        (b"\xed\xa0\x80", 400, "not-utf8"),
        ("", 400, "empty-body"),
        ("  \n", 400, "empty-body"),
        ('{"name":"a"', 400, "not-json"),
        ('{"name":"a"} {}', 400, "not-json"),
        ("[]", 422, "invalid-request"),
        ("7", 422, "invalid-request"),
        ('{"jobs":[]}', 422, "invalid-request"),
        ('{"jobs":{}}', 422, "invalid-request"),
        ('{"jobs":[{"name":"a"}],"name":"a"}', 422, "invalid-request"),
    ],
    ids=lambda value: str(value)[:24],
)
def test_c03_a_hostile_body_is_refused_at_once_and_reaches_nothing(
    api: MemoryApi, body: str | bytes, status: int, kind: str
) -> None:
    started = time.thread_time()
    answer = submit(api, body)
    assert (answer.status, answer.kind) == (status, kind)
    assert answer.headers["content-type"] == "application/problem+json"
    assert time.thread_time() - started < 0.2
    assert nothing_was_accepted(api)


@pytest.mark.parametrize("body", ["%%%", "a", "é", "\ud800"])
def test_c03_a_body_that_only_claims_to_be_base64_is_refused(api: MemoryApi, body: str) -> None:
    event = {
        "rawPath": "/v1/jobs",
        "headers": {"authorization": f"Bearer {api.key()}"},
        "requestContext": {"stage": "$default", "http": {"method": "POST"}},
        "body": body,
        "isBase64Encoded": True,
    }
    answer = api.answer(event)
    assert answer["statusCode"] == 400
    assert json.loads(answer["body"])["type"].endswith("/not-base64")


def test_c03_a_large_hostile_body_is_refused_in_linear_time(api: MemoryApi) -> None:
    for body in ('{"name":"a","payload":' + "9" * 5_000_000 + ".5}", '{"name":"a","payload":"' + "\\" * 4_000_000):
        started = time.thread_time()
        assert submit(api, body).status in (400, 422)
        assert time.thread_time() - started < 2


@pytest.mark.parametrize(
    "small", ["[" * 20_000 + "]" * 20_000, "9" * 5_000, '"' + "\\ud800" * 5_000 + '"'], ids=lambda t: t[:8]
)
def test_c03_a_small_hostile_body_takes_no_memory_to_speak_of(api: MemoryApi, small: str) -> None:
    body, key = f'{{"name":"a","payload":{small}}}', api.key()
    api.request("POST", "/v1/jobs", body, key)  # what is only made once is made
    tracemalloc.start()
    try:
        api.request("POST", "/v1/jobs", body, key)
        _, most_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most_bytes < 400_000


@pytest.mark.parametrize("depth", [MAX_DEPTH, MAX_DEPTH + 1])
@pytest.mark.parametrize("many", [False, True])
def test_c03_the_depth_limit_is_the_payloads_own(api: MemoryApi, depth: int, many: bool) -> None:
    job = {"name": "a", "payload": json.loads("[" * depth + "]" * depth)}
    answer = submit(api, {"jobs": [{"name": "a"}, job]} if many else job)
    if depth == MAX_DEPTH:
        assert answer.status == 202
    else:
        assert (answer.status, answer.kind) == (422, "too-deep")
        assert answer.document["pointer"] == ("/jobs/1/payload" if many else "/payload")


@pytest.mark.parametrize(
    ("job", "pointer"),
    [
        ({}, "/name"),
        ({"name": 7}, "/name"),
        ({"name": ""}, "/name"),
        ({"name": "a/b"}, "/name"),
        ({"name": "a\n"}, "/name"),
        ({"name": "x" * 65}, "/name"),
        ({"name": "a", "queue": "a b"}, "/queue"),
        ({"name": "a", "job_id": "mine"}, "/job_id"),
        ({"name": "a", "token": 9}, "/token"),
        ({"name": "a", "attempts": 0}, "/attempts"),
        ({"name": "a", "state": "succeeded"}, "/state"),
        ({"name": "a", "tenant": "other"}, "/tenant"),
        ({"name": "a", "odd/field~": 1}, "/odd~1field~0"),
        ({"name": "a", "max_attempts": 0}, "/max_attempts"),
        ({"name": "a", "max_attempts": 101}, "/max_attempts"),
        ({"name": "a", "max_attempts": True}, "/max_attempts"),
        ({"name": "a", "delay_seconds": -1}, "/delay_seconds"),
        ({"name": "a", "delay_seconds": 1e9}, "/delay_seconds"),
        ({"name": "a", "delay_seconds": "5"}, "/delay_seconds"),
        ({"name": "a", "run_at": "2030-01-01T00:00:00"}, "/run_at"),
        ({"name": "a", "run_at": "tomorrow"}, "/run_at"),
        ({"name": "a", "run_at": 1_900_000_000}, "/run_at"),
        ({"name": "a", "delay_seconds": 1, "run_at": "2030-01-01T00:00:00Z"}, "/run_at"),
        ({"name": "a", "idempotency_key": ""}, "/idempotency_key"),
        ({"name": "a", "idempotency_key": " "}, "/idempotency_key"),
        ({"name": "a", "idempotency_key": "k\n"}, "/idempotency_key"),
        ({"name": "a", "ordering_key": ""}, "/ordering_key"),
        ({"name": "a", "guarantee": "exactly-once"}, "/guarantee"),
        ({"name": "a", "guarantee": None}, "/guarantee"),
    ],
    ids=lambda value: json.dumps(value)[:40],
)
def test_a_malformed_job_is_refused_with_a_pointer(api: MemoryApi, job: Any, pointer: str) -> None:
    alone, among_others = submit(api, job), submit(api, {"jobs": [{"name": "fine"}, {"name": "fine"}, {"name": "fine"}, job]})
    assert (alone.status, alone.document["pointer"]) == (422, pointer)
    assert (among_others.status, among_others.document["pointer"]) == (422, f"/jobs/3{pointer}")
    assert nothing_was_accepted(api)


def test_an_unknown_queue_is_refused(api: MemoryApi) -> None:
    answer = submit(api, {"name": "a", "queue": "nowhere"})
    assert (answer.status, answer.kind, answer.document["pointer"]) == (422, "unknown-queue", "/queue")


def test_an_answer_never_grows_with_its_request(api: MemoryApi) -> None:
    answer = submit(api, {"name": "a", "x" * 100_000: 1})
    assert answer.status == 422
    assert len(answer.document["detail"]) <= 500


# --- sizes -----------------------------------------------------------------------------------------------------------


def texts_of_bytes(size: int) -> dict[str, str]:
    """JSON strings whose text has exactly ``size`` bytes of UTF-8."""
    room = size - 2
    return {
        "ascii": '"' + "a" * room + '"',
        "emoji": '"' + "😀" * (room // 4) + "a" * (room % 4) + '"',
        "escapes": '"' + "\\u00e9" * (room // 6) + "a" * (room % 6) + '"',
        "quotes": '"' + '\\"' * (room // 2) + "a" * (room % 2) + '"',
    }


@pytest.mark.parametrize("made_of", ["ascii", "emoji", "escapes", "quotes"])
@pytest.mark.parametrize("over", [-1, 0, 1])
def test_c04_the_limit_counts_the_bytes_of_the_payloads_text(api: MemoryApi, made_of: str, over: int) -> None:
    payload = texts_of_bytes(MAX_PAYLOAD_BYTES + over)[made_of]
    answer = submit(api, f'{{"name":"a","payload":{payload}}}'.encode())
    if over <= 0:
        assert answer.status == 202
        api.system.run_relay()
        assert api.system.job(answer.document["job_id"]).payload == payload
        assert answer.document["payload_sha256"] == sha256(payload)
    else:
        assert (answer.status, answer.kind, answer.document["pointer"]) == (413, "payload-too-large", "/payload")
        assert nothing_was_accepted(api)


def test_c04_many_jobs_under_the_limit_are_accepted_though_their_sum_is_over_it(api: MemoryApi) -> None:
    answer = submit(api, {"jobs": [{"name": "a", "payload": "x" * 30_000} for _ in range(20)]})
    assert answer.status == 202
    assert len(answer.document["jobs"]) == 20


def test_c04_a_body_that_lambda_would_not_take_is_refused(api: MemoryApi) -> None:
    answer = submit(api, " " * (MAX_BODY_BYTES + 1))
    assert (answer.status, answer.kind) == (413, "body-too-large")


# --- many ------------------------------------------------------------------------------------------------------------


def test_many_jobs_are_answered_in_their_order(api: MemoryApi) -> None:
    answer = submit(api, {"jobs": [{"name": "a", "payload": n} for n in range(500)]})
    assert answer.status == 202
    accepted = [api.system.job(entry["job_id"]).payload for entry in answer.document["jobs"]]
    assert accepted == [str(n) for n in range(500)]
    assert {entry["status"] for entry in answer.document["jobs"]} == {202}


def test_more_than_five_hundred_jobs_are_refused(api: MemoryApi) -> None:
    answer = submit(api, {"jobs": [{"name": "a"}] * 501})
    assert (answer.status, answer.document["pointer"]) == (422, "/jobs")


def test_what_the_gateway_refuses_among_many_is_told_entry_by_entry(api: MemoryApi) -> None:
    submit(api, {"name": "a", "payload": 1, "idempotency_key": "k"})
    answer = submit(
        api,
        {
            "jobs": [
                {"name": "a"},
                {"name": "a", "payload": 2, "idempotency_key": "k"},
                {"name": "a", "queue": "nowhere"},
                {"name": "a", "payload": 1, "idempotency_key": "k"},
                {"name": "a", "payload": "x" * MAX_PAYLOAD_BYTES},
            ]
        },
    )
    assert answer.status == 207
    entries = answer.document["jobs"]
    assert [entry["status"] for entry in entries] == [202, 422, 422, 202, 413]
    assert [entry.get("repeated") for entry in entries] == [False, None, None, True, None]
    assert [entry["problem"]["pointer"] for entry in entries if "problem" in entry] == [
        "/jobs/1/idempotency_key",
        "/jobs/2/queue",
        "/jobs/4/payload",
    ]


# --- a busy ledger ---------------------------------------------------------------------------------------------------


def test_a_busy_ledger_is_a_503_that_says_when_to_come_again() -> None:
    faulty = lambda name, port: Faulty(port, [unavailable("register")]) if name == "ledger" else port  # noqa: E731
    api = MemoryApi(MemorySystem(App(), wrap=faulty))
    answer = submit(api, {"name": "a"}, idempotency_key="k")
    assert (answer.status, answer.kind) == (503, "unavailable")
    assert int(answer.headers["retry-after"]) >= 1
    assert submit(api, {"name": "a"}, idempotency_key="k").status == 202
