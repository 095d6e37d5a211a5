"""A Redis Cluster. All keys of a queue lie in one slot, so each call goes to one node."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from redis.backoff import NoBackoff
from redis.cluster import RedisCluster
from redis.exceptions import NoScriptError, ResponseError
from redis.retry import Retry

from ringfence.redis.address import Server
from ringfence.redis.condition import Condition
from ringfence.redis.connection import Argument
from ringfence.redis.packing import ERRORS, as_bytes
from ringfence.redis.scripts import Script

ATTEMPTS_AGAIN = 2
"""Of a call that finds its node gone or the slot moved; each looks at the cluster's map anew."""


class Cluster:
    """See `ringfence.redis.connection.Connection`. redis-py follows the slots; it pools connections by node and process."""

    def __init__(self, server: Server, condition: Condition, timeout_seconds: float) -> None:
        self._server, self._condition, self._timeout_seconds = server, condition, timeout_seconds
        self._lock = threading.Lock()
        self._made: tuple[int, RedisCluster] | None = None

    def run(self, script: Script, keys: Sequence[str], arguments: Sequence[Argument]) -> Any:
        try:
            return self._ask("EVALSHA", script.sha1, len(keys), *keys, *arguments)
        except NoScriptError:
            return self._ask("EVAL", script.source, len(keys), *keys, *arguments)

    def wait_then_run(
        self, key: str, seconds: float, script: Script, keys: Sequence[str], arguments: Sequence[Argument]
    ) -> Any:
        # redis-py waits for the reply no longer than its socket timeout.
        self._ask("BLPOP", key, f"{max(0.001, min(seconds, self._timeout_seconds / 2)):.3f}")
        return self.run(script, keys, arguments)

    def begin(self, script: Script, keys: Sequence[str], arguments: Sequence[Argument]) -> Callable[[], Any]:
        reply = self.run(script, keys, arguments)  # redis-py has no other way for one that follows the slots
        return lambda: reply

    def info(self, key: str) -> Mapping[str, str]:
        client = self._client()
        return _info(client, client.get_node_from_key(key)) or {}

    def close(self) -> None:
        with self._lock:
            made, self._made = self._made, None
        if made is not None and made[0] == os.getpid():
            made[1].close()

    def _ask(self, *command: Argument) -> Any:
        client = self._client()
        try:
            return client.execute_command(*command)
        except UnicodeEncodeError:  # a stranger's message that was not UTF-8
            return client.execute_command(command[0], *as_bytes(command[1:]))

    def _client(self) -> RedisCluster:
        """This process's: a forked one makes its own, and leaves its parent's connections alone."""
        with self._lock:
            if self._made is None or self._made[0] != os.getpid():
                self._made = os.getpid(), self._new_client()
            return self._made[1]

    def _new_client(self) -> RedisCluster:
        client = RedisCluster(
            host=self._server.host,
            port=self._server.port,
            username=self._server.username,
            password=self._server.password,
            ssl=self._server.tls,
            retry=Retry(NoBackoff(), ATTEMPTS_AGAIN),
            socket_timeout=self._timeout_seconds,
            socket_connect_timeout=self._timeout_seconds,
            decode_responses=True,
            encoding_errors=ERRORS,
            protocol=2,
            driver_info=None,
        )
        for node in client.get_primaries():
            self._condition.look(node.name, _info(client, node))
        return client


def _info(client: RedisCluster, node: Any) -> Mapping[str, str] | None:
    try:
        return {name: str(value) for name, value in client.info(target_nodes=node).items()}
    except ResponseError:
        return None
