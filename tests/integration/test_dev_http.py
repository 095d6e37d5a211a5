"""The front door of `ringfence dev`: real requests, answered by a function's processes."""

from __future__ import annotations

import base64
import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest

from .conftest import App, eventually, is_alive


def test_a_request_reaches_the_function_as_an_event(app: App) -> None:
    status, body = app.request("POST", "/some/path?a=1&a=2", b'{"x": 1}', Content_Type="application/json", Cookie="c=1")
    event = json.loads(body)
    assert status == 200
    assert (event["rawPath"], event["rawQueryString"], event["cookies"]) == ("/some/path", "a=1&a=2", ["c=1"])
    assert (event["body"], event["isBase64Encoded"]) == ('{"x": 1}', False)
    assert event["headers"]["content-type"] == "application/json"


def test_bytes_arrive_as_base64_and_leave_as_bytes(app: App) -> None:
    _, body = app.request("PUT", "/", b"\x00\xff", Content_Type="application/octet-stream")
    event = json.loads(body)
    assert (base64.b64decode(event["body"]), event["isBase64Encoded"]) == (b"\x00\xff", True)
    assert app.request("GET", "/binary") == (201, b"\x00\xff")


def test_a_chunked_body_arrives_whole(app: App) -> None:
    connection = app.connect()
    connection.request("POST", "/", iter([b"one ", b"two"]), {"Content-Type": "text/plain"}, encode_chunked=True)
    assert json.loads(connection.getresponse().read())["body"] == "one two"
    connection.close()


def test_a_connection_serves_many_requests(app: App) -> None:
    connection = app.connect()
    for method, target in [("GET", "/a"), ("HEAD", "/b"), ("POST", "/c"), ("GET", "/d")]:
        connection.request(method, target, b"x" if method == "POST" else None)
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status == 200
        assert (body == b"") is (method == "HEAD")
    assert json.loads(body)["rawPath"] == "/d"
    connection.close()


def test_cookies_of_the_answer_are_headers_of_their_own(app: App) -> None:
    connection = app.connect()
    connection.request("GET", "/binary")
    answer = connection.getresponse()
    answer.read()
    assert answer.headers.get_all("set-cookie") == ["a=1", "b=2"]
    connection.close()


@pytest.mark.parametrize("path", ["/fail", "/bad"])
def test_a_function_that_fails_or_answers_badly_is_a_502(app: App, path: str) -> None:
    assert app.request("GET", path) == (502, b'{"message": "Bad Gateway"}')


def test_a_function_that_exits_is_a_502_and_the_next_request_is_served(app: App) -> None:
    assert app.request("GET", "/exit")[0] == 502
    assert app.request("GET", "/")[0] == 200


def test_a_function_past_its_time_limit_is_a_502(app: App) -> None:
    assert app.request("GET", "/sleep?seconds=60")[0] == 502


def test_requests_are_answered_at_the_same_time(app: App) -> None:
    # Each waits inside its function until all are there.
    with ThreadPoolExecutor(4) as clients:
        name = app.name()
        answers = list(clients.map(lambda _: app.request("GET", f"/meet?name={name}&count=4"), range(4)))
    assert [status for status, _ in answers] == [200] * 4


def test_more_than_an_invocation_may_carry_is_a_413(app: App) -> None:
    too_much = b"x" * (6 * 1024 * 1024 + 1)
    assert app.request("POST", "/", too_much, Content_Type="text/plain")[0] == 413
    # Below the limit as it is sent, above it as base64.
    assert app.request("POST", "/", b"\x00" * (5 * 1024 * 1024), Content_Type="application/octet-stream")[0] == 413
    assert app.request("POST", "/size", b"x" * (5 * 1024 * 1024), Content_Type="text/plain") == (200, b"5242880")


@pytest.mark.parametrize(
    "headers", [{"Host": "attacker.example"}, {"Host": "127.0.0.1.attacker.example"}, {"Origin": "https://attacker.example"}]
)
def test_pages_of_other_sites_are_refused(app: App, headers: dict[str, str]) -> None:
    assert app.request("POST", "/", b"{}", **headers)[0] == 403


@pytest.mark.parametrize("length", ["-1", "nonsense"])
def test_a_content_length_that_is_none_is_a_400(app: App, length: str) -> None:
    assert app.request("POST", "/", None, Content_Length=length)[0] == 400


def test_the_function_is_told_its_time_and_its_name(app: App) -> None:
    context = app.json("/context")
    assert 0 < context["remaining"] <= 5000
    assert context["arn"].endswith(f":function:{context['name']}")
    assert context["memory"] == "256"
    assert context["pid"] in app.dev.pids("DoorFunction")


def test_the_functions_environment_is_the_templates_and_nothing_of_ours(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_PROFILE", "production")
    app.dev.restart("DoorFunction")
    variables = app.json("/environment")
    assert variables["COLOUR"] == "green"
    assert set(json.loads(variables["QUEUES"])) == {"default", "slow"}
    assert variables["TABLE_ARN"].endswith(f":table/{variables['TABLE']}")
    assert variables["WHERE"] == f"{app.dev.endpoint.region}/{app.dev.resources['Bucket']}"
    assert (variables["AWS_ENDPOINT_URL"], variables["AWS_ACCESS_KEY_ID"]) == (app.dev.endpoint_url, "test")
    assert (variables["RINGFENCE_AUTH"], variables["RINGFENCE_WAIT_CAP_SECONDS"]) == ("none", "20")
    assert "AWS_PROFILE" not in variables


def test_a_killed_process_is_replaced_and_the_others_serve_meanwhile(app: App) -> None:
    victim = app.json("/context")["pid"]
    os.kill(victim, signal.SIGKILL)
    eventually(lambda: not is_alive(victim), "its end")
    assert all(app.request("GET", "/")[0] == 200 for _ in range(5))
    eventually(lambda: len(app.dev.pids("DoorFunction")) >= 2, "a replacement")
    assert victim not in app.dev.pids("DoorFunction")
