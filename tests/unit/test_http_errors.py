"""What is answered when there is nothing to answer, and what the log may say of it (C42)."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest

from ringfence import App
from ringfence.testing.memory_api import MemoryApi
from ringfence.testing.system import MemorySystem

CANARY = "canary-4711"


@pytest.fixture
def api() -> MemoryApi:
    return MemoryApi(MemorySystem(App()))


class Broken:
    """A gateway whose every verb fails with a message that quotes what it was given."""

    def __getattr__(self, verb: str) -> Any:
        def fail(*given: Any, **more: Any) -> None:
            raise ZeroDivisionError(f"{verb} {given} {more} {CANARY}")

        return fail


def break_gateway(api: MemoryApi) -> None:
    api.system.gateway = Broken()  # type: ignore[assignment]


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/", "/v1/job", "/v1/jobs/", "/v1/jobs/a/b", "/v2/jobs", ""])
def test_an_unknown_path_is_a_404_problem(api: MemoryApi, path: str) -> None:
    answer = api.answer({"rawPath": path, "requestContext": {"stage": "$default", "http": {"method": "GET"}}})
    assert answer["statusCode"] == 404
    assert answer["headers"]["Content-Type"] == "application/problem+json"
    assert json.loads(answer["body"])["type"] == "https://ringfence.dev/problems/no-such-route"


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("DELETE", "/v1/jobs", "GET, POST"),
        ("OPTIONS", "/v1/jobs", "GET, POST"),
        ("PUT", "/v1/jobs/" + "a" * 26, "GET"),
        ("GET", "/v1/jobs/" + "a" * 26 + "/cancel", "POST"),
        ("POST", "/v1/health", "GET"),
    ],
)
def test_a_wrong_method_is_a_405_that_names_the_right_ones(api: MemoryApi, method: str, path: str, allowed: str) -> None:
    answer = api.request(method, path, key=api.key())
    assert (answer.status, answer.kind, answer.headers["allow"]) == (405, "method-not-allowed", allowed)


def test_health_asks_nothing(api: MemoryApi) -> None:
    break_gateway(api)
    answer = api.request("GET", "/v1/health")
    assert (answer.status, answer.document) == (200, {"status": "ok"})


def test_a_named_stage_in_front_of_the_path_is_part_of_the_location(api: MemoryApi) -> None:
    event = {
        "rawPath": "/live/v1/jobs",
        "headers": {"authorization": f"Bearer {api.key()}"},
        "requestContext": {"stage": "live", "http": {"method": "POST", "path": "/live/v1/jobs"}},
        "body": '{"name":"a"}',
    }
    answer = api.answer(event)
    assert answer["statusCode"] == 202
    assert answer["headers"]["Location"] == f"/live/v1/jobs/{json.loads(answer['body'])['job_id']}"


def test_c42_an_unexpected_error_is_noted_without_its_message_and_answered_without_its_nature(
    api: MemoryApi, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("POWERTOOLS_DEV", "true")
    monkeypatch.setenv("POWERTOOLS_DEBUG", "true")
    caplog.set_level(logging.DEBUG)
    break_gateway(api)
    key = api.key()
    body = json.dumps({"name": "a", "payload": {"password": CANARY}})
    answer = api.request("POST", "/v1/jobs", body, key=key, x_secret=CANARY, idempotency_key=CANARY)
    assert (answer.status, answer.kind) == (500, "internal-error")
    [noted] = api.system.telemetry.named("request_failed")
    assert (noted["error"], noted["route"]) == ("ZeroDivisionError", "POST /v1/jobs")
    assert str(noted["at"]).rpartition(":")[2].isdigit()
    out, err = capfd.readouterr()
    told = [answer.text, json.dumps(answer.headers), str(api.system.telemetry.events), out, err, caplog.text]
    assert not [text for text in told if CANARY in text or key in text]
    assert "ZeroDivision" not in answer.text


def test_c42_no_request_leaves_its_secrets_in_events_or_answers(
    api: MemoryApi, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    key = api.key()
    secrets = {CANARY, key}
    texts: list[str] = []
    for body in (
        f'{{"name":"a","payload":{{"password":"{CANARY}"}}}}',
        f'{{"name":"a","payload":{{"password":"{CANARY}" "{CANARY}"}}}}',
        f'{{"name":"a","max_attempts":"{CANARY}"}}',
        f'{{"name":"{CANARY} "}}',
        f'{{"name":"a","run_at":"{CANARY}"}}',
        f'{{"jobs":[{{"name":"a","payload":["{CANARY}", NaN]}}]}}',
    ):
        texts += [str(api.request("POST", "/v1/jobs", body, key=used)) for used in (key, key[:-1] + "_", None)]
    out, err = capfd.readouterr()
    texts += [str(api.system.telemetry.events), out, err, caplog.text]
    assert not [text for text in texts for secret in secrets if secret in text]


def test_every_request_is_told_in_one_event(api: MemoryApi) -> None:
    api.request("GET", "/v1/jobs/" + "a" * 26, key=api.key())
    [event] = api.system.telemetry.named("request_answered")
    assert (event["route"], event["status"], event["request_id"]) == ("GET /v1/jobs/<job_id>", 404, "request")


@pytest.mark.parametrize(
    "event", [{}, {"requestContext": None}, {"requestContext": {"http": {}}}, {"Records": [{"body": "x"}]}]
)
def test_an_event_that_names_no_route_is_answered_all_the_same(api: MemoryApi, event: dict[str, Any]) -> None:
    answer = api.answer(event)
    assert answer["statusCode"] == 404
    assert "problems/" in answer["body"]


@pytest.mark.parametrize(
    "event",
    [
        None,
        [],
        {"rawPath": 1},
        {"headers": []},
        {"headers": {"authorization": None}},
        {"requestContext": {"http": {"method": ["GET"]}}},
        {"body": {"name": "a"}},
        {"isBase64Encoded": "yes"},
        {"isBase64Encoded": "\ud800"},
    ],
)
def test_an_event_that_is_no_request_is_a_bad_one_and_not_our_fault(api: MemoryApi, event: Any) -> None:
    """Whoever may invoke the function may send it anything: that is no alarm for whoever runs it."""
    answer = api.answer(event)
    assert answer["statusCode"] == 400
    assert json.loads(answer["body"])["type"].endswith("/no-request")
    assert api.system.telemetry.named("request_failed") == []
