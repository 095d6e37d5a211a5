"""The operations of the API as its own description names them: what the tests of security go through, one by one."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ringfence.http import openapi
from ringfence.http.routes import ROUTES

DOCUMENT: Mapping[str, Any] = json.loads(openapi.encoded(ROUTES))


@dataclass(frozen=True, slots=True)
class Operation:
    """One method on one path."""

    name: str
    method: str
    path: str
    """With ``{name}`` for the parts that vary."""
    needs_a_key: bool
    takes_a_body: bool
    takes_more_than_a_name: bool
    """A query, headers or a body."""

    def target(self, **parts: str) -> str:
        """The path with its parts filled in; those that are not given are filled with what may stand there."""
        return self.path.format(**{"job_id": "a" * 26, "name": "default", **parts})


OPERATIONS: Mapping[str, Operation] = {
    described["operationId"]: Operation(
        described["operationId"],
        method.upper(),
        path,
        needs_a_key=described.get("security", DOCUMENT["security"]) != [],
        takes_a_body="requestBody" in described,
        takes_more_than_a_name="requestBody" in described or any(each["in"] != "path" for each in described["parameters"]),
    )
    for path, methods in DOCUMENT["paths"].items()
    for method, described in methods.items()
}
