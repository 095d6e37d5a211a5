"""moto's server behind one lock, on a listening socket that it inherits: ``moto_server.py FILE-DESCRIPTOR``.

The lock is not for speed: moto's threads are not atomic (two winners of one put-if-absent were measured), so without it
nothing about fencing could be tested. Requests are answered one after the other, whole.
"""

from __future__ import annotations

import io
import logging
import sys
import threading
from collections.abc import Iterable
from typing import Any

from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
from werkzeug.serving import WSGIRequestHandler, make_server

from ringfence.local.tether import tether


class OneAtATime:
    """A WSGI application that lets one request in at a time, and reads its answer to the end before the next."""

    def __init__(self, application: Any) -> None:
        self._application = application
        self._turn = threading.Lock()

    def __call__(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        # The body comes from the socket, as slowly as the client sends it: all of it first, then the turn.
        environ["wsgi.input"] = io.BytesIO(_body(environ))
        with self._turn:
            return list(self._application(environ, start_response))


def _body(environ: dict[str, Any]) -> bytes:
    if environ.get("wsgi.input_terminated"):
        return bytes(environ["wsgi.input"].read())
    return bytes(environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0)))


class _Quiet(WSGIRequestHandler):
    # Headers and body leave in one segment: a second one would wait for the first to be acknowledged, up to 40 ms.
    wbufsize = -1
    disable_nagle_algorithm = True

    def log_request(self, code: int | str = "-", size: int | str = "-") -> None:
        pass


def main() -> None:
    tether()
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    application = OneAtATime(DomainDispatcherApplication(create_backend_app))
    make_server("127.0.0.1", 0, application, threaded=True, request_handler=_Quiet, fd=int(sys.argv[1])).serve_forever()


if __name__ == "__main__":
    main()
