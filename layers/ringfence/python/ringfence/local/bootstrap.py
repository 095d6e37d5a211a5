"""A function's process: asks the Runtime API for invocations and runs the handler. ``python -m ringfence.local.bootstrap``.

As small as it can be, so that what is slow in a cold start is the function's. It ends when the process that started it ends.
https://docs.aws.amazon.com/lambda/latest/dg/runtimes-custom.html
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import sys
import time
import traceback
from collections.abc import Callable
from http.client import HTTPConnection, HTTPException
from typing import Any

from ringfence.local.tether import tether

FAULTS_VARIABLE = "RINGFENCE_DEV_FAULTS"
"""A plan of faults (JSON, or ``@PATH``) for `ringfence.testing.process_faults`; only here, so never in production."""

_PREFIX = "/2018-06-01/runtime"

Handler = Callable[[Any, "Context"], Any]


class Context:
    """What a handler is told besides its event.

    https://docs.aws.amazon.com/lambda/latest/dg/python-context.html
    """

    def __init__(self, request_id: str, function_arn: str, deadline_ms: int) -> None:
        self.aws_request_id = request_id
        self.invoked_function_arn = function_arn
        self.function_name = os.environ["AWS_LAMBDA_FUNCTION_NAME"]
        self.function_version = os.environ["AWS_LAMBDA_FUNCTION_VERSION"]
        self.memory_limit_in_mb = os.environ["AWS_LAMBDA_FUNCTION_MEMORY_SIZE"]
        self.log_group_name = os.environ["AWS_LAMBDA_LOG_GROUP_NAME"]
        self.log_stream_name = os.environ["AWS_LAMBDA_LOG_STREAM_NAME"]
        self.identity = None
        self.client_context = None
        self._deadline_ms = deadline_ms

    def get_remaining_time_in_millis(self) -> int:
        return max(self._deadline_ms - int(time.time() * 1000), 0)


class Api:
    """The client's side of the Runtime API, over one connection. Raises `OSError` or `HTTPException` when it is gone."""

    def __init__(self, address: str) -> None:
        self._connection = HTTPConnection(address)

    def next(self) -> tuple[bytes, Context]:
        answer, body = self._call("GET", "/invocation/next")
        return body, Context(
            answer["Lambda-Runtime-Aws-Request-Id"] or "",
            answer["Lambda-Runtime-Invoked-Function-Arn"] or "",
            int(answer["Lambda-Runtime-Deadline-Ms"] or 0),
        )

    def respond(self, request_id: str, payload: bytes) -> None:
        self._call("POST", f"/invocation/{request_id}/response", payload)

    def fail(self, request_id: str, fault: BaseException, kind: str = "Unhandled") -> None:
        self._call("POST", f"/invocation/{request_id}/error", described(fault), kind)

    def init_failed(self, fault: BaseException) -> None:
        self._call("POST", "/init/error", described(fault), "Runtime.Unknown")

    def _call(self, method: str, path: str, body: bytes | None = None, error: str | None = None) -> tuple[Any, bytes]:
        headers = {"Lambda-Runtime-Function-Error-Type": error} if error else {}
        self._connection.request(method, _PREFIX + path, body, headers)
        answer = self._connection.getresponse()
        return answer.headers, answer.read()


def described(fault: BaseException) -> bytes:
    """An error as Lambda reports it: message, type and stack."""
    stack = traceback.format_list(traceback.extract_tb(fault.__traceback__))
    return json.dumps({"errorMessage": str(fault), "errorType": type(fault).__name__, "stackTrace": stack}).encode()


def load_handler(name: str) -> Handler:
    """The handler that ``module.function`` names, with the planned faults, if any, in place before its module is imported."""
    if plan := os.environ.get(FAULTS_VARIABLE):
        from ringfence import runtime
        from ringfence.testing.process_faults import process_faults

        runtime.wrap_with(process_faults(plan))
    module, _, function = name.rpartition(".")
    handler: Handler = getattr(importlib.import_module(module.replace("/", ".")), function)
    return handler


def invoke(api: Api, handler: Handler, body: bytes, context: Context) -> None:
    """Run one invocation and tell the API how it ended."""
    try:
        result = handler(json.loads(body), context)
    except Exception as fault:  # noqa: BLE001 - whatever user code raises is the invocation's error
        traceback.print_exc()
        api.fail(context.aws_request_id, fault)
        return
    try:
        payload = json.dumps(result, ensure_ascii=False).encode()
    except (TypeError, ValueError) as fault:
        traceback.print_exc()
        api.fail(context.aws_request_id, fault, "Runtime.MarshalError")
        return
    api.respond(context.aws_request_id, payload)


def main() -> None:
    tether()
    # In Lambda each environment has a log stream of its own, and a worker calls itself by it: here, host and process.
    os.environ["AWS_LAMBDA_LOG_STREAM_NAME"] = f"dev/[$LATEST]{socket.gethostname()[:20]}-{os.getpid()}"
    api = Api(os.environ["AWS_LAMBDA_RUNTIME_API"])
    try:
        handler = load_handler(os.environ["_HANDLER"])
    except BaseException as fault:  # noqa: BLE001 - user code again: SystemExit at import time is no reason either
        traceback.print_exc()
        api.init_failed(fault)
        raise SystemExit(1) from None
    while True:
        try:
            invoke(api, handler, *api.next())
        except (OSError, HTTPException):
            # The API is gone, and with it whoever started this process. Threads of the handler's may still be running.
            sys.stdout.flush()
            os._exit(0)


if __name__ == "__main__":
    main()
