"""boto3 clients: one of each per process, built when first needed, tuned to fail while a lease is still alive."""

from __future__ import annotations

import os
import threading
from dataclasses import dataclass
from typing import Any

import boto3
from botocore.config import Config
from botocore.exceptions import NoRegionError

from ringfence.aws.clock import AWS_CLOCK
from ringfence.aws.replies import refuse_cut
from ringfence.settings import Misconfigured

LONG_POLL_SECONDS = 20
"""The longest wait of ReceiveMessage.
https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-short-and-long-polling.html"""

LEAST_CONNECTIONS = 64
"""That a client keeps open for the threads that call at once: as many as any function has. urllib3 throws away what a thread
brings back beyond them ("Connection pool is full"), and opens another for the next call."""

CONNECTIONS_PER_JOB = 2
"""One that a job's own thread calls by, and one of the thread that renews its row meanwhile."""


@dataclass(frozen=True, slots=True)
class _Tuning:
    """How long one call may take: at worst ``attempts`` times both timeouts, and a second or so between."""

    connect_seconds: float = 2.0
    read_seconds: float = 5.0
    attempts: int = 2


_DEFAULT = _Tuning()
"""15 seconds at worst: a heartbeat, which begins after a third of the lease, has an answer before one of 30 seconds ends."""

_BY_SERVICE = {
    # The log sends again only the records that failed, and sets its own pace: the SDK would send all of them.
    "kinesis": _Tuning(connect_seconds=1.0, read_seconds=2.0, attempts=1),
    # Objects are larger than rows, and no lease hangs on one reply.
    "s3": _Tuning(read_seconds=20.0, attempts=3),
}


_connections = LEAST_CONNECTIONS


def make_room(jobs: int) -> None:
    """Let the clients of this process, if none is built yet, keep connections for so many jobs that run at once."""
    global _connections
    _connections = max(LEAST_CONNECTIONS, CONNECTIONS_PER_JOB * jobs)


class _Clients:
    """The clients of one process. A boto3 client may be shared by threads; building one, and a session, may not.

    https://boto3.amazonaws.com/v1/documentation/api/latest/guide/clients.html#multithreading-or-multiprocessing-with-clients
    """

    def __init__(self) -> None:
        self._building = threading.Lock()
        self._session: boto3.session.Session | None = None
        self._built: dict[tuple[str, bool], Any] = {}

    def get(self, service: str, long_poll: bool) -> Any:
        key = (service, long_poll)
        if key not in self._built:
            with self._building:
                if key not in self._built:
                    built = self._build(service, _config(service, long_poll))
                    AWS_CLOCK.listen(built)
                    refuse_cut(built)
                    self._built[key] = built
        return self._built[key]

    def _build(self, service: str, config: Config) -> Any:
        if _localstack_is_meant(service):
            return _localstack_client(service, config)
        if self._session is None:
            # boto3 by itself knows only the first; Lambda sets both, and others may set the second.
            region = os.environ.get("AWS_DEFAULT_REGION") or os.environ.get("AWS_REGION")
            self._session = boto3.session.Session(region_name=region)
        try:
            return self._session.client(service, config=config)
        except NoRegionError:
            raise Misconfigured("no region is named: set AWS_REGION") from None


def client(service: str, *, long_poll: bool = False) -> Any:
    """The process's client of an AWS service (``"sqs"``, ``"dynamodb"``, …). Raises `Misconfigured` where no region is named.

    ``long_poll`` gives one whose read timeout leaves room for `LONG_POLL_SECONDS` of waiting. ``AWS_ENDPOINT_URL`` is boto3's
    own business; with ``LOCALSTACK_HOST`` and without an endpoint, localstack-client's defaults apply.
    """
    return _clients.get(service, long_poll)


def forget() -> None:
    """Build every client anew when next asked for: after a change of the environment, and in a forked child, which must share
    neither sockets nor a lock that some thread of its parent may hold."""
    global _clients
    _clients = _Clients()


_clients = _Clients()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=forget)


def _config(service: str, long_poll: bool) -> Config:
    tuning = _BY_SERVICE.get(service, _DEFAULT)
    return Config(
        connect_timeout=tuning.connect_seconds,
        read_timeout=tuning.read_seconds + (LONG_POLL_SECONDS if long_poll else 0),
        retries={"mode": "standard", "total_max_attempts": tuning.attempts},
        max_pool_connections=_connections,
        tcp_keepalive=True,
    )


def _localstack_is_meant(service: str) -> bool:
    own_endpoint = f"AWS_ENDPOINT_URL_{service.upper().replace('-', '_')}"
    endpoint = os.environ.get("AWS_ENDPOINT_URL") or os.environ.get(own_endpoint)
    return bool(os.environ.get("LOCALSTACK_HOST")) and not endpoint


def _localstack_client(service: str, config: Config) -> Any:
    # Only on a developer's machine, and not among the function's dependencies.
    from localstack_client.session import Session

    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
    return Session(region_name=region).client(service, config=config)
