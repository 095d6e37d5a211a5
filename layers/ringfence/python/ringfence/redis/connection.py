"""What a queue needs of a Redis, and the choice between one server and a cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from ringfence.ports import Telemetry
from ringfence.redis.address import Server
from ringfence.redis.condition import Condition
from ringfence.redis.scripts import Script
from ringfence.settings import Misconfigured

Argument = str | int

TIMEOUT_SECONDS = 5.0
"""The longest wait for a reply, unless a lease is so short that it would end meanwhile: then half of it."""


class Connection(Protocol):
    """Runs scripts. Safe to share between threads and to take through a fork; errors are redis-py's own.

    A call whose connection broke before its reply is sent once more on a fresh one: it may have been carried out twice.
    """

    def run(self, script: Script, keys: Sequence[str], arguments: Sequence[Argument]) -> Any:
        """The script's reply; text is `str`, bytes that are not UTF-8 are lone surrogates (PEP 383)."""
        ...

    def wait_then_run(
        self, key: str, seconds: float, script: Script, keys: Sequence[str], arguments: Sequence[Argument]
    ) -> Any:
        """Block until there is a token in this list, and take it, or until the time is up; then run a script as `run` does.

        In one round trip where that can be: whoever is woken has its messages at once.
        """
        ...

    def begin(self, script: Script, keys: Sequence[str], arguments: Sequence[Argument]) -> Callable[[], Any]:
        """Send now what `run` would; the returned call, in any thread, waits for the reply. Neither is tried again."""
        ...

    def info(self, key: str) -> Mapping[str, str]:
        """INFO of the server that holds this key; empty where it is forbidden."""
        ...

    def close(self) -> None:
        """Drop the connections of the calling thread; the next call opens a new one."""
        ...


def connect(server: Server, telemetry: Telemetry | None = None, *, lease_seconds: float = 30.0) -> Connection:
    """A connection to this Redis, opened with the first call. Raises `Misconfigured` when redis-py is not installed."""
    timeout_seconds = min(TIMEOUT_SECONDS, lease_seconds / 2)
    condition = Condition(telemetry)
    try:
        if server.cluster:
            from ringfence.redis.cluster import Cluster

            return Cluster(server, condition, timeout_seconds)
        from ringfence.redis.single import SingleServer

        return SingleServer(server, condition, timeout_seconds)
    except ModuleNotFoundError as missing:
        package = (missing.name or "").partition(".")[0]
        raise Misconfigured(f"RINGFENCE_QUEUES names a Redis, for which {package} is not installed") from None
