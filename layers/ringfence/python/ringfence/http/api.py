"""The HTTP API: one event in, one answer out.

Powertools' resolver finds the route (its validation stays switched off: pydantic alone would add 40 % to a cold start);
admission, reading and answering are here. One request at a time, as Lambda has it: the resolver keeps the current event in
a class attribute.
"""

from __future__ import annotations

import functools
import math
import re
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from aws_lambda_powertools.event_handler.api_gateway import APIGatewayHttpResolver, Response

from ringfence.errors import RingfenceError
from ringfence.http.auth import Authenticator, require
from ringfence.http.backend import Backend
from ringfence.http.reply import Reply, error_reply, problem, problem_reply
from ringfence.http.request import Request
from ringfence.http.route import Route, Visit
from ringfence.http.routes import ROUTES

MAX_RUNTIMES = 4
"""A process has one; tests have a few."""

_ALWAYS = {"X-Content-Type-Options": "nosniff"}


def handle(event: Mapping[str, Any], lambda_context: Any, runtime: Backend) -> dict[str, Any]:
    """Answer one event of payload format 2.0 (HTTP API or function URL) in the same format. Never raises for a request."""
    return _api(runtime).answer(event, lambda_context)


@functools.lru_cache(maxsize=MAX_RUNTIMES)
def _api(runtime: Backend) -> Api:
    return Api(runtime)


class Api:
    """The routes over one backend."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._authenticator = Authenticator(backend)
        # Never debug by environment variable: it prints whole requests.
        self._router = APIGatewayHttpResolver(debug=False)
        for route in ROUTES:
            self._router.route(route.path, method=route.method)(self._bound(route))
        self._router.not_found(self._unrouted)

    def answer(self, event: Mapping[str, Any], lambda_context: Any) -> dict[str, Any]:
        """Resolve one event."""
        try:
            return self._router.resolve(event, lambda_context)
        except Exception as error:  # noqa: BLE001 - an event that is no request; whoever sent it still gets an answer
            reply = self._unexpected(error, route="none", request_id=None)
            return {"statusCode": reply.status, "headers": dict(reply.headers), "body": (reply.body or b"").decode()}

    def _bound(self, route: Route) -> Callable[..., Response[str]]:
        def call(**path_parts: str) -> Response[str]:
            started, request = self._backend.clock.monotonic(), self._request()
            name = f"{route.method} {route.path}"
            try:
                reply = route.answer(self._admitted(route, request), **path_parts)
            except RingfenceError as error:
                reply = error_reply(error) or self._unexpected(error, route=name, request_id=request.request_id)
            except Exception as error:  # noqa: BLE001 - whatever it was: noted here, and kept from the caller
                reply = self._unexpected(error, route=name, request_id=request.request_id)
            self._backend.telemetry.event(
                "request_answered",
                route=name,
                status=reply.status,
                milliseconds=round((self._backend.clock.monotonic() - started) * 1000, 1),
                request_id=request.request_id,
            )
            return _response(reply)

        return call

    def _request(self) -> Request:
        event = self._router.current_event
        prefix = event.raw_path.removesuffix(event.path)
        return Request(event.raw_event, prefix if prefix != event.raw_path else "")

    def _admitted(self, route: Route, request: Request) -> Visit:
        """The visit, once its caller is known and may make it. Raises `Rejected` (401, 403)."""
        tenant = ""
        if route.scope is not None:
            caller = self._authenticator.caller(
                request.header("authorization"), host=request.header("host"), origin=request.header("origin")
            )
            require(caller, route.scope)
            tenant = caller.tenant
        return Visit(self._backend, request, tenant, _remaining_seconds(self._router.lambda_context))

    def _unrouted(self, _: Exception) -> Response[str]:
        request = self._request()
        allowed = sorted({route.method for route in ROUTES if _pattern(route.path).fullmatch(request.path)})
        if not allowed:
            return _response(problem_reply(problem(404, "no-such-route", "there is nothing at this path")))
        detail = f"this path takes {', '.join(allowed)}"
        return _response(problem_reply(problem(405, "method-not-allowed", detail), {"Allow": ", ".join(allowed)}))

    def _unexpected(self, error: Exception, *, route: str, request_id: str | None) -> Reply:
        """Note what went wrong and where; the message stays out of the log, for it may quote a payload."""
        frames = traceback.extract_tb(error.__traceback__)
        at = f"{frames[-1].filename.rpartition('/ringfence/')[2]}:{frames[-1].lineno}" if frames else "unknown"
        fields = {"route": route, "error": type(error).__name__, "at": at, "request_id": request_id}
        self._backend.telemetry.event("request_failed", **fields)
        return problem_reply(problem(500, "internal-error", "something went wrong here; it has been noted"))


@functools.cache
def _pattern(path: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"<\w+>", "[^/]+", path))


def _remaining_seconds(lambda_context: Any) -> float:
    remaining = getattr(lambda_context, "get_remaining_time_in_millis", None)
    return math.inf if remaining is None else float(remaining()) / 1000


def _response(reply: Reply) -> Response[str]:
    body = None if reply.body is None else reply.body.decode()
    return Response(reply.status, body=body, headers={**_ALWAYS, **reply.headers})
