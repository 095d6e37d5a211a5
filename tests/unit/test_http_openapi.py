"""The description is the API: every route is in it, and nothing else."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from ringfence import App
from ringfence.http import openapi
from ringfence.http.routes import ROUTES
from ringfence.testing.memory_api import MemoryApi
from ringfence.testing.system import MemorySystem


@pytest.fixture(scope="module")
def described() -> dict[str, Any]:
    api = MemoryApi(MemorySystem(App()))
    document: dict[str, Any] = api.request("GET", "/v1/openapi.json").document
    return document


def references_in(value: Any) -> set[str]:
    match value:
        case dict():
            own = {value["$ref"]} if "$ref" in value else set()
            return own.union(*(references_in(inner) for inner in value.values()), set())
        case list():
            return set().union(*(references_in(inner) for inner in value), set())
    return set()


def test_every_route_is_described_and_every_description_is_a_route(described: dict[str, Any]) -> None:
    said = {(method.upper(), path) for path, methods in described["paths"].items() for method in methods}
    assert said == {(route.method, route.path.replace("<", "{").replace(">", "}")) for route in ROUTES}


def test_every_reference_leads_somewhere(described: dict[str, Any]) -> None:
    for reference in references_in(described):
        place = described
        for step in reference.removeprefix("#/").split("/"):
            place = place[step]
        assert place


def test_only_the_public_routes_are_open(described: dict[str, Any]) -> None:
    assert described["security"] == [{"apiKey": []}]
    for route in ROUTES:
        operation = described["paths"][openapi._template(route.path)][route.method.lower()]
        assert (operation.get("security") == []) == (route.scope is None)
        assert ("401" in operation["responses"]) == (route.scope is not None)


def test_operations_have_names_of_their_own(described: dict[str, Any]) -> None:
    names = [operation["operationId"] for methods in described["paths"].values() for operation in methods.values()]
    assert len(names) == len(set(names))


def test_patterns_are_those_of_json_schema(described: dict[str, Any]) -> None:
    patterns = re.findall(r'"pattern": "(.*?)"', json.dumps(described))
    assert patterns
    assert not [pattern for pattern in patterns if "\\Z" in pattern or not pattern.endswith("$")]


def test_the_answers_of_the_api_are_those_described(described: dict[str, Any]) -> None:
    api = MemoryApi(MemorySystem(App()))
    accepted = api.request("POST", "/v1/jobs", '{"name":"a"}', key=api.key())
    shown = api.request("GET", accepted.headers["location"], key=api.key())
    schemas = described["components"]["schemas"]
    for answer, name in ((accepted, "AcceptedDocument"), (shown, "JobDocument")):
        assert answer.document.keys() <= schemas[name]["properties"].keys()
        assert set(schemas[name]["required"]) <= answer.document.keys()
