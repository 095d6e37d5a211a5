"""The threads that work on the messages of one queue.

They lead by turns: whoever has nothing to do takes the next message, whoever finds none fetches more, and nothing is handed
from thread to thread (the pattern Leader/Followers: Schmidt, Stal, Rohnert and Buschmann, POSA 2). Short jobs are so run one
after another by the very thread that fetched them, and long ones side by side.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from ringfence.attempt import Taker, name_of, read_ticket, run_code
from ringfence.carried import Carried
from ringfence.company import Company
from ringfence.errors import Poisoned, Unavailable
from ringfence.lease import Heartbeat
from ringfence.outcome import Acknowledge, Disposition, Failed, Interrupted, Keep, Outcome, Release
from ringfence.ownership import Hold, Ownership
from ringfence.places import kind_and_place
from ringfence.ports import Lease, Queue
from ringfence.retry import Backoff
from ringfence.settle import settle
from ringfence.wire import Ticket

STOP_SECONDS = 10.0
"""So long before an invocation's end nothing new is started and running jobs are asked to stop."""

HAND_OVER_SECONDS = 5.0
"""So long before it, what still runs is handed over, its checkpoint kept; if the whole of it is short, in its last quarter."""

LEAVE_SECONDS = 1.0
"""So long before it, or in its last twentieth, the batch returns with what is decided by then; the rest comes again."""

NOT_STARTED_PAUSE_SECONDS = 1.0

MOST_FETCHED = 128
"""Messages fetched at once by a crew whose jobs are short."""

FETCHED_SECONDS = 0.1
"""A crew fetches as much as lasts it so long at its latest pace, and at least one message for each idle thread."""

SURPLUS_SECONDS = 1.0
"""What no thread has come to within this time goes back: another worker may have a thread for it."""

LOOK_SECONDS = 0.5
"""How often a crew that is fed looks whether it is to stop."""

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

    def look(self) -> None:
        """Called about every `LOOK_SECONDS` while the crew lives."""


class Crew:
    """One call of `Worker.handle` or `Worker.serve`: its messages, its threads, and the heartbeat that keeps its leases."""

    def __init__(
        self,
        taker: Taker,
        queue: Queue,
        threads: int,
        heartbeat: type[Heartbeat],
        company: Company,
        *,
        leases: Iterable[Lease] = (),
        remaining_seconds: Callable[[], float],
        feed: Feed | None = None,
    ) -> None:
        self._taker, self._services, self._queue, self._threads, self._feed = taker, taker.services, queue, threads, feed
        self._company = company
        self._clock, self._telemetry = taker.services.clock, taker.services.telemetry
        self._remaining_seconds = remaining_seconds
        self._whole_seconds = remaining_seconds()
        self._pending: deque[Message] = deque((lease, read_ticket(lease)) for lease in leases)
        self._undecided: dict[str, Lease] = {}
        self._running: dict[str, Ownership | Carried] = {}
        self._done: list[Lease] = []
        self._unfit: list[Lease] = []
        self._carried = 0
        self._crash: BaseException | None = None
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._work = threading.Condition(self._lock)
        """Where threads wait that have no message."""
        self._news = threading.Condition(self._lock)
        """Where the watch waits for the next that is decided."""
        self._idle = 0
        self._called = False
        """Whether one of the idle has been called and is not there yet: one at a time, for most are called in vain."""
        self._fetching = False
        self._exchanges = 0
        """Under way: none may be left behind when a crew ends in good order."""
        self._fetched, self._fetched_at, self._at_once, self._unreachable = 0, self._clock.monotonic(), threads, 0
        self._heartbeat = heartbeat(queue, self._services, on_timeout=self._time_out)

    def run(self) -> list[Lease]:
        """Until every message is decided or the time is up. Returns those that may be acknowledged and are not yet."""
        taker = self._taker
        self._heartbeat.start([(lease, taker.lease_seconds_for(name_of(ticket))) for lease, ticket in self._pending])
        try:
            for _ in range(self._threads if self._feed is not None else min(self._threads, len(self._pending))):
                self._start_thread()
            self._watch()
            self._tell_carried()
            self._give_back(self._take_pending(), NOT_STARTED_PAUSE_SECONDS)
            if self._feed is not None and self._done:
                self._exchange(self._feed, 0)
        finally:
            with self._lock:
                self._over.set()
                self._work.notify_all()
            self._heartbeat.stop()
        return list(self._done)

    # --- the watch: in the caller's thread ---------------------------------------------------------------------------

    def _watch(self) -> None:
        while True:
            self._look()
            with self._lock:
                if self._crash is not None:
                    raise self._crash
                if not self._goes_on():
                    return
                self._news.wait(self._until_next_look())

    def _goes_on(self) -> bool:
        if self._feed is not None and not self._feed.stopping:
            return True
        busy = self._pending or self._undecided or self._unfit or self._exchanges
        return bool(busy) and self._remaining_seconds() > self._leave_seconds

    def _look(self) -> None:
        self._stop_in_time()
        with self._lock:
            unfit, self._unfit = self._unfit, []
        self._give_back(unfit, NOT_STARTED_PAUSE_SECONDS)
        self._tell_carried()
        if self._feed is not None:
            self._feed.look()
            if self._done and not self._unreachable:  # every thread may be busy for long
                self._exchange(self._feed, 0)
            if self._feed.stopping or self._clock.monotonic() - self._fetched_at > SURPLUS_SECONDS:
                self._give_back(self._take_pending(), 0.0)

    def _stop_in_time(self) -> None:
        left = self._remaining_seconds()
        with self._lock:
            running = list(self._running.values())
        told_to_stop = self._feed is not None and self._feed.stopping
        if self._whole_seconds == float("inf"):
            self._whole_seconds = left  # the grace, once there is one
        for hold in running:
            if left <= STOP_SECONDS or told_to_stop:
                hold.stopping = True
            if left <= self._hand_over_seconds:
                self._settle_beside(hold, Interrupted())

    def _tell_carried(self) -> None:
        """Jobs that ride in their tickets are told of together: a line for each would cost more than they do."""
        with self._lock:
            carried, self._carried = self._carried, 0
        if carried:
            self._telemetry.event("carried_jobs_succeeded", queue=self._queue.name, count=carried)

    def _until_next_look(self) -> float | None:
        """Seconds until a threshold near the invocation's end is crossed; None without such an end."""
        if self._feed is not None:
            return LOOK_SECONDS
        left = self._remaining_seconds()
        if left == float("inf"):
            return None
        thresholds = (STOP_SECONDS, self._hand_over_seconds, self._leave_seconds)
        ahead = [left - threshold for threshold in thresholds if left > threshold]
        return min(ahead, default=0.1) + 0.001

    @property
    def _hand_over_seconds(self) -> float:
        return min(HAND_OVER_SECONDS, self._whole_seconds / 4)

    @property
    def _leave_seconds(self) -> float:
        return min(LEAVE_SECONDS, self._whole_seconds / 20)

    def _take_pending(self) -> list[Lease]:
        with self._lock:
            pending = [lease for lease, _ in self._pending]
            self._pending.clear()
            return pending

    # --- taking and fetching: in the threads of the crew -------------------------------------------------------------

    def _start_thread(self) -> None:
        threading.Thread(target=self._lead_and_follow, name=f"ringfence-{self._queue.name}", daemon=True).start()

    def _lead_and_follow(self) -> None:
        try:
            while (message := self._next()) is not None:
                if not self._decide(*message):
                    return  # another thread has taken this one's place
        except BaseException as crash:  # noqa: BLE001 - raised again in the caller's thread
            with self._lock:
                self._crash = self._crash or crash
                self._news.notify()

    def _next(self) -> Message | None:
        """The next message for a thread that has none; None when there is nothing left to do."""
        while True:
            with self._lock:
                feed = self._feed
                stopping = feed is not None and (feed.stopping or self._over.is_set())
                message = None if stopping else self._take()
                if message is not None:
                    return message
                if feed is None or stopping:
                    self._news.notify()
                    return None
                if not self._fetching:
                    self._fetching = True
                    room = self._room()
                elif self._done and not self._unreachable:
                    room = 0  # whoever fetches may wait for long
                else:
                    self._idle += 1
                    self._work.wait()
                    self._idle -= 1
                    self._called = False
                    continue
            self._exchange(feed, room)

    def _take(self) -> Message | None:
        """Under the lock."""
        while self._pending:
            lease, ticket = self._pending.popleft()
            if not self._heartbeat.waits(lease):
                continue  # its lease ended before it was started: somebody else has it
            if not self._fits(name_of(ticket)):
                self._unfit.append(lease)
                self._news.notify()
                continue
            self._undecided[lease.receipt] = lease
            if self._idle and not self._called and (self._pending or not self._fetching):
                self._called = True
                self._work.notify()
            return lease, ticket
        return None

    def _fits(self, name: str | None) -> bool:
        """A job is started only if its timeout fits the time left; one that fits no invocation has the whole of one."""
        if self._whole_seconds == float("inf"):
            return True
        wanted = min(self._taker.timeout_seconds_for(name) + STOP_SECONDS, 0.9 * self._whole_seconds)
        return self._remaining_seconds() >= wanted

    def _room(self) -> int:
        """How many messages to fetch, under the lock, when none is pending."""
        if self._fetched:
            took_seconds = max(self._clock.monotonic() - self._fetched_at, 1e-6)
            lasts = int(self._fetched * FETCHED_SECONDS / took_seconds)
            self._at_once = max(self._threads, min(2 * self._at_once, MOST_FETCHED, lasts))
        return max(1, self._at_once - len(self._undecided))

    def _exchange(self, feed: Feed, room: int) -> None:
        """Acknowledge what is done and, with room, fetch: then the caller has set ``_fetching``."""
        with self._lock:
            self._exchanges += 1
            done, self._done = self._done, []
        longest_seconds = self._taker.lease_seconds_for(None)
        try:
            leases = feed.exchange(done, room, longest_seconds)
        except Unavailable as fault:
            self._unreachable += 1
            self._telemetry.event("queue_unreachable", queue=self._queue.name, reason=str(fault))
            with self._lock:
                self._done = done + self._done
            if room and not self._over.is_set():
                self._over.wait(UNREACHABLE.delay(self._unreachable, self._services.random_source))
            leases = []
        else:
            self._unreachable = 0
        messages = [(lease, read_ticket(lease)) for lease in leases]
        if messages:
            seconds_for = self._taker.lease_seconds_for
            self._heartbeat.awaits([(lease, seconds_for(name_of(ticket))) for lease, ticket in messages], longest_seconds)
        with self._lock:
            self._exchanges -= 1
            if room:
                self._fetching = False
                self._pending.extend(messages)
                self._fetched, self._fetched_at = len(messages), self._clock.monotonic()
            if feed.stopping:
                self._news.notify()

    # --- deciding one message ----------------------------------------------------------------------------------------

    def _decide(self, lease: Lease, ticket: Ticket | Poisoned) -> bool:
        """Whether this thread decided the message; false if its job's outcome was taken beside it."""
        disposition: Disposition | None
        try:
            disposition = self._take_and_run(lease, ticket)
        except Exception as fault:  # noqa: BLE001 - told, and the message comes again when its lease ends
            disposition = self._failed(lease, fault)
        if disposition is None:
            return False
        self._decided(lease, disposition)
        return True

    def _take_and_run(self, lease: Lease, ticket: Ticket | Poisoned) -> Disposition | None:
        seat = self._company.enter(self._stops)
        if seat is None:
            return Release()
        try:
            hold = self._taker.take(self._queue, lease, ticket, lambda: seat.be_alone(self._stops))
            if not isinstance(hold, Hold):
                return hold
            hold.leave = seat.leave
            self._heartbeat.owns(hold)
            self._running[lease.receipt] = hold
            left = self._remaining_seconds()
            if left <= STOP_SECONDS:
                hold.stopping = True
            # A claim may have taken so much patience that it is too late, or that this batch has returned without it.
            too_late = self._over.is_set() or left <= self._hand_over_seconds
            outcome, effects = (Interrupted(), ()) if too_late else run_code(hold)
        finally:
            seat.leave()
        return settle(hold, outcome, effects, self._services) if hold.take_outcome() else None

    def _stops(self) -> bool:
        """Whether it is too late for a job that has waited for company to end."""
        told_to_stop = self._feed is not None and self._feed.stopping
        return told_to_stop or self._over.is_set() or self._remaining_seconds() <= STOP_SECONDS

    def _failed(self, lease: Lease, fault: Exception) -> Disposition:
        reason = kind_and_place(fault)
        self._telemetry.event("message_failed", queue=lease.queue, message_id=lease.message_id, reason=reason)
        return Keep()

    def _decided(self, lease: Lease, disposition: Disposition) -> None:
        if isinstance(disposition, Release):
            self._release([lease], disposition.delay_seconds)
        else:
            self._heartbeat.forget(lease)
        with self._lock:
            hold = self._running.pop(lease.receipt, None)
            if self._undecided.pop(lease.receipt, None) is not None and isinstance(disposition, Acknowledge):
                self._done.append(lease)
                self._carried += isinstance(hold, Carried)
            if self._feed is None or self._feed.stopping:
                self._news.notify()

    def _give_back(self, leases: Sequence[Lease], delay_seconds: float) -> None:
        """Release messages that were not started."""
        if leases:
            self._release(leases, delay_seconds)

    def _release(self, leases: Sequence[Lease], delay_seconds: float) -> None:
        self._heartbeat.forget_before_release(leases)
        try:
            self._queue.release(leases, delay_seconds)
        except Exception as fault:  # noqa: BLE001 - they come back by themselves when their leases end
            reason = kind_and_place(fault)
            self._telemetry.event("release_failed", queue=self._queue.name, count=len(leases), reason=reason)

    # --- beside a job's thread ---------------------------------------------------------------------------------------

    def _time_out(self, hold: Hold) -> None:
        self._settle_beside(hold, Failed(f"timed out after {hold.spec.timeout_seconds:g} s", "timeout"))

    def _settle_beside(self, hold: Hold, outcome: Outcome) -> None:
        """Decide a job whose own thread is still busy. That thread is lost to the crew from here on; the one that settles
        takes its place."""
        if not isinstance(hold, Ownership | Carried) or not hold.take_outcome():
            return
        hold.stopping = True
        hold.leave()
        if hold.abandon is not None:
            hold.abandon()

        def carry_out() -> None:
            try:
                disposition = settle(hold, outcome, (), self._services)
            except Exception as fault:  # noqa: BLE001 - told, and the message comes again when its lease ends
                disposition = self._failed(hold.lease, fault)
            except BaseException as crash:  # noqa: BLE001 - raised again in the caller's thread
                with self._lock:
                    self._crash = self._crash or crash
                    self._news.notify()
                return
            self._decided(hold.lease, disposition)
            self._lead_and_follow()

        threading.Thread(target=carry_out, name=f"ringfence-{self._queue.name}", daemon=True).start()
