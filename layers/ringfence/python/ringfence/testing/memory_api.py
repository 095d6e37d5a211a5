"""The HTTP API over the memory engines, for tests of what calls it: as a function, or on a loopback port."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http.server import ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

from ringfence.gateway import Gateway
from ringfence.http import api
from ringfence.http.auth import SCOPES, new_key
from ringfence.local.whole_requests import WholeRequestHandler
from ringfence.memory.keys import MemoryKeys
from ringfence.ports import Clock, Keys, SettingsStore, Telemetry
from ringfence.settings import Settings
from ringfence.testing.system import MemorySystem

Event = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Answered:
    """An answer of the API; header names in lower case."""

    status: int
    headers: Mapping[str, str]
    text: str

    @property
    def document(self) -> Any:
        return json.loads(self.text)

    @property
    def kind(self) -> str:
        """The kind of a problem document."""
        return str(self.document["type"]).rpartition("/")[2]


class MemoryApi:
    """What `http.api` needs of a `runtime.Runtime`, from a `MemorySystem`."""

    def __init__(
        self, system: MemorySystem, *, auth: str = "api-key", wait_cap_seconds: float = 0.0, endpoint_url: str | None = None
    ) -> None:
        self.system = system
        self.settings = Settings(
            ledger_table="memory",
            stream="memory",
            queues={},
            auth=auth,
            wait_cap_seconds=wait_cap_seconds,
            endpoint_url=endpoint_url,
        )
        self.keys: Keys = MemoryKeys()

    @property
    def clock(self) -> Clock:
        return self.system.clock

    @property
    def telemetry(self) -> Telemetry:
        return self.system.telemetry

    @property
    def gateway(self) -> Gateway:
        return self.system.gateway

    @property
    def queue_settings(self) -> SettingsStore:
        return self.system.queue_settings

    def key(self, tenant: str = "default", scopes: Iterable[str] = SCOPES) -> str:
        """A fresh API key of this tenant."""
        secret, kept = new_key(self.system.ids, self.clock, tenant=tenant, scopes=frozenset(scopes))
        self.keys.add(kept)
        return secret

    def answer(self, event: Event, lambda_context: Any = None) -> Event:
        """Answer an event as the function would."""
        return api.handle(event, lambda_context, self)

    def request(
        self, method: str, target: str, body: str | bytes | None = None, key: str | None = None, **headers: str
    ) -> Answered:
        """Make a request. Bytes travel in base64; ``idempotency_key="k"`` is the header ``Idempotency-Key``."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        authorization = {} if key is None else {"authorization": f"Bearer {key}"}
        answer = self.answer(event_of(method, target, {**authorization, **named}, body))
        lower = {name.lower(): value for name, value in answer["headers"].items()}
        return Answered(answer["statusCode"], lower, answer["body"] or "")


def event_of(method: str, target: str, headers: Mapping[str, str], body: str | bytes | None) -> Event:
    """A request as an event of payload format 2.0."""
    parts = urlsplit(target)
    in_base64 = isinstance(body, bytes)
    return {
        "version": "2.0",
        "routeKey": "$default",
        "rawPath": parts.path,
        "rawQueryString": parts.query,
        "headers": {name.lower(): value for name, value in headers.items()},
        "requestContext": {
            "stage": "$default",
            "requestId": "request",
            "http": {"method": method, "path": parts.path, "protocol": "HTTP/1.1", "sourceIp": "127.0.0.1"},
        },
        "body": base64.b64encode(body).decode() if isinstance(body, bytes) else body,
        "isBase64Encoded": in_base64,
    }


@contextmanager
def served(answer: Callable[[Event], Event]) -> Iterator[str]:
    """Serve a handler of events on a free loopback port, one request at a time as Lambda would. Gives its URL."""
    one_at_a_time = threading.Lock()

    class Handler(WholeRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True
        timeout = 10

        def respond(self) -> None:
            body = self.read_body()
            with one_at_a_time:
                answer_event = answer(event_of(self.command, self.path, dict(self.headers), body))
            text = (answer_event.get("body") or "").encode()
            self.send_response(answer_event["statusCode"])
            for name, value in answer_event["headers"].items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            if answer_event["statusCode"] != 304:
                self.wfile.write(text)

        do_GET = do_POST = do_PATCH = respond

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
