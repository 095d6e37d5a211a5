"""Every cap, at its last step and one step beyond, on each way a client has: nothing that a client sends is without a bound."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from ringfence.gateway import MAX_SET_ASIDE
from ringfence.http.request import MAX_BODY_BYTES, MAX_QUERY_PARAMETERS
from ringfence.http.submissions import MAX_JOBS
from ringfence.jsontext import MAX_DEPTH, MAX_NUMBER_CHARACTERS
from ringfence.queue_settings import MAX_BURST, MAX_HIGH_WATER_MARK, MAX_RATE_PER_SECOND, MIN_RATE_PER_SECOND
from ringfence.testing.memory_api import Answered, MemoryApi
from ringfence.transitions import MAX_AHEAD_SECONDS
from ringfence.wire import MAX_PAYLOAD_BYTES

from .operations import OPERATIONS

DEAD_TO_BE = '{"name":"fail"}'

Sends = Callable[[MemoryApi, str], Answered]
"""Sends a payload's text on one of the ways that a payload can take."""


def one(api: MemoryApi, payload: str) -> Answered:
    return api.request("POST", "/v1/jobs", f'{{"name":"echo","payload":{payload}}}', api.key())


def among_many(api: MemoryApi, payload: str) -> Answered:
    body = f'{{"jobs":[{{"name":"echo"}},{{"name":"echo","payload":{payload}}}]}}'
    answer = api.request("POST", "/v1/jobs", body, api.key())
    if answer.status != 207:
        return answer
    entry = answer.document["jobs"][1]
    return Answered(entry["status"], {}, json.dumps(entry["problem"]))


def redriven(api: MemoryApi, payload: str) -> Answered:
    key = api.key()
    job_id = api.request("POST", "/v1/jobs", DEAD_TO_BE, key).document["job_id"]
    api.system.run_relay()
    api.system.run_worker()
    return api.request("POST", f"/v1/jobs/{job_id}/redrive", f'{{"payload":{payload}}}', key)


def nested(levels: int) -> str:
    return "[" * levels + "]" * levels


def of_bytes(size: int) -> str:
    return '"' + "é" * ((size - 2) // 2) + "x" * ((size - 2) % 2) + '"'


PAYLOADS: list[tuple[str, str, str, tuple[int, str]]] = [
    ("bytes", of_bytes(MAX_PAYLOAD_BYTES), of_bytes(MAX_PAYLOAD_BYTES + 1), (413, "payload-too-large")),
    ("depth", nested(MAX_DEPTH), nested(MAX_DEPTH + 1), (422, "too-deep")),
    ("digits", "9" * MAX_NUMBER_CHARACTERS, "9" * (MAX_NUMBER_CHARACTERS + 1), (422, "number-too-long")),
    ("double", "1e308", "1e309", (422, "number-out-of-range")),
]
"""What it bounds, the last that is taken, the first that is not, and what is said of it."""


@pytest.mark.parametrize("sends", [one, among_many, redriven])
@pytest.mark.parametrize(("last", "beyond", "refusal"), [row[1:] for row in PAYLOADS], ids=[row[0] for row in PAYLOADS])
def test_a_payload_is_bounded_on_every_way_it_can_take(
    api: MemoryApi, sends: Sends, last: str, beyond: str, refusal: tuple[int, str]
) -> None:
    assert sends(api, last).status in (200, 202)
    answer = sends(api, beyond)
    assert (answer.status, answer.kind) == refusal


SETTINGS: list[tuple[str, list[Any], list[Any]]] = [
    ("max_attempts", [1, 100], [0, 101, -1, 10**30, 1.5, "5", True, None]),
    ("delay_seconds", [0, MAX_AHEAD_SECONDS], [-1, MAX_AHEAD_SECONDS + 1, 10**300, "1", True]),
    ("run_at", ["0001-01-01T00:00:00Z"], ["9999-12-31T23:59:59Z", "99999-01-01T00:00:00Z", 10**30, "2030-01-01T00:00:00"]),
    ("name", ["n" * 64], ["n" * 65, "", "a\n", "a b", "é", 1]),
    ("queue", ["default"], ["q" * 65, "", "no-such", "default\n", 1]),
    ("idempotency_key", ["k" * 255], ["k" * 256, "", " ", "::", "k\n", "é", 1]),
    ("ordering_key", ["o" * 128], ["o" * 129, "", "o\n", "é", 1]),
]


@pytest.mark.parametrize(("field", "taken", "refused"), SETTINGS, ids=[row[0] for row in SETTINGS])
def test_a_field_of_a_job_is_bounded(api: MemoryApi, field: str, taken: list[Any], refused: list[Any]) -> None:
    for value in taken:
        assert api.request("POST", "/v1/jobs", json.dumps({"name": "echo", field: value}), api.key(f"{value}")).status == 202
    for value in refused:
        answer = api.request("POST", "/v1/jobs", json.dumps({"name": "echo", field: value}), api.key())
        assert (answer.status, answer.document["pointer"]) == (422, f"/{field}"), value


def test_every_field_of_a_job_is_bounded() -> None:
    """One that is new has its row above."""
    from ringfence.http.submissions import NewJob

    assert set(NewJob.__struct_fields__) <= {"payload", *(field for field, _, _ in SETTINGS), *OF_A_FEW_VALUES}


OF_A_FEW_VALUES = {"guarantee"}

PACE: list[tuple[str, list[Any], list[Any]]] = [
    ("rate_per_second", [MIN_RATE_PER_SECOND, MAX_RATE_PER_SECOND], [0, -1, MAX_RATE_PER_SECOND * 2, 10**300, "1"]),
    ("burst", [1, MAX_BURST], [0, -1, MAX_BURST + 1, 10**30, 1.5]),
    ("high_water_mark", [1, MAX_HIGH_WATER_MARK], [0, -1, MAX_HIGH_WATER_MARK + 1, 10**30]),
    ("paused", [True, False], [None, 0, 1, "yes"]),
]


@pytest.mark.parametrize(("field", "taken", "refused"), PACE, ids=[row[0] for row in PACE])
def test_a_setting_of_a_queue_is_bounded(api: MemoryApi, field: str, taken: list[Any], refused: list[Any]) -> None:
    for value in taken:
        assert api.request("PATCH", "/v1/queues/default", json.dumps({field: value}), api.key()).status == 200
    for value in refused:
        answer = api.request("PATCH", "/v1/queues/default", json.dumps({field: value}), api.key())
        assert (answer.status, answer.document["pointer"]) == (422, f"/{field}"), value


QUERIES: list[tuple[str, list[str], list[str]]] = [
    ("/v1/jobs?limit=", ["1", "100"], ["0", "101", "-1", "1e3", "9" * 5_000, "", "nan"]),
    ("/v1/jobs?cursor=", [], ["x", "A" * 2_048, "A" * 2_049, "%00", "%ff"]),
    ("/v1/jobs?queue=", ["default"], ["q" * 65, "default%0a", "%2e%2e"]),
    ("/v1/jobs?state=", ["dead"], ["Dead", "", "deadly", "dead%00"]),
    ("/v1/quarantine?limit=", ["1", str(MAX_SET_ASIDE)], ["0", str(MAX_SET_ASIDE + 1), "-1", "9" * 5_000]),
    (f"/v1/jobs/{'a' * 26}?wait=", [], ["-1", "nan", "-inf", "x", "9" * 5_000 + "x"]),
]


@pytest.mark.parametrize(("target", "taken", "refused"), QUERIES, ids=[row[0] for row in QUERIES])
def test_a_query_is_bounded(api: MemoryApi, target: str, taken: list[str], refused: list[str]) -> None:
    for value in taken:
        assert api.request("GET", target + value, key=api.key()).status == 200
    for value in refused:
        answer = api.request("GET", target + value, key=api.key())
        assert answer.status in (400, 422), value
        assert len(answer.text) < 1_000


def bodies(size: int) -> Iterator[str]:
    yield '{"name":"echo"' + " " * (size - 15) + "}"
    yield " " * size


@pytest.mark.parametrize("name", [name for name, operation in OPERATIONS.items() if operation.takes_a_body])
def test_a_body_is_bounded_on_every_operation_that_takes_one(api: MemoryApi, name: str) -> None:
    operation, key = OPERATIONS[name], api.key()
    for body in bodies(MAX_BODY_BYTES):
        assert api.request(operation.method, operation.target(), body, key).status != 413
    for body in bodies(MAX_BODY_BYTES + 1):
        for sent in (body, body.encode()):
            answer = api.request(operation.method, operation.target(), sent, key)
            assert (answer.status, answer.kind) == (413, "body-too-large")


def test_a_batch_and_a_query_are_bounded_in_number(api: MemoryApi) -> None:
    key = api.key()
    for count, status in ((MAX_JOBS, 202), (MAX_JOBS + 1, 422), (0, 422)):
        assert api.request("POST", "/v1/jobs", json.dumps({"jobs": [{"name": "echo"}] * count}), key).status == status
    answer = api.request("GET", "/v1/jobs?" + "&".join(f"a{n}=1" for n in range(MAX_QUERY_PARAMETERS + 1)), key=key)
    assert (answer.status, answer.kind) == (400, "invalid-query")


def test_a_page_is_bounded_whatever_there_is(api: MemoryApi) -> None:
    key = api.key()
    api.request("POST", "/v1/jobs", json.dumps({"jobs": [{"name": "echo"}] * 250}), key)
    page = api.request("GET", "/v1/jobs?limit=100", key=key).document
    assert len(page["jobs"]) == 100
    assert "cursor" in page
