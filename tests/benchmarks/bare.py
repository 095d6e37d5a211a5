"""The yardsticks: a queue on Redis as one would write it in a few lines, with redis-py and a connection of its own.

Its protocol is the engine's: one sorted set scored by visibility, how often a message was handed out in the fraction of the
score and compared at the acknowledge, the time of Redis, the acknowledge in the call that leases. What it lacks is what
production needs beside it: workers that wait, a memory that can be lost, foreign messages, errors that say what failed.
"""

from __future__ import annotations

from collections.abc import Sequence

import redis

KEY = "bare"

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
    """One client, and so one connection."""

    def __init__(self, port: int) -> None:
        self._redis = redis.Redis(port=port, single_connection_client=True, decode_responses=True, protocol=2)
        self._exchange = self._redis.script_load(EXCHANGE)

    def push(self, *members: str) -> None:
        """The plainest command that can: no script, no time."""
        self._redis.zadd(KEY, dict.fromkeys(members, 1), nx=True)

    def exchange(self, done: Sequence[str | int], most: int, lease_ms: int) -> tuple[list[str | int], list[str]]:
        """Acknowledge what was leased before, and lease: ``member, deliveries, member, deliveries, …``, and the bodies."""
        leased: list[str | int] = self._redis.evalsha(self._exchange, 1, KEY, most, lease_ms, *done)
        return leased, [str(member).partition("\x1f")[2] for member in leased[::2]]

    def clear(self) -> None:
        self._redis.delete(KEY)

    def close(self) -> None:
        self._redis.close()
