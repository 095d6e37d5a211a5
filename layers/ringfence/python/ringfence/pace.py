"""How many tickets may go into a queue now, how soon, and who has to stand in line.

Three things hold a queue's tickets back: its rate, its high-water mark, and a pause. What a rate holds back for less than the
horizon is pushed with that delay. Everything else is parked: the job gets a place in the queue's line and waits there until
timers call it up, at the pace of *that* moment, so a changed rate holds for the parked as well. While anybody stands in line,
newcomers join behind: none overtakes. A few are parked on their rows, which then are ``scheduled``; many that come together
stand in line as groups of hundreds, one item each, their rows ``queued`` as they were: a write for each of ten thousand rows
would keep every other queue of the shard waiting, and use up what the table takes in a second several times over.

What is promised of order: jobs of one `ordering_key` lie in one shard of the log, are parked in its order and released in the
order of the line. What is not: an order between shards; an order among workers, where two jobs of a queue run at the same
time; that a retry keeps its place; that SQS, a standard queue, hands tickets out as they were pushed; and, for as long as
`SETTINGS_SECONDS`, that every relay knows of a line that another one has just begun.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ringfence.errors import Unavailable
from ringfence.job import Millis
from ringfence.ports import Clock, Limiter, Queue, SettingsStore, Telemetry
from ringfence.queue_settings import QueueState

SETTINGS_SECONDS = 3.0
"""How long a queue's settings are believed: a change is in force everywhere within five seconds."""

DEPTH_SECONDS = 1.0
"""How long a depth is believed, what is pushed meanwhile added to it."""

LONGEST_PUSH_MS = 1_000
"""What is later than this after the one before is so on purpose: its rate was lowered, or it had a time of its own."""

RESERVED_AHEAD = 10_000
"""Releases that are reserved for nobody yet, at the most: those of five seconds at two thousand a second."""

HORIZON_SECONDS = 120.0
"""What goes later than this is parked. Twice the timers' period, so that the pace never pauses for them; no longer, because a
pushed ticket cannot be called back: a changed rate or a pause reaches only what is still to be pushed. (SQS would keep 900.)"""


class Pacer:
    """The pace of every queue as one process sees it. Its methods raise `Unavailable`."""

    def __init__(
        self,
        settings: SettingsStore,
        limiters: Mapping[str, Limiter],
        queues: Mapping[str, Queue],
        clock: Clock,
        telemetry: Telemetry,
        *,
        horizon_seconds: float = HORIZON_SECONDS,
    ) -> None:
        self._settings, self._limiters, self._queues = settings, limiters, queues
        self._clock, self._telemetry = clock, telemetry
        self._horizon_ms = round(horizon_seconds * 1_000)
        self._states: dict[str, tuple[float, QueueState]] = {}
        self._depths: dict[str, tuple[float, int]] = {}
        self._visible: dict[str, float] = {}
        """When, on the monotonic clock, the last ticket that was pushed from here is visible."""

    # --- what is known -----------------------------------------------------------------------------------------------

    def state(self, queue: str) -> QueueState:
        """The queue's settings and line, at most `SETTINGS_SECONDS` old; older ones only if no newer can be had."""
        known = self._states.get(queue)
        now = self._clock.monotonic()
        if known is not None and now < known[0] + SETTINGS_SECONDS:
            return known[1]
        try:
            state = self._settings.read(queue)
        except Unavailable as fault:
            if known is None:
                raise
            self._telemetry.event("settings_stale", queue=queue, reason=str(fault))
            state = known[1]
        self.learn(queue, state)
        return state

    def learn(self, queue: str, state: QueueState) -> None:
        """Take over what was read elsewhere just now."""
        self._states[queue] = self._clock.monotonic(), state

    def is_free(self, queue: str) -> bool:
        """Whether tickets are pushed as they come, without asking anybody."""
        return self.state(queue).is_free(self._clock.now())

    def holds_retries(self, queue: str) -> bool:
        """Whether a retry must wait on its row, so that it counts against the rate, or rests with a paused queue."""
        try:
            settings = self.state(queue).settings
        except Unavailable:
            return False
        return settings.paused or settings.rate_per_second is not None

    # --- asking ------------------------------------------------------------------------------------------------------

    def admit(self, queue: str, count: int) -> list[Millis]:
        """How long the tickets of ``count`` newcomers wait, from the first; those beyond the list's end have to be parked."""
        line = self.state(queue).line
        if line.waiting:
            return []
        not_before = max(0, line.open_from - self._clock.now())
        return [max(wait, not_before) for wait in self.call_up(queue, count)]

    def within_reach(self, queue: str, most: int) -> int:
        """How many, of so many at most, the queue's rate can let go at once: nobody need look at more of its line."""
        settings = self.state(queue).settings
        if settings.rate_per_second is None:
            return most
        return min(most, settings.burst + math.ceil(settings.rate_per_second * self._horizon_ms / 1_000))

    def call_up(self, queue: str, count: int, ahead: Sequence[Millis] = ()) -> list[Millis]:
        """The same for the first in line, whom nobody is in front of. ``ahead`` are the waits of releases that were reserved
        before, and are used first."""
        settings = self.state(queue).settings
        if settings.paused or count == 0:
            return []
        if settings.high_water_mark is not None:
            count = min(count, self._room(queue, settings.high_water_mark, count))
        if count == 0 or settings.rate is None:
            return self._in_order(queue, [0] * count)
        waits = list(ahead[:count])
        if len(waits) < count:
            waits += self._limiters[queue].reserve(queue, count - len(waits), settings.rate, self._horizon_ms)
        return self._in_order(queue, waits)

    def reserve_ahead(self, queue: str, within: Millis) -> list[Millis]:
        """How long each of the releases of the next while has to wait: reserved for nobody yet, and whoever asks meanwhile gets
        later ones. None where there is no rate."""
        settings = self.state(queue).settings
        if settings.rate is None or settings.rate_per_second is None:
            return []
        count = min(RESERVED_AHEAD, settings.burst + math.ceil(settings.rate_per_second * within / 1_000))
        return self._limiters[queue].reserve(queue, count, settings.rate, within)

    def _in_order(self, queue: str, waits: list[Millis]) -> list[Millis]:
        """The waits, none ending before that of the last ticket pushed from here: a delay begins when its push arrives, and the
        last one may have been longer on its way."""
        behind = math.ceil((self._visible.get(queue, 0.0) - self._clock.monotonic()) * 1_000)
        if waits and 0 < behind - waits[0] < LONGEST_PUSH_MS:
            return [max(wait, behind) for wait in waits]
        return waits

    def _room(self, queue: str, mark: int, wanted: int) -> int:
        """Tickets below the mark. Looks again when what is known is old, or when it would be close."""
        now = self._clock.monotonic()
        read_at, tickets = self._depths.get(queue, (float("-inf"), 0))
        if now >= read_at + DEPTH_SECONDS or (wanted > (mark - tickets) // 2 and now > read_at):
            depth = self._queues[queue].depth()
            tickets = depth.ready + depth.leased + depth.delayed
            self._depths[queue] = now, tickets
        return max(0, mark - tickets)

    # --- telling -----------------------------------------------------------------------------------------------------

    def pushed(self, queue: str, count: int, last_wait: Millis) -> None:
        """So many more tickets are in the queue than when its depth was read; the last is visible after this wait from now."""
        self._visible[queue] = self._clock.monotonic() + last_wait / 1_000
        if queue in self._depths:
            read_at, tickets = self._depths[queue]
            self._depths[queue] = read_at, tickets + count

    def join_line(self, queue: str, count: int) -> list[Millis]:
        """Places for jobs that are to be parked; from now on newcomers join as well."""
        places = self._settings.join_line(queue, count, self._clock.now())
        if queue in self._states:
            read_at, state = self._states[queue]
            self._states[queue] = read_at, replace(state, line=replace(state.line, waiting=True, last_place=places[-1]))
        return places

    def open_line(self, queue: str, last_place: Millis | None, open_from: Millis) -> bool:
        """Let newcomers go again. See `ports.SettingsStore.open_line`."""
        opened = self._settings.open_line(queue, last_place, open_from)
        self.learn(queue, self._settings.read(queue))
        return opened
