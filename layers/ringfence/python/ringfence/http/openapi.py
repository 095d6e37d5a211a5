"""The API's description, generated from the table of routes and the structs that read and write its documents.

https://spec.openapis.org/oas/v3.1.0
"""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import msgspec

from ringfence.gateway import NO_SUCH_JOB
from ringfence.http.reply import JSON, PROBLEM_JSON, Problem, problem
from ringfence.http.route import Route

Schema = dict[str, Any]

_SCHEMAS = "#/components/schemas/{name}"
_EVERY_PROBLEM = (400, 500)
_AUTH_PROBLEMS = (401, 403)
_EXAMPLES = {
    400: ("not-json", "not JSON: Expecting value: line 1 column 1 (char 0)", None),
    401: ("unauthenticated", "an API key is needed: Authorization: Bearer rf_…", None),
    403: ("forbidden", "this API key may not submit", None),
    404: ("not-found", NO_SUCH_JOB, None),
    409: ("not-dead", "the job is running, not dead", None),
    413: ("payload-too-large", "the payload has 40000 bytes; at most 32768 are taken", "/payload"),
    422: ("invalid-request", "Expected `str`, got `int`", "/jobs/3/name"),
    500: ("internal-error", "something went wrong here; it has been noted", None),
    503: ("unavailable", "the ledger is busy; nothing was accepted", None),
}


def encoded(routes: Sequence[Route]) -> bytes:
    """The document as JSON."""
    return msgspec.json.encode(document(routes))


def document(routes: Sequence[Route]) -> Schema:
    """The document as plain values."""
    paths: dict[str, Schema] = {}
    for route in routes:
        paths.setdefault(_template(route.path), {})[route.method.lower()] = _operation(route)
    _, schemas = msgspec.json.schema_components(_documents(routes), ref_template=_SCHEMAS)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Ringfence",
            "version": _version(),
            "description": "A job queue whose late writes cannot land. Delivery is at least once; "
            "every write that commits with its job takes effect at most once.",
        },
        "security": [{"apiKey": []}],
        "paths": paths,
        "components": {
            "responses": {_problem_name(status): _problem(status) for status in _EXAMPLES},
            "schemas": {name: _portable(schema) for name, schema in sorted(schemas.items())},
            "securitySchemes": {
                "apiKey": {"type": "http", "scheme": "bearer", "description": "rf_… as `ringfence keys create` prints it."}
            },
        },
    }


def _operation(route: Route) -> Schema:
    statuses = (*_EVERY_PROBLEM, *(_AUTH_PROBLEMS if route.scope else ()), *route.problems)
    operation: Schema = {
        "operationId": route.answer.__name__,
        "summary": route.summary,
        "parameters": [*_path_parameters(route), *_query_parameters(route), *_header_parameters(route)],
        "responses": {
            **{str(status): _answer(meaning, structs) for status, (meaning, structs) in route.answers.items()},
            **{str(status): {"$ref": f"#/components/responses/{_problem_name(status)}"} for status in sorted(statuses)},
        },
    }
    if route.scope is None:
        operation["security"] = []
    else:
        operation["description"] = f"Needs the scope `{route.scope}`."
    if route.body:
        content = {JSON: {"schema": _one_of(route.body)}}
        operation["requestBody"] = {"required": route.body_required, "content": content}
    return operation


def _path_parameters(route: Route) -> list[Schema]:
    names = [part[1:-1] for part in route.path.split("/") if part.startswith("<")]
    return [{"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in names]


def _query_parameters(route: Route) -> list[Schema]:
    if route.query is None:
        return []
    _, schemas = msgspec.json.schema_components([route.query], ref_template=_SCHEMAS)
    properties = schemas[route.query.__name__]["properties"]
    return [{"name": name, "in": "query", "required": False, "schema": _portable(s)} for name, s in properties.items()]


def _header_parameters(route: Route) -> list[Schema]:
    return [
        {"name": name, "in": "header", "required": False, "description": meaning, "schema": {"type": "string"}}
        for name, meaning in route.headers.items()
    ]


def _answer(meaning: str, structs: Sequence[type[msgspec.Struct]]) -> Schema:
    return {"description": meaning, **({"content": {JSON: {"schema": _one_of(structs)}}} if structs else {})}


def _problem_name(status: int) -> str:
    return f"Problem{status}"


def _problem(status: int) -> Schema:
    kind, detail, pointer = _EXAMPLES[status]
    example = msgspec.to_builtins(problem(status, kind, detail, pointer))
    content = {PROBLEM_JSON: {"schema": _reference(Problem), "example": example}}
    retry_after = {"Retry-After": {"description": "Seconds.", "schema": {"type": "integer"}}}
    return {
        "description": HTTPStatus(status).phrase,
        "content": content,
        **({"headers": retry_after} if status == 503 else {}),
    }


def _documents(routes: Sequence[Route]) -> list[type[msgspec.Struct]]:
    """Every struct that a body or an answer can be, and what these name in turn."""
    answered = (struct for route in routes for _, structs in route.answers.values() for struct in structs)
    queried = (route.query for route in routes if route.query is not None)
    return list(dict.fromkeys([Problem, *answered, *queried, *(struct for route in routes for struct in route.body)]))


def _one_of(structs: Sequence[type[msgspec.Struct]]) -> Schema:
    references = [_reference(struct) for struct in structs]
    return references[0] if len(references) == 1 else {"oneOf": references}


def _reference(struct: type[msgspec.Struct]) -> Schema:
    return {"$ref": _SCHEMAS.format(name=struct.__name__)}


def _template(path: str) -> str:
    return path.replace("<", "{").replace(">", "}")


def _portable(schema: Any) -> Any:
    r"""Patterns in the dialect of JSON Schema, where ``$`` is the very end (Python's would let a line feed follow)."""
    match schema:
        case dict():
            return {
                name: value.replace(r"\Z", "$") if name == "pattern" and isinstance(value, str) else _portable(value)
                for name, value in schema.items()
            }
        case list():
            return [_portable(value) for value in schema]
    return schema


def _version() -> str:
    try:
        return version("ringfence")
    except PackageNotFoundError:
        return "0"  # the layer holds the library without its package metadata
