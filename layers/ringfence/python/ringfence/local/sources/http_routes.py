"""Which function answers a request: the most specific route wins.

https://docs.aws.amazon.com/apigateway/latest/developerguide/http-api-develop-routes.html
"""

from __future__ import annotations

from collections.abc import Sequence
from urllib.parse import unquote

from ringfence.local.event_sources import Route
from ringfence.local.sources.http_event import Matched


def match(routes: Sequence[Route], method: str, path: str) -> tuple[Route, Matched] | None:
    """The route for a request, and what it matched; None if there is none (API Gateway then answers 404)."""
    found = [
        (specificity, route, parameters)
        for route in routes
        if route.method in ("ANY", method) and (parameters := _parameters(route.path, path)) is not None
        for specificity in (_specificity(route),)
    ]
    if not found:
        return None
    _, route, parameters = max(found, key=lambda each: each[0])
    return route, Matched(route.path if route.path == "$default" else f"{route.method} {route.path}", parameters)


def _parameters(pattern: str, path: str) -> dict[str, str] | None:
    if pattern == "$default":
        return {}
    wanted, given = pattern.strip("/").split("/"), path.strip("/").split("/")
    parameters = {}
    for n, part in enumerate(wanted):
        if part.startswith("{") and part.endswith("+}"):
            if n >= len(given) or not given[n]:
                return None
            parameters[part[1:-2]] = unquote("/".join(given[n:]))
            return parameters
        if n >= len(given):
            return None
        if part.startswith("{") and part.endswith("}"):
            parameters[part[1:-1]] = unquote(given[n])
        elif part != given[n]:
            return None
    return parameters if len(wanted) == len(given) else None


def _specificity(route: Route) -> tuple[int, int, int]:
    """Full paths before greedy ones, before ``$default``; then more literal parts; then a named method before ANY."""
    if route.path == "$default":
        return 0, 0, 0
    parts = route.path.strip("/").split("/")
    greedy = any(part.endswith("+}") for part in parts)
    return 1 if greedy else 2, sum(not part.startswith("{") for part in parts), route.method != "ANY"
