"""Every operation of the API under requests made up from its own description, those that fit it and those that do not.

No answer is a 5xx, none is of a status, type or shape that is not described, and none is given without a key that needs one.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from http import HTTPStatus
from typing import Any

import hypothesis.core
import pytest
import schemathesis
from hypothesis import strategies as st
from hypothesis.vendor import pretty
from schemathesis import Case, GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.generation.hypothesis import setup as prepare_hypothesis
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from ringfence.testing.memory_api import MemoryApi, event_of

from .conftest import new_api
from .fuzzing import Fuzz
from .operations import OPERATIONS, Operation

pytestmark = pytest.mark.fuzz

# schemathesis takes Hypothesis' printer away, from every other test in this process as well.
prepare_hypothesis()
hypothesis.core.RepresentationPrinter = pretty.RepresentationPrinter

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
]


class Wsgi:
    """The function behind the API as a WSGI application, which is what schemathesis can call without a socket."""

    def __init__(self, api: MemoryApi) -> None:
        self._api = api
        self.authorization: str | None = None
        """Sent with every request."""

    def __call__(self, environ: Mapping[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        named = {name[5:].replace("_", "-").lower(): str(value) for name, value in environ.items() if name.startswith("HTTP_")}
        if self.authorization is not None:
            named["authorization"] = self.authorization
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        event = event_of(environ["REQUEST_METHOD"], "/", named, body)
        event |= {"rawPath": environ["REQUEST_URI"].partition("?")[0], "rawQueryString": environ["QUERY_STRING"]}
        answer = self._api.answer(event)
        status = answer["statusCode"]
        start_response(f"{status} {HTTPStatus(status).phrase}", list(answer["headers"].items()))
        return [answer["body"].encode()]


class Tried:
    """An API with jobs in it, and its description as it serves it itself: but for the keys, which are put in here."""

    def __init__(self) -> None:
        self.api = new_api()
        self.key = self.api.key("mine")
        self.described = schemathesis.openapi.from_dict(without_security(self.api.request("GET", "/v1/openapi.json").document))
        self.described.app = self.function = Wsgi(self.api)
        self.ids = list(self._jobs())

    def _jobs(self) -> Iterator[str]:
        for name, tenant in (("echo", "mine"), ("fail", "mine"), ("echo", "theirs")):
            answer = self.api.request("POST", "/v1/jobs", json.dumps({"name": name, "payload": {"n": 1}}), self.api.key(tenant))
            yield str(answer.document["job_id"])
        self.api.system.run_relay()
        self.api.system.run_worker()
        yield str(self.api.request("POST", "/v1/jobs", '{"name":"echo","queue":"priority"}', self.key).document["job_id"])

    def cases(self, operation: Operation) -> st.SearchStrategy[Case]:
        """Requests that fit the description, and, where more is asked for than a name, as many that do not."""
        described = self.described[operation.path][operation.method]
        modes = list(GenerationMode) if operation.takes_more_than_a_name else [GenerationMode.POSITIVE]
        return st.one_of(described.as_strategy(generation_mode=mode) for mode in modes)


def without_security(document: dict[str, Any]) -> dict[str, Any]:
    document.pop("security")
    for operation in (operation for methods in document["paths"].values() for operation in methods.values()):
        operation.pop("security", None)
    return document


@pytest.fixture(scope="module")
def tried() -> Tried:
    return Tried()


def real_names(tried: Tried) -> st.SearchStrategy[dict[str, str]]:
    """Made-up names mostly name nothing."""
    names = {"job_id": tried.ids, "name": ["default", "priority"]}
    return st.fixed_dictionaries({}, optional={name: st.sampled_from(values) for name, values in names.items()})


KEYS = st.sampled_from(["", "Bearer", "Basic QTpB", f"Bearer rf_{'A' * 43}"]) | st.text(st.characters(max_codepoint=255)).map(
    "Bearer rf_{}".format
)
"""None of these opens anything."""


@pytest.mark.parametrize("name", OPERATIONS)
def test_no_request_is_answered_but_as_described(tried: Tried, fuzz: Fuzz, name: str) -> None:
    operation = OPERATIONS[name]

    def check(made_up: tuple[Case, dict[str, str], str]) -> None:
        case, real, wrong_key = made_up
        case.path_parameters.update({part: value for part, value in real.items() if part in case.path_parameters})
        tried.function.authorization = f"Bearer {tried.key}"
        assert case.call_and_validate(checks=[*CHECKS, negative_data_rejection]).status_code not in (401, 403)
        tried.function.authorization = wrong_key
        assert (case.call_and_validate(checks=CHECKS).status_code == 401) == operation.needs_a_key

    fuzz(st.tuples(tried.cases(operation), real_names(tried), KEYS), check)
