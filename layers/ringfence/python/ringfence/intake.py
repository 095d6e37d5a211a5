"""What a crew takes in and gives back: messages fetched as fast as they are worked on, and acknowledged together."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple, Protocol

from ringfence.attempt import read_ticket
from ringfence.errors import Poisoned, Unavailable
from ringfence.ports import Lease, Services
from ringfence.retry import Backoff
from ringfence.wire import Ticket

MOST_HELD = 256
"""Messages that a crew whose jobs are short holds at most. At half of them it asks for more while it works on the rest."""

FETCHED_SECONDS = 0.1
"""A crew fetches as much as lasts it so long at its latest pace, and at least one message for each idle thread."""

UNREACHABLE = Backoff(base_seconds=0.1, cap_seconds=2.0)
"""Between two tries of a queue that cannot be reached."""

Message = tuple[Lease, Ticket | Poisoned]


class Feed(Protocol):
    """Where a process worker's messages come from, for as long as it is to go on."""

    @property
    def stopping(self) -> bool:
        """Whether no more messages shall be taken, and jobs shall be asked to stop."""

    def remaining_seconds(self) -> float:
        """How long the running jobs may still take; without end until it stops."""

    def exchange(self, done: Sequence[Lease], room: int, lease_seconds: float) -> list[Lease]:
        """Acknowledge what is done and take at most ``room`` messages, waiting a moment for a first one.

        Raises `Unavailable` when the queue cannot be reached; acknowledging again is harmless.
        """

    @property
    def can_ask(self) -> bool:
        """Whether there is `ask`."""

    def ask(self, done: Sequence[Lease], room: int, lease_seconds: float) -> Callable[[], list[Lease]]:
        """Begin an `exchange` that waits for no message. The returned call ends it, in any thread."""

    def look(self) -> None:
        """Called about every half second while the crew lives."""


class _Asked(NamedTuple):
    """An exchange that was begun: what it acknowledges, and how to end it."""

    done: list[Lease]
    receive: Callable[[], list[Lease]]


class Intake:
    """The messages of one crew that are not started yet, and those that are done.

    ``lock`` is the crew's: whoever looks at these holds it, and no call here waits for the queue under it.
    """

    def __init__(
        self,
        queue: str,
        leases: Iterable[Lease],
        feed: Feed | None,
        services: Services,
        *,
        threads: int,
        lease_seconds: float,
        lock: threading.Lock,
        over: threading.Event,
        on_fetched: Callable[[Sequence[Message]], None],
        on_stop: Callable[[], None],
    ) -> None:
        """``over`` is set when nothing more is taken. ``on_fetched`` is told of messages before anybody can take them;
        ``on_stop``, under the lock, of the end of an exchange while the feed stops."""
        self.feed = feed
        self.pending: deque[Message] = deque((lease, read_ticket(lease)) for lease in leases)
        self.done: list[Lease] = []
        self.fetched_at = services.clock.monotonic()
        """When the latest messages came, on the monotonic clock."""
        self._queue, self._services, self._threads, self._lease_seconds = queue, services, threads, lease_seconds
        self._lock, self._over, self._on_fetched, self._on_stop = lock, over, on_fetched, on_stop
        self._fetching = False
        """Whether it is a thread's turn to fetch or to ask."""
        self._waiting = False
        """Whether whoever fetches may be waiting for a first message."""
        self._asked: _Asked | None = None
        self._under_way = 0
        """Exchanges. None may be left behind when a crew ends in good order."""
        self._held, self._hold_at_once = 0, threads
        self._unreachable = 0

    # --- under the lock ----------------------------------------------------------------------------------------------

    @property
    def stopping(self) -> bool:
        return self.feed is not None and (self.feed.stopping or self._over.is_set())

    @property
    def busy(self) -> bool:
        """Whether there is something that is neither given back nor acknowledged, or may be."""
        return bool(self.pending or self._under_way or self._asked)

    @property
    def shall_acknowledge(self) -> bool:
        """Whether what is done would have to wait for long if nobody acknowledged it now."""
        return bool(self.done) and (self._waiting or not self._fetching) and not self._unreachable

    @property
    def fetching(self) -> bool:
        """Whether a thread is fetching, or about to."""
        return self._fetching

    def turn_to_fetch(self, undecided: int) -> int:
        """How many messages the caller is to fetch now, with `exchange`; 0 if that is another's turn already."""
        if self._fetching:
            return 0
        self._fetching = True
        return self._room(undecided)

    def turn_to_ask(self, undecided: int) -> int:
        """How many messages the caller is to `ask` for before it starts the one it has; 0 mostly.

        Neither the crew nor the queue waits for the other then. Where jobs take long, what is asked for would only lie there.
        """
        takes_long = self._hold_at_once <= self._threads
        if takes_long or self._fetching or self._asked or 2 * len(self.pending) > self._hold_at_once:
            return 0
        if self.feed is None or not self.feed.can_ask:
            return 0
        self._fetching = True
        return self._room(undecided)

    def _room(self, undecided: int) -> int:
        left = len(self.pending)
        if self._held > left:
            took_seconds = max(self._services.clock.monotonic() - self.fetched_at, 1e-6)
            lasts = int((self._held - left) * FETCHED_SECONDS / took_seconds)
            self._hold_at_once = max(self._threads, min(2 * self._hold_at_once, MOST_HELD, lasts))
        return max(1, self._hold_at_once - left - undecided)

    # --- not under the lock ------------------------------------------------------------------------------------------

    def ask(self, room: int) -> None:
        """Acknowledge what is done and ask for ``room`` messages. It is the caller's turn."""
        assert self.feed is not None
        with self._lock:
            done, self.done = self.done, []
        asked = None
        try:
            asked = _Asked(done, self.feed.ask(done, room, self._lease_seconds))
        except Unavailable as fault:
            self._not_reached(done, fault)
        with self._lock:
            self._asked, self._fetching = asked, False

    def exchange(self, room: int) -> None:
        """Acknowledge what is done. With ``room``, take what was asked for, or fetch: then it is the caller's turn."""
        assert self.feed is not None
        asked = None
        with self._lock:
            self._under_way += 1
            if room:
                asked, self._asked = self._asked, None
                self._waiting = asked is None
            if asked is None:
                done, self.done = self.done, []
            else:
                done = asked.done
        leases: list[Lease] = []
        try:
            leases = asked.receive() if asked else self.feed.exchange(done, room, self._lease_seconds)
        except Unavailable as fault:
            self._not_reached(done, fault)
            if room and not self._over.is_set():
                self._over.wait(UNREACHABLE.delay(self._unreachable, self._services.random_source))
        else:
            self._unreachable = 0
        messages = [(lease, read_ticket(lease)) for lease in leases]
        if messages:
            self._on_fetched(messages)
        with self._lock:
            self._under_way -= 1
            if room:
                self._fetching = self._waiting = False
                self.pending.extend(messages)
                self._held, self.fetched_at = len(self.pending), self._services.clock.monotonic()
            if self.feed.stopping:
                self._on_stop()

    def receive(self) -> None:
        """Take what was asked for, if anything was: the threads may be busy for long."""
        with self._lock:
            if self._asked is None or self._fetching:
                return
            self._fetching = True
        self.exchange(1)

    def take_all(self) -> list[Lease]:
        """What is not started: the caller gives it back."""
        with self._lock:
            pending = [lease for lease, _ in self.pending]
            self.pending.clear()
            return pending

    def _not_reached(self, done: list[Lease], fault: Unavailable) -> None:
        self._unreachable += 1
        self._services.telemetry.event("queue_unreachable", queue=self._queue, reason=str(fault))
        with self._lock:
            self.done = done + self.done
