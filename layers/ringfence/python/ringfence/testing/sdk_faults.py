"""Faults in front of boto3, met by the SDK's own retries just as real ones would be.

    with inject(client, "UpdateItem", [read_timeout(), refused("ThrottlingException")]):
        ...

Each attempt of the operation, the SDK's repetitions included, takes the next fault of the list; when it is used up, attempts
pass. It sits where the SDK sends one attempt, so it works the same on AWS, on an emulator over HTTP and on moto in process.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any

from botocore.awsrequest import AWSResponse
from botocore.exceptions import ConnectTimeoutError, ReadTimeoutError

Attempt = tuple[tuple[Any, dict[str, Any]] | None, Exception | None]
"""What the SDK makes of one attempt: the HTTP response and the parsed reply, or the error."""

Send = Callable[[], Attempt]
SdkFault = Callable[[Send, str], Attempt]
"""Given the way to make the attempt for real and the endpoint's URL, returns what the SDK sees."""


def through() -> SdkFault:
    """No fault: this attempt passes."""
    return lambda send, _url: send()


def connect_timeout() -> SdkFault:
    """The service is never reached."""
    return lambda _send, url: (None, ConnectTimeoutError(endpoint_url=url))


def read_timeout() -> SdkFault:
    """The service carries the call out, and its reply is lost."""

    def fault(send: Send, url: str) -> Attempt:
        send()
        return None, ReadTimeoutError(endpoint_url=url)

    return fault


def refused(code: str, message: str = "injected", *, status: int = 400, **more: Any) -> SdkFault:
    """The service answers with an error and does nothing. ``more`` are further members, such as ``CancellationReasons``."""
    return replaced({**more, "Error": {"Code": code, "Message": message}}, status=status)


def replaced(reply: Mapping[str, Any], *, status: int = 200) -> SdkFault:
    """The service does nothing and ``reply`` is what it is said to have answered."""

    def fault(_send: Send, url: str) -> Attempt:
        metadata = {"HTTPStatusCode": status, "RequestId": "injected", "HTTPHeaders": {}}
        return (AWSResponse(url, status, {}, _NoBody()), {**reply, "ResponseMetadata": metadata}), None

    return fault


def edited(edit: Callable[[dict[str, Any]], dict[str, Any]]) -> SdkFault:
    """The service carries the call out, and ``edit`` changes what it answered. An attempt that failed stays as it is."""

    def fault(send: Send, _url: str) -> Attempt:
        success, error = send()
        if success is None:
            return success, error
        http, reply = success
        return (http, edit(reply)), error

    return fault


def held(arrived: threading.Event, go_on: threading.Event) -> SdkFault:
    """The attempt waits on its way to the service: sets ``arrived``, is sent once ``go_on`` is set."""

    def fault(send: Send, _url: str) -> Attempt:
        arrived.set()
        go_on.wait()
        return send()

    return fault


class Injection:
    """Faults at work in one client. Ends with its ``with`` block or with `remove`."""

    def __init__(self, client: Any, operation: str, faults: Sequence[SdkFault]) -> None:
        if operation not in client.meta.service_model.operation_names:
            raise ValueError(f"{client.meta.service_model.service_name} has no operation {operation!r}")
        self._operation = operation
        self._faults: Iterator[SdkFault] = iter(faults)
        self._lock = threading.Lock()
        self._active = True
        self.attempts = 0
        """How often the SDK tried the operation, struck or not."""
        self.struck = 0
        """How many faults have been used."""
        # Private to botocore, and the one place through which every attempt passes below its retries.
        endpoint = client._endpoint
        self._really = endpoint._do_get_response
        endpoint._do_get_response = self._attempt

    def remove(self) -> None:
        """From now on every attempt passes."""
        self._active = False

    def __enter__(self) -> Injection:
        return self

    def __exit__(self, _type: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None) -> None:
        self.remove()

    def _attempt(self, request: Any, operation_model: Any, context: Any) -> Attempt:
        def send() -> Attempt:
            attempt: Attempt = self._really(request, operation_model, context)
            return attempt

        fault = self._next() if self._active and operation_model.name == self._operation else None
        return send() if fault is None else fault(send, request.url)

    def _next(self) -> SdkFault | None:
        with self._lock:
            self.attempts += 1
            fault = next(self._faults, None)
            self.struck += fault is not None
            return fault


def inject(client: Any, operation: str, faults: Sequence[SdkFault]) -> Injection:
    """Put ``faults`` in front of an operation (``"PutRecords"``) of a boto3 client, one for each attempt to come.

    Later injections into the same client stand in front of earlier ones. An operation the service does not have is a
    `ValueError`.
    """
    return Injection(client, operation, faults)


class _NoBody:
    """The body of a response that nobody sent."""

    def stream(self, *_args: Any, **_kwargs: Any) -> Iterator[bytes]:
        return iter(())
