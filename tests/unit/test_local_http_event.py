"""Payload format 2.0: requests as functions see them, answers as clients do, and which route takes a request."""

from __future__ import annotations

import base64
from email.message import Message
from typing import Any

import pytest

from ringfence.local.event_sources import Route
from ringfence.local.sources.http_event import BadAnswer, Matched, Request, answer_of, event_of
from ringfence.local.sources.http_routes import match


def event(target: str = "/v1/jobs", body: bytes = b"", **headers: str | list[str]) -> dict[str, Any]:
    message = Message()
    for name, values in headers.items():
        for value in [values] if isinstance(values, str) else values:
            message[name.replace("_", "-")] = value
    request = Request("POST", target, message, body, "127.0.0.1")
    return event_of(request, Matched("$default"), "123456789012")


def test_path_and_query_come_as_they_were_sent() -> None:
    said = event("/v1/jobs/a%2Fb?x=1&x=2&y=a%20b&z=")
    assert said["rawPath"] == "/v1/jobs/a%2Fb"
    assert said["rawQueryString"] == "x=1&x=2&y=a%20b&z="
    assert said["queryStringParameters"] == {"x": "1,2", "y": "a b", "z": ""}
    assert said["requestContext"]["http"]["path"] == "/v1/jobs/a%2Fb"
    assert (said["version"], said["routeKey"], said["requestContext"]["http"]["method"]) == ("2.0", "$default", "POST")


def test_what_is_absent_is_absent() -> None:
    assert {"body", "cookies", "queryStringParameters", "pathParameters"}.isdisjoint(event())


def test_headers_are_lower_case_and_joined_with_commas_and_cookies_are_apart() -> None:
    said = event(X_One=["a", "b"], Cookie="c=1; d=2", Host="127.0.0.1:80")
    assert said["headers"] == {"x-one": "a,b", "host": "127.0.0.1:80"}
    assert said["cookies"] == ["c=1", "d=2"]


@pytest.mark.parametrize(
    ("content_type", "body", "is_text"),
    [
        ("application/json", b'{"a":1}', True),
        ("application/problem+json; charset=utf-8", b"{}", True),
        ("text/plain", "é".encode(), True),
        ("application/json", b"\xff\xfe", False),
        ("application/octet-stream", b"abc", False),
        ("application/x-www-form-urlencoded", b"a=1", False),
        ("", b"abc", False),
    ],
)
def test_only_text_is_sent_as_text(content_type: str, body: bytes, is_text: bool) -> None:
    said = event(body=body, Content_Type=content_type)
    assert said["isBase64Encoded"] is not is_text
    assert said["body"] == (body.decode() if is_text else base64.b64encode(body).decode())


def test_an_answer_is_mapped_with_its_headers_and_cookies() -> None:
    result = {
        "statusCode": "202",
        "headers": {"Location": "/v1/jobs/1", "x-n": 3, "x-b": True, "Content-Length": "999"},
        "cookies": ["a=1", "b=2"],
        "body": "é",
    }
    answer = answer_of(result)
    assert (answer.status, answer.body) == (202, "é".encode())
    assert answer.headers == [
        ("Location", "/v1/jobs/1"),
        ("x-n", "3"),
        ("x-b", "true"),
        ("set-cookie", "a=1"),
        ("set-cookie", "b=2"),
    ]


def test_a_base64_body_is_decoded() -> None:
    assert answer_of({"statusCode": 200, "body": "AP8=", "isBase64Encoded": True}).body == b"\x00\xff"


@pytest.mark.parametrize("result", [{"hello": "there"}, [1, 2], "text", None])
def test_a_result_without_a_status_is_the_json_of_a_200(result: Any) -> None:
    import json

    answer = answer_of(result)
    assert (answer.status, json.loads(answer.body), answer.headers) == (200, result, [("content-type", "application/json")])


@pytest.mark.parametrize(
    "result",
    [
        {"statusCode": "teapot"},
        {"statusCode": 99},
        {"statusCode": None},
        {"statusCode": 200, "body": "no base64!", "isBase64Encoded": True},
        {"statusCode": 200, "body": "né", "isBase64Encoded": True},
        {"statusCode": 200, "headers": {"x": "a\r\nSet-Cookie: b"}},
        {"statusCode": 200, "headers": {"x\r\nSet-Cookie": "b"}},
        {"statusCode": 200, "headers": {"x": "\u20ac"}},
        {"statusCode": 200, "headers": ["x"]},
        {"statusCode": 200, "cookies": ["a\r\nSet-Cookie: b"]},
        {"statusCode": 200, "cookies": 5},
        {"statusCode": float("inf")},
    ],
)
def test_an_answer_that_no_front_door_understands_is_refused(result: Any) -> None:
    with pytest.raises(BadAnswer):
        answer_of(result)


ROUTES = [
    Route("ANY", "$default", "default"),
    Route("GET", "/jobs/{id}", "get"),
    Route("ANY", "/jobs/{id}", "any"),
    Route("GET", "/jobs/newest", "newest"),
    Route("POST", "/{proxy+}", "greedy"),
]


@pytest.mark.parametrize(
    ("method", "path", "function", "key", "parameters"),
    [
        ("GET", "/jobs/a%20b", "get", "GET /jobs/{id}", {"id": "a b"}),
        ("PUT", "/jobs/1", "any", "ANY /jobs/{id}", {"id": "1"}),
        ("GET", "/jobs/newest", "newest", "GET /jobs/newest", {}),
        ("POST", "/a/b/c", "greedy", "POST /{proxy+}", {"proxy": "a/b/c"}),
        ("GET", "/a/b/c", "default", "$default", {}),
        ("POST", "/", "default", "$default", {}),
    ],
)
def test_the_most_specific_route_wins(method: str, path: str, function: str, key: str, parameters: dict[str, str]) -> None:
    found = match(ROUTES, method, path)
    assert found is not None
    route, matched = found
    assert (route.function, matched.key, matched.parameters) == (function, key, parameters)


def test_without_a_route_there_is_no_function() -> None:
    assert match([Route("GET", "/jobs", "f")], "POST", "/jobs") is None
    assert match([Route("GET", "/jobs", "f")], "GET", "/jobs/1") is None
