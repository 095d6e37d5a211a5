"""The HTTP API: one event in, one answer out.

Ten routes need no framework, and a cold start feels one: Powertools' resolver took 84 of the gateway's 204 milliseconds of
imports before boto3's, asyncio among them.
"""

from __future__ import annotations

import functools
import math
import re
import traceback
from collections.abc import Mapping
from typing import Any

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

    def answer(self, event: Mapping[str, Any], lambda_context: Any) -> dict[str, Any]:
        """Find the route and answer. What is no request at all gets an answer, too, whoever sent it."""
        try:
            request = Request.of(event)
            for route in ROUTES:
                taken = _pattern(route.path).fullmatch(request.path) if route.method == request.method else None
                if taken is not None:
                    reply = self._told(route, request, taken.groupdict(), _remaining_seconds(lambda_context))
                    break
            else:
                reply = _unrouted(request.path)
        except RingfenceError as error:
            reply = error_reply(error) or self._unexpected(error, route="none", request_id=None)
        except Exception as error:  # noqa: BLE001 - see above
            reply = self._unexpected(error, route="none", request_id=None)
        return _answer(reply)

    def _told(self, route: Route, request: Request, path_parts: Mapping[str, str], remaining_seconds: float) -> Reply:
        """The route's reply; one event tells of it."""
        started, name = self._backend.clock.monotonic(), f"{route.method} {route.path}"
        try:
            reply = route.answer(self._admitted(route, request, remaining_seconds), **path_parts)
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
        return reply

    def _admitted(self, route: Route, request: Request, remaining_seconds: float) -> Visit:
        """The visit, once its caller is known and may make it. Raises `Rejected` (401, 403)."""
        if route.scope is None:
            return Visit(self._backend, request, "", frozenset(), remaining_seconds)
        caller = self._authenticator.caller(
            request.header("authorization"), host=request.header("host"), origin=request.header("origin")
        )
        require(caller, route.scope)
        return Visit(self._backend, request, caller.tenant, caller.scopes, remaining_seconds)

    def _unexpected(self, error: Exception, *, route: str, request_id: str | None) -> Reply:
        """Note what went wrong and where; the message stays out of the log, for it may quote a payload."""
        frames = traceback.extract_tb(error.__traceback__)
        at = f"{frames[-1].filename.rpartition('/ringfence/')[2]}:{frames[-1].lineno}" if frames else "unknown"
        fields = {"route": route, "error": type(error).__name__, "at": at, "request_id": request_id}
        self._backend.telemetry.event("request_failed", **fields)
        return problem_reply(problem(500, "internal-error", "something went wrong here; it has been noted"))


def _unrouted(path: str) -> Reply:
    allowed = sorted({route.method for route in ROUTES if _pattern(route.path).fullmatch(path)})
    if not allowed:
        return problem_reply(problem(404, "no-such-route", "there is nothing at this path"))
    detail = f"this path takes {', '.join(allowed)}"
    return problem_reply(problem(405, "method-not-allowed", detail), {"Allow": ", ".join(allowed)})


@functools.cache
def _pattern(path: str) -> re.Pattern[str]:
    return re.compile(re.sub(r"<(\w+)>", r"(?P<\1>[^/]+)", path))


def _remaining_seconds(lambda_context: Any) -> float:
    remaining = getattr(lambda_context, "get_remaining_time_in_millis", None)
    return math.inf if remaining is None else float(remaining()) / 1000


def _answer(reply: Reply) -> dict[str, Any]:
    """https://docs.aws.amazon.com/apigateway/latest/developerguide/http-api-develop-integrations-lambda.html#http-api-develop-integrations-lambda.response"""
    body = "" if reply.body is None else reply.body.decode()
    return {"statusCode": reply.status, "headers": {**_ALWAYS, **reply.headers}, "body": body, "isBase64Encoded": False}
