"""What a route is, and what it is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

import msgspec

from ringfence.errors import Rejected
from ringfence.http import json_body
from ringfence.http.auth import Scope
from ringfence.http.backend import Backend
from ringfence.http.reply import Reply
from ringfence.http.request import Request

T = TypeVar("T", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True)
class Visit:
    """One admitted request on its way through a route. On one that is open to everyone ``tenant`` and ``scopes`` are empty."""

    backend: Backend
    request: Request
    tenant: str
    scopes: frozenset[str]
    remaining_seconds: float
    """What is left of the function's own timeout."""

    def parameters(self, to: type[T]) -> T:
        """The query as a struct. Raises `Rejected` (400) for a parameter that is unknown or out of range."""
        try:
            return msgspec.convert(self.request.query(), to, strict=False)
        except msgspec.ValidationError as fault:
            found = json_body.invalid(fault)
            name = (found.pointer or "/").removeprefix("/")
            unknown = name != "" and name not in to.__struct_fields__
            detail = f"unknown query parameter {name}" if unknown else f"query parameter {name}: {found}"
            raise Rejected(detail, kind="invalid-query", status=400) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """One method on one path: who may, what happens, and what OpenAPI says of it."""

    method: str
    path: str
    """With ``<name>`` for the parts that vary."""
    scope: Scope | None
    """None: open to everyone."""
    answer: Callable[..., Reply]
    """Called with the `Visit`, and the varying parts of the path by name."""
    summary: str
    answers: Mapping[int, tuple[str, tuple[type[msgspec.Struct], ...]]]
    """Status → what it means, and the documents that it may be."""
    query: type[msgspec.Struct] | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    """Request headers beside ``Authorization``, with their meaning."""
    body: tuple[type[msgspec.Struct], ...] = ()
    """The documents that may be sent: one of these."""
    body_required: bool = True
    problems: tuple[int, ...] = ()
    """Statuses of the problems beyond those that every route may answer."""
