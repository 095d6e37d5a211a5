"""The yardsticks: a queue on Redis in a few lines, by the client that Ringfence uses, with nothing around its round trips.

Its protocol is the engine's: one sorted set scored by visibility, how often a message was handed out in the fraction of the
score and compared at the acknowledge, the time of Redis, the acknowledge in the call that leases. What it lacks is what
production needs beside it: workers that wait, a memory that can be lost, foreign messages, errors that say what failed.
"""

from __future__ import annotations

from collections.abc import Sequence

from hiredis import pack_command
from redis.connection import Connection

KEY = "bare"

PUSH = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local id = string.format('%013x', time[1] * 1000000 + time[2])
return redis.call('ZADD', KEYS[1], 'NX', now, id .. '\\31' .. ARGV[1])
"""

EXCHANGE = """
local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
if #ARGV > 2 then
  local members = {}
  for i = 3, #ARGV, 2 do members[#members + 1] = ARGV[i] end
  local scores = redis.call('ZMSCORE', KEYS[1], unpack(members))
  local current = {}
  for i = 1, #members do
    if scores[i] and (scores[i] % 1) * 2048 == tonumber(ARGV[2 * i + 2]) then current[#current + 1] = members[i] end
  end
  if #current > 0 then redis.call('ZREM', KEYS[1], unpack(current)) end
end
local due = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', '(' .. (now + 1), 'WITHSCORES', 'LIMIT', 0, ARGV[1])
local scored, reply = {}, {}
for i = 1, #due, 2 do
  local deliveries = (due[i + 1] % 1) * 2048 + 1
  scored[i], scored[i + 1] = now + ARGV[2] + deliveries / 2048, due[i]
  reply[i], reply[i + 1] = due[i], deliveries
end
if #scored > 0 then redis.call('ZADD', KEYS[1], unpack(scored)) end
return reply
"""


class Bare:
    """One connection, and commands packed by hiredis."""

    def __init__(self, port: int) -> None:
        self._connection = Connection(
            host="127.0.0.1", port=port, decode_responses=True, protocol=2, driver_info=None, socket_timeout=5.0
        )
        self._connection.connect()
        self._push, self._exchange = str(self.ask("SCRIPT", "LOAD", PUSH)), str(self.ask("SCRIPT", "LOAD", EXCHANGE))

    def ask(self, *command: str | int) -> object:
        self._connection.send_packed_command([pack_command(command)], check_health=False)
        return self._connection.read_response()

    def add(self, members: Sequence[str]) -> None:
        """The plainest command that can: no time, and the members as they are."""
        command: list[str | int] = ["ZADD", KEY, "NX"]
        for member in members:
            command += (1, member)
        self.ask(*command)

    def push(self, text: str) -> None:
        self.ask("EVALSHA", self._push, 1, KEY, text)

    def exchange(self, done: Sequence[str | int], most: int, lease_ms: int) -> list[str | int]:
        """Acknowledge what ``exchange`` returned before, and lease: ``member, deliveries, member, deliveries, …``"""
        reply = self.ask("EVALSHA", self._exchange, 1, KEY, most, lease_ms, *done)
        assert isinstance(reply, list)
        return reply

    def close(self) -> None:
        self._connection.disconnect()
