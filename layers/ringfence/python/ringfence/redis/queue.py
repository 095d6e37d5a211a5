"""The queue on Redis."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from ringfence.clock import SystemClock
from ringfence.errors import Unavailable
from ringfence.ports import MAX_DELAY_SECONDS, MAX_LEASE_SECONDS, Clock, Depth, Lease, Telemetry
from ringfence.redis.connection import Argument, Connection
from ringfence.redis.failures import FAILURES, unavailable
from ringfence.redis.messages import leases_in, with_deliveries, with_start
from ringfence.redis.scripts import script
from ringfence.wire import Ticket, encode_ticket

MAX_BATCH = 250
"""Messages in one call of a script: some two milliseconds in which Redis serves nobody else."""

MAX_PUSH_BYTES = 1024 * 1024
"""Bodies in one call."""

LOOK_SECONDS = 2.0
"""A lease that waits looks again after so long even if nobody wakes it: whoever took the token may have died with it."""
DEPTH_LOOKS = 200
"""Hidden messages that `depth` looks at: all of them up to so many, else a sample (± 7 % of them, mostly)."""

_DOING = {
    "push": "push to",
    "push_each": "push to",
    "lease": "lease from",
    "acknowledge_and_lease": "acknowledge and lease in",
    "extend": "extend leases of",
    "acknowledge": "acknowledge in",
    "release": "release in",
    "depth": "read the depth of",
    "marker": "read the memory mark of",
}
"""Verb → how people say that it failed: "cannot read the depth of queue default"."""


class RedisQueue:
    """One queue on Redis. Every call may raise `Unavailable`, except `push`, which returns what was not taken.

    Order: by the millisecond of visibility, and by push among the messages of one millisecond. A message that was leased
    before comes after those.
    """

    def __init__(
        self,
        connection: Connection,
        name: str,
        key: str | None = None,
        *,
        max_delay_seconds: float = MAX_DELAY_SECONDS,
        max_lease_seconds: float = MAX_LEASE_SECONDS,
        clock: Clock | None = None,
        telemetry: Telemetry | None = None,
    ) -> None:
        """``key`` is the queue's name in Redis, by default ``name``."""
        self.name = name
        self.max_delay_seconds = max_delay_seconds
        self.max_lease_seconds = max_lease_seconds
        self._connection = connection
        # One tag, so one slot of a cluster.
        self.messages_key = f"ringfence:{{{key or name}}}:messages"
        self._wake = f"ringfence:{{{key or name}}}:wake"
        self._clock = clock or SystemClock()
        self._telemetry = telemetry
        self._has_had_memory = False

    def push(self, tickets: Sequence[Ticket], delay_seconds: float | Sequence[float] = 0.0) -> list[Ticket]:
        """See `ringfence.ports.Queue.push`. Once a call fails, the rest is not tried: it counts as not taken."""
        bodies = [encode_ticket(ticket) for ticket in tickets]
        for part in _parts_to_push(bodies):
            try:
                if isinstance(delay_seconds, (int, float)):
                    delay_ms = _milliseconds(delay_seconds, self.max_delay_seconds)
                    lost = self._run("push", delay_ms, _wakes(delay_ms), *bodies[part])
                else:
                    delays_ms = [_milliseconds(each, self.max_delay_seconds) for each in delay_seconds[part]]
                    pairs = (each for pair in zip(delays_ms, bodies[part], strict=True) for each in pair)
                    lost = self._run("push_each", _wakes(min(delays_ms)), *pairs)
            except Unavailable:
                return list(tickets[part.start :])
            self._know_memory(lost)
        return []

    def lease(self, max_tickets: int, lease_seconds: float, wait_seconds: float = 0.0) -> list[Lease]:
        """See `ringfence.ports.Queue.lease`. Blocks while it waits; nothing is polled."""
        return self.acknowledge_and_lease((), max_tickets, lease_seconds, wait_seconds)

    def acknowledge_and_lease(
        self, done: Sequence[Lease], max_tickets: int, lease_seconds: float, wait_seconds: float = 0.0
    ) -> list[Lease]:
        """See `ringfence.ports.FusedQueue.acknowledge_and_lease`: one round trip for both."""
        if max_tickets <= 0:
            self.acknowledge(done)
            return []
        lease_ms = _milliseconds(lease_seconds, self.max_lease_seconds)
        give_up_at = self._clock.monotonic() + wait_seconds if wait_seconds > 0 else 0.0
        if len(done) > MAX_BATCH:
            self.acknowledge(done[MAX_BATCH:])
        leases, next_seconds = self._take(done[:MAX_BATCH], max_tickets, lease_ms)
        left_seconds = wait_seconds
        while not leases and left_seconds > 0:
            wait_seconds = min(left_seconds, next_seconds, LOOK_SECONDS)
            leases, next_seconds = self._take((), max_tickets, lease_ms, after_seconds=wait_seconds)
            left_seconds = give_up_at - self._clock.monotonic()
            if not leases and left_seconds <= 0:
                leases, _ = self._take((), max_tickets, lease_ms, stays=False)
        return leases

    def ask(self, done: Sequence[Lease], max_tickets: int, lease_seconds: float) -> Callable[[], list[Lease]]:
        """See `ringfence.ports.FusedQueue.ask`. At most `MAX_BATCH` messages."""
        lease_ms = _milliseconds(lease_seconds, self.max_lease_seconds)
        if len(done) > MAX_BATCH:
            self.acknowledge(done[MAX_BATCH:])
        verb, arguments = _taking(done[:MAX_BATCH], min(max_tickets, MAX_BATCH), lease_ms, stays=True)
        try:
            read = self._connection.begin(script(verb), (self.messages_key, self._wake), arguments)
        except FAILURES as failure:
            raise self._failed(verb, failure) from failure

        def reply() -> list[Lease]:
            try:
                return self._taken(read())
            except FAILURES as failure:
                raise self._failed(verb, failure) from failure

        return reply

    def extend(self, leases: Sequence[Lease], lease_seconds: float) -> list[Lease]:
        """See `ringfence.ports.Queue.extend`."""
        lease_ms = _milliseconds(lease_seconds, self.max_lease_seconds)
        most_ms = _milliseconds(self.max_lease_seconds, self.max_lease_seconds)
        lost: list[Lease] = []
        for batch in _batches(leases):
            lost += [batch[index] for index in self._run("extend", lease_ms, most_ms, *with_start(batch))]
        return lost

    def acknowledge(self, leases: Sequence[Lease]) -> None:
        """See `ringfence.ports.Queue.acknowledge`. A lease that has ended counts while nobody else has the message."""
        for batch in _batches(leases):
            self._run("acknowledge", *with_deliveries(batch))

    def release(self, leases: Sequence[Lease], delay_seconds: float = 0.0) -> None:
        """See `ringfence.ports.Queue.release`."""
        delay_ms = _milliseconds(delay_seconds, self.max_delay_seconds)
        for batch in _batches(leases):
            self._run("release", delay_ms, _wakes(delay_ms), *with_deliveries(batch))

    def depth(self) -> Depth:
        """See `ringfence.ports.Queue.depth`. Ready is exact, and so is the sum of leased and delayed; how they share it is
        exact up to `DEPTH_LOOKS` and estimated from a sample beyond. Its cost does not grow with the queue."""
        ready, leased, delayed, age_ms = self._run("depth", DEPTH_LOOKS)
        return Depth(ready=ready, leased=leased, delayed=delayed, oldest_ready_seconds=age_ms / 1000)

    def check(self) -> None:
        """Run the script that leases, without taking anything. Raises `Unavailable` if that does not work."""
        self._run("lease", 0, 0, 0, 1)

    def memory_mark(self) -> str:
        """See `ringfence.ports.MarkedQueue.memory_mark`: ``<when its set was made>/<the server's replication history>``."""
        made_at, lost = self._run("marker")
        self._know_memory(lost)
        try:
            info = self._connection.info(self.messages_key)
        except FAILURES as failure:
            raise unavailable(failure, f"inspect the Redis of queue {self.name}") from failure
        return f"{made_at}/{info.get('master_replid', '')}"

    def _take(
        self, done: Sequence[Lease], max_tickets: int, lease_ms: int, *, after_seconds: float = 0.0, stays: bool = True
    ) -> tuple[list[Lease], float]:
        """The leases and, if there are none, the seconds until a message is visible.

        ``after_seconds`` is how long to wait first, unless somebody wakes us.
        """
        leases: list[Lease] = []
        while True:
            wanted = min(MAX_BATCH, max_tickets - len(leases))
            verb, arguments = _taking(done, wanted, lease_ms, stays=stays)
            try:
                reply = self._run(verb, *arguments, after_seconds=after_seconds)
            except Unavailable:
                if leases:
                    return leases, 0.0  # these are hidden from everybody else: better worked on than waited out
                raise
            taken = self._taken(reply)
            leases += taken
            if len(taken) < wanted or len(leases) == max_tickets:
                return leases, reply[1] / 1000 if reply[1] >= 0 else LOOK_SECONDS
            done, after_seconds = (), 0.0

    def _taken(self, reply: Sequence[Any]) -> list[Lease]:
        leases = leases_in(reply, self.name)
        if not leases:
            self._know_memory(reply[2])
        return leases

    def _run(self, verb: str, *arguments: Argument, after_seconds: float = 0.0) -> Any:
        keys = (self.messages_key, self._wake)
        try:
            if after_seconds > 0:
                return self._connection.wait_then_run(self._wake, after_seconds, script(verb), keys, arguments)
            return self._connection.run(script(verb), keys, arguments)
        except FAILURES as failure:
            raise self._failed(verb, failure) from failure

    def _failed(self, verb: str, failure: Exception) -> Unavailable:
        fault = unavailable(failure, f"{_DOING[verb]} queue {self.name}")
        if self._telemetry is not None:
            self._telemetry.event("redis_call_failed", queue=self.name, operation=verb, reason=str(fault))
        return fault

    def _know_memory(self, lost: int) -> None:
        """Told by every push and every look at an empty queue: 1 if the set had to be made."""
        had, self._has_had_memory = self._has_had_memory, True
        if not lost:
            return
        if self._telemetry is not None:
            self._telemetry.event("queue_memory_lost" if had else "queue_memory_new", queue=self.name)


def _taking(done: Sequence[Lease], most: int, lease_ms: int, *, stays: bool) -> tuple[str, list[Argument]]:
    """The verb that acknowledges and leases, and its arguments; ``stays``: whether the worker waits if there is nothing."""
    arguments: list[Argument] = [most, lease_ms, round(LOOK_SECONDS * 1000), int(stays)]
    return ("acknowledge_and_lease", [*arguments, *with_deliveries(done)]) if done else ("lease", arguments)


def _milliseconds(seconds: float, most: float) -> int:
    """Rounded up, never negative, never above ``most``, whatever the number is."""
    if seconds == 0:
        return 0
    return math.ceil(min(max(0.0, seconds), most) * 1000)


def _wakes(delay_ms: int) -> int:
    """Whether whoever waits has to look at once, to learn that something comes before it would look by itself."""
    return int(delay_ms < LOOK_SECONDS * 1000)


def _batches(leases: Sequence[Lease]) -> Iterator[Sequence[Lease]]:
    for start in range(0, len(leases), MAX_BATCH):
        yield leases[start : start + MAX_BATCH]


def _parts_to_push(bodies: Sequence[str]) -> Sequence[slice]:
    """Consecutive parts of at most `MAX_BATCH` bodies and, unless one body alone is more, `MAX_PUSH_BYTES`."""
    if len(bodies) == 1:
        return _WHOLE
    parts: list[slice] = []
    start, size_bytes = 0, 0
    for index, body in enumerate(bodies):
        if index - start == MAX_BATCH or (index > start and size_bytes + len(body) > MAX_PUSH_BYTES):
            parts.append(slice(start, index))
            start, size_bytes = index, 0
        size_bytes += len(body)
    if start < len(bodies):
        parts.append(slice(start, len(bodies)))
    return parts


_WHOLE = (slice(0, None),)
