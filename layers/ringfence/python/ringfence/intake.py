"""What a crew takes in and gives back: messages fetched as fast as they are worked on, and acknowledged together."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence, Sized
from functools import partial
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

    def look(self, abandoned: int) -> None:
        """Called about every half second while the crew lives. So many of its threads still run code whose time is over; each
        has been replaced, and nothing ends it but the end of the process."""


class _Asked(NamedTuple):
    """An exchange that was begun: what it acknowledges, how many messages it is to bring, and how to end it."""

    done: list[Lease]
    room: int
    receive: Callable[[], list[Lease]]
    at: float
    """When, on the monotonic clock: the leases may be so old before anybody reads of them."""


Errand = Callable[[], None]
"""Something a thread of the crew does for all of it, not under the lock."""


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
        ahead_seconds: float,
        lock: threading.Lock,
        over: threading.Event,
        on_fetched: Callable[[Sequence[Message], float], Collection[str]],
        on_pending: Callable[[float], None],
        on_stop: Callable[[], None],
    ) -> None:
        """Messages are leased for ``lease_seconds``, or for ``ahead_seconds`` where they may lie unread for a while: if the
        process is killed, nobody knows of those. ``over`` is set when nothing more is taken.

        ``on_fetched`` is told of messages, and of the length of their leases, before anybody can take them, and says which
        receipts nobody shall; ``on_pending`` is told then since when they are leased; ``on_stop``, under the lock, of the end
        of an exchange while the feed stops.
        """
        self.feed = feed
        self.pending: deque[Message] = deque((lease, read_ticket(lease)) for lease in leases)
        self.done: list[Lease] = []
        self.fetched_at = services.clock.monotonic()
        """When the latest messages came, on the monotonic clock."""
        self._queue, self._services, self._threads = queue, services, threads
        self._lease_seconds, self._ahead_seconds = lease_seconds, ahead_seconds
        self._lock, self._over = lock, over
        self._on_fetched, self._on_pending, self._on_stop = on_fetched, on_pending, on_stop
        self._fetchers = 0
        """Threads that fetch, or are about to."""
        self._coming = 0
        """The most messages that they may bring."""
        self._two_may_wait = threads > 1 and feed is not None and feed.can_ask
        """Whether, with nothing there, two wait for a first message: when one has got it, nobody need be called to take its
        place, which may last longer than a job. It costs nothing where one call does all."""
        self._dry = True
        """Whether there was less than was wanted when more than one was."""
        self._asking = False
        """Whether a thread is asking, or reading the reply."""
        self._asked: _Asked | None = None
        self._acknowledging = False
        """Whether a thread does only that. One is enough, the more so for a queue that does not answer."""
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
        """Whether there is something to be started or given back, or may be."""
        return bool(self.pending or self.fetching or self._asked or self._under_way)

    @property
    def fetching(self) -> bool:
        """Whether a thread is bringing messages, or waits for them."""
        return self._asking or self._fetchers > 0

    @property
    def fetching_anew(self) -> bool:
        """Whether a thread waits for messages that were not asked for ahead: it may wait for long."""
        return self._fetchers > 0

    def errand_ahead(self, in_hand: Sized) -> Errand | None:
        """What a thread shall do before it starts its message: mostly nothing, but ask for more when there are few left.

        Neither the crew nor the queue waits for the other then. Where jobs take long, what is asked for would only lie there.
        """
        if 2 * len(self.pending) > self._hold_at_once or self._asked or self.fetching:
            return None
        takes_long = self._hold_at_once <= self._threads
        if takes_long or self.feed is None or not self.feed.can_ask:
            return None
        self._asking = True
        return partial(self._ask, self.feed, self._room(in_hand))

    def errand(self, in_hand: Sized) -> Errand | None:
        """What a thread shall do that has no message; None: wait."""
        if self._asking:
            return None
        if self._asked:
            return self._receiving(self._asked)
        two = self._dry and self._two_may_wait and not self._unreachable
        if self.feed is not None and self._fetchers < 1 + two:
            room = self._room(in_hand)
            self._fetchers += 1
            self._coming += room
            return partial(self._fetch, self.feed, room)
        return self.errand_done()

    def errand_done(self) -> Errand | None:
        """The same for what is done: unless somebody else is about to acknowledge it."""
        if self.feed is None or not self.done or self._asking or self._acknowledging:
            return None
        self._acknowledging = True
        return self._acknowledge_done

    def errand_beside(self) -> Errand | None:
        """The same for what was asked for, when every thread may be busy for long."""
        return self._receiving(self._asked) if self._asked and not self._asking else None

    def _receiving(self, asked: _Asked) -> Errand:
        self._asked, self._asking = None, True
        return partial(self._receive, asked)

    def _room(self, in_hand: Sized) -> int:
        left = len(self.pending)
        if self._held > left:
            took_seconds = max(self._services.clock.monotonic() - self.fetched_at, 1e-6)
            lasts = int((self._held - left) * FETCHED_SECONDS / took_seconds)
            self._hold_at_once = max(self._threads, min(2 * self._hold_at_once, MOST_HELD, lasts))
        coming = self._coming
        if not coming and self._two_may_wait:
            coming = 1  # is left to whoever may wait beside this one
        return max(1, self._hold_at_once - left - len(in_hand) - coming)

    # --- not under the lock ------------------------------------------------------------------------------------------

    def _ask(self, feed: Feed, room: int) -> None:
        done, now = self._take_done(), self._services.clock.monotonic()
        asked = None
        try:
            asked = _Asked(done, room, feed.ask(done, room, self._ahead_seconds), now)
        except Unavailable as fault:
            self._not_reached(done, fault)
        with self._lock:
            self._under_way -= 1
            self._asked, self._asking = asked, False

    def _receive(self, asked: _Asked) -> None:
        with self._lock:
            self._under_way += 1
        self._end_exchange(asked.done, asked.room, asked.receive, asked)
        with self._lock:
            self._asking = False

    def _fetch(self, feed: Feed, room: int) -> None:
        if not self._exchange(feed, room):
            self._rest()
        with self._lock:
            self._fetchers -= 1
            self._coming -= room

    def _exchange(self, feed: Feed, room: int) -> bool:
        """Whether the queue was reached."""
        done = self._take_done()
        return self._end_exchange(done, room, partial(feed.exchange, done, room, self._lease_seconds))

    def _rest(self) -> None:
        """After the queue was not reached: it would be asked again at once."""
        self._over.wait(UNREACHABLE.delay(self._unreachable, self._services.random_source))

    def _acknowledge_done(self) -> None:
        if not self.acknowledge():
            self._rest()
        with self._lock:
            self._acknowledging = False

    def acknowledge(self) -> bool:
        """What is done, and nothing else. Whether the queue was reached."""
        return self.feed is None or not self.done or self._exchange(self.feed, 0)

    def take_all(self) -> list[Lease]:
        """What is not started: the caller gives it back."""
        return self.take_surplus(float("-inf"))

    def take_surplus(self, seconds: float) -> list[Lease]:
        """The same, if nothing has come for so long."""
        with self._lock:
            if self._services.clock.monotonic() - self.fetched_at <= seconds:
                return []
            pending = [lease for lease, _ in self.pending]
            self.pending.clear()
            return pending

    def drop(self, receipts: Collection[str]) -> None:
        """Start none of these: their leases are over, and somebody else may have them."""
        if receipts:
            with self._lock:
                kept = [message for message in self.pending if message[0].receipt not in receipts]
                self.pending.clear()
                self.pending.extend(kept)

    def _take_done(self) -> list[Lease]:
        with self._lock:
            self._under_way += 1
            done, self.done = self.done, []
            return done

    def _end_exchange(self, done: list[Lease], room: int, end: Callable[[], list[Lease]], ahead: _Asked | None = None) -> bool:
        """Whether the queue was reached."""
        leases: list[Lease] = []
        reached = True
        try:
            leases = end()
            self._unreachable = 0
        except Unavailable as fault:
            self._not_reached(done, fault)
            reached = False
        messages = [(lease, read_ticket(lease)) for lease in leases]
        leased_seconds = self._ahead_seconds if ahead else self._lease_seconds
        lost = self._on_fetched(messages, leased_seconds) if messages else ()
        now = self._services.clock.monotonic()
        with self._lock:
            self._under_way -= 1
            if room > 1:
                self._dry = len(messages) < room
            if messages:
                self.pending.extend([message for message in messages if message[0].receipt not in lost] if lost else messages)
                self._held, self.fetched_at = len(self.pending), now
            if self.stopping:
                self._on_stop()
        if messages:
            self._on_pending(ahead.at if ahead else now)
        return reached

    def _not_reached(self, done: list[Lease], fault: Unavailable) -> None:
        self._unreachable += 1
        self._services.telemetry.event("queue_unreachable", queue=self._queue, reason=str(fault))
        with self._lock:
            self.done = done + self.done
