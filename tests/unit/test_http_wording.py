"""What the API says of a fault: words for whoever sent the request, not those of its validator."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ringfence import App
from ringfence.testing.memory_api import MemoryApi
from ringfence.testing.system import MemorySystem

PATHS = ("/v1/jobs", "/v1/quarantine")


@pytest.fixture
def api() -> MemoryApi:
    return MemoryApi(MemorySystem(App()))


def refused(api: MemoryApi, document: dict[str, Any]) -> str:
    answer = api.request("POST", "/v1/jobs", json.dumps(document), key=api.key())
    assert answer.status == 422
    return str(answer.document["detail"])


@pytest.mark.parametrize("field", ["name", "queue"])
def test_a_name_that_is_none_is_told_what_a_name_is(api: MemoryApi, field: str) -> None:
    detail = refused(api, {"name": "signup", field: "no/name"})
    assert detail == "expected 1 to 64 letters, digits, dots, dashes or underscores"


@pytest.mark.parametrize("field", ["idempotency_key", "ordering_key"])
def test_a_key_that_is_none_is_told_what_a_key_is(api: MemoryApi, field: str) -> None:
    detail = refused(api, {"name": "signup", field: "\n"})
    assert detail.startswith("expected 1 to ")
    assert "printable ASCII characters" in detail


def test_a_guarantee_that_is_none_is_told_which_there_are(api: MemoryApi) -> None:
    detail = refused(api, {"name": "signup", "guarantee": "twice"})
    assert detail == "Invalid enum value 'twice'; it is once or at-least-once"


@pytest.mark.parametrize("path", PATHS)
def test_a_query_parameter_that_is_unknown_is_named(api: MemoryApi, path: str) -> None:
    answer = api.request("GET", f"{path}?foo=1", key=api.key(scopes={"read", "operate", "admin"}))
    assert (answer.status, answer.document["detail"]) == (400, "unknown query parameter foo")


def test_a_query_parameter_that_is_out_of_range_keeps_its_reason(api: MemoryApi) -> None:
    answer = api.request("GET", "/v1/jobs?limit=0", key=api.key())
    assert answer.document["detail"] == "query parameter limit: Expected `int` >= 1"


@pytest.mark.parametrize("authorization", ["Bearer rf_short", "Bearer rf_" + "A" * 43, "Basic x"])
def test_a_key_that_does_not_open_is_unknown_malformed_or_revoked(api: MemoryApi, authorization: str) -> None:
    answer = api.request("GET", "/v1/jobs", authorization=authorization)
    assert answer.status == 401
    assert answer.document["detail"].startswith("unknown, malformed or revoked API key")
