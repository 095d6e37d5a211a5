"""One Redis server, with a connection for each thread that talks to it.

A dedicated connection saves what redis-py's pool and command layers cost: about as much as the command itself.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from redis.connection import Connection as RedisConnection
from redis.connection import SSLConnection
from redis.exceptions import NoScriptError, ResponseError

from ringfence.redis.address import Server
from ringfence.redis.condition import Condition, parse_info
from ringfence.redis.connection import Argument
from ringfence.redis.failures import FAILURES, wants_fresh_connection
from ringfence.redis.packing import ERRORS, pack
from ringfence.redis.scripts import Script


class SingleServer:
    """See `ringfence.redis.connection.Connection`."""

    def __init__(self, server: Server, condition: Condition, timeout_seconds: float) -> None:
        self._server, self._condition, self._timeout_seconds = server, condition, timeout_seconds
        self._mine = threading.local()
        self._beside: tuple[int, list[RedisConnection]] = (0, [])
        """The process they belong to, and connections whose last reply has been read: for what is begun and not waited for."""

    def run(self, script: Script, keys: Sequence[str], arguments: Sequence[Argument]) -> Any:
        """A server that does not know the script (restarted, failed over, flushed) is sent its source, which it remembers."""
        try:
            return self._ask(("EVALSHA", script.sha1, len(keys), *keys, *arguments))
        except NoScriptError:
            return self._ask(("EVAL", script.source, len(keys), *keys, *arguments))

    def wait_then_run(
        self, key: str, seconds: float, script: Script, keys: Sequence[str], arguments: Sequence[Argument]
    ) -> Any:
        """Both commands are sent together: Redis begins with the second as soon as it has answered the first."""
        wait = ("BLPOP", key, f"{max(0.001, seconds):.3f}")  # 0 would be for ever
        try:
            return self._ask(wait, ("EVALSHA", script.sha1, len(keys), *keys, *arguments), blocked_seconds=seconds)
        except NoScriptError:
            return self.run(script, keys, arguments)

    def begin(self, script: Script, keys: Sequence[str], arguments: Sequence[Argument]) -> Callable[[], Any]:
        """On a connection beside the thread's own, which can be used meanwhile."""
        connections = self._connections_beside()
        try:
            connection = connections.pop()
        except IndexError:
            connection = self._new_connection()
        packed = [pack(("EVALSHA", script.sha1, len(keys), *keys, *arguments))]
        try:
            connection.send_packed_command(packed, check_health=False)
        except FAILURES:
            connection.disconnect()
            raise

        def reply() -> Any:
            try:
                return connection.read_response()
            except NoScriptError:
                return self.run(script, keys, arguments)
            except FAILURES as failure:
                if wants_fresh_connection(failure):
                    connection.disconnect()
                raise
            finally:
                connections.append(connection)

        return reply

    def info(self, key: str) -> Mapping[str, str]:
        try:
            return parse_info(self._ask(("INFO",)))
        except ResponseError:
            return {}

    def close(self) -> None:
        if hasattr(self._mine, "connection"):
            self._mine.connection.disconnect()

    def _ask(self, *commands: tuple[Argument, ...], blocked_seconds: float = 0.0) -> Any:
        """The reply to the last command; the first may block for so long."""
        packed = [pack(command) for command in commands]
        connection = self._connection()
        may_be_stale = connection.is_connected
        try:
            connection.send_packed_command(packed, check_health=False)
            return self._reply(connection, len(packed), blocked_seconds)
        except FAILURES as failure:
            if not wants_fresh_connection(failure):
                raise
            connection.disconnect()
            if not may_be_stale:
                raise
        connection.send_packed_command(packed, check_health=False)
        return self._reply(connection, len(packed), blocked_seconds)

    def _reply(self, connection: RedisConnection, commands: int, blocked_seconds: float) -> Any:
        """The last one. All are read even if one is an error, or the next call would get what is left."""
        if commands == 1:
            return connection.read_response()
        refusal: ResponseError | None = None
        reply = None
        for number in range(commands):
            try:
                reply = connection.read_response(timeout=self._timeout_seconds + (0.0 if number else blocked_seconds))
            except ResponseError as fault:
                refusal = refusal or fault
        if refusal is not None:
            raise refusal
        return reply

    def _connection(self) -> RedisConnection:
        """This thread's. In a forked process that is another one: the parent goes on talking on its own."""
        mine, pid = self._mine, os.getpid()
        if getattr(mine, "pid", None) != pid:
            mine.connection, mine.pid = self._new_connection(), pid
        connection: RedisConnection = mine.connection
        return connection

    def _connections_beside(self) -> list[RedisConnection]:
        """This process's, as above."""
        pid = os.getpid()
        if self._beside[0] != pid:
            self._beside = pid, []
        return self._beside[1]

    def _new_connection(self) -> RedisConnection:
        kind = SSLConnection if self._server.tls else RedisConnection
        return kind(
            host=self._server.host,
            port=self._server.port,
            db=self._server.db,
            username=self._server.username,
            password=self._server.password,
            socket_timeout=self._timeout_seconds,
            socket_connect_timeout=self._timeout_seconds,
            decode_responses=True,
            encoding_errors=ERRORS,
            protocol=2,
            driver_info=None,  # saves two round trips of every connection
            redis_connect_func=self._greet,
        )

    def _greet(self, connection: RedisConnection) -> None:
        try:
            connection.on_connect()
            self._condition.look(str(self._server), _info(connection))
        except BaseException:
            connection.disconnect()
            raise


def _info(connection: RedisConnection) -> Mapping[str, str] | None:
    try:
        connection.send_packed_command([pack(("INFO",))], check_health=False)
        return parse_info(connection.read_response())
    except ResponseError:
        return None
