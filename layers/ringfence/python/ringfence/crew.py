"""The threads that work on the messages of one queue.

They lead by turns: whoever has nothing to do takes the next message, whoever finds none fetches more, and nothing is handed
from thread to thread (the pattern Leader/Followers: Schmidt, Stal, Rohnert and Buschmann, POSA 2). Long jobs so run side by
side. A thread whose jobs are short leads alone: they share one interpreter, so more threads would only wait for each other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, Sequence
from functools import partial

from ringfence.attempt import Taker, name_of
from ringfence.company import Company
from ringfence.inhand import InHand
from ringfence.intake import Feed, Intake, Message
from ringfence.lease import Heartbeat
from ringfence.ports import Clock, Lease, Queue
from ringfence.timeleft import ENDLESS, TimeLeft

NOT_STARTED_PAUSE_SECONDS = 1.0

SURPLUS_SECONDS = 1.0
"""What no thread has come to within this time goes back: another worker may have a thread for it."""

LOOK_SECONDS = 0.5
"""How often a crew that is fed looks whether it is to stop."""

SHORT_SECONDS = 100e-6
"""Up to so long a message may take, all included, for one thread to lead alone: a few times what we add to an empty job."""

STREAK = 32
"""Messages of one thread that show whether they are short."""

STUCK_SECONDS = 1e-3
"""Whoever has not taken another message within this time does not lead alone any more."""


class Crew:
    """One call of `Worker.handle` or `Worker.serve`: its threads, and the watch that sees to it that they end in time."""

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
        self._taker, self._queue, self._threads = taker, queue, threads
        self._clock, self._telemetry = taker.services.clock, taker.services.telemetry
        self._leases_differ = taker.shortest_lease_seconds != taker.lease_seconds_for(None)
        """Between jobs."""
        self._time = TimeLeft(remaining_seconds)
        self._unfit: list[Lease] = []
        self._asides = 0
        """Threads that do something for the watch."""
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
        self._takes = 0
        """Messages taken so far."""
        self._leading: Streak | None = None
        """Of the thread that leads alone. The others stand by."""
        self._pause = threading.Condition(self._lock)
        """For the one of them that looks whether it still may. Nobody calls it."""
        self._stands_by = False
        self._intake = Intake(
            queue.name,
            leases,
            feed,
            taker.services,
            threads=threads,
            lease_seconds=taker.lease_seconds_for(None),
            ahead_seconds=taker.shortest_lease_seconds,
            lock=self._lock,
            over=self._over,
            on_fetched=self._adjust,
            on_pending=lambda leased_at: self._heartbeat.expect(leased_at),
            on_stop=self._news.notify,
        )
        self._in_hand = InHand(
            taker,
            queue,
            company,
            heartbeat,
            intake=self._intake,
            time=self._time,
            lock=self._lock,
            news=self._news,
            over=self._over,
            replace=self._replace,
        )
        self._heartbeat = self._in_hand.heartbeat

    def run(self) -> list[Lease]:
        """Until every message is decided or the time is up. Returns those that may be acknowledged and are not yet."""
        intake = self._intake
        self._heartbeat.start()
        try:
            self._start_threads(min(self._threads, len(intake.pending)) if intake.feed is None else self._threads)
            self._watch()
            self._in_hand.tell_carried()
            self._give_back(intake.take_all(), NOT_STARTED_PAUSE_SECONDS)
            if intake.done and intake.feed is not None:
                self._aside(intake.acknowledge)
            self._wait_for_asides()
            with self._lock:
                if self._crash is not None:
                    raise self._crash
        finally:
            with self._lock:
                self._over.set()
                self._work.notify_all()
            self._heartbeat.stop()
        return list(intake.done)

    # --- the watch: in the caller's thread ---------------------------------------------------------------------------

    def _watch(self) -> None:
        while True:
            self._look()
            with self._lock:
                if self._crash is not None:
                    raise self._crash
                if not self._goes_on():
                    return
                if not self._unfit:  # none has come meanwhile
                    self._news.wait(self._until_look())

    def _until_look(self) -> float | None:
        """Seconds; None: until there is news."""
        threshold = self._time.until_threshold()
        if self._intake.feed is None:
            return threshold
        return LOOK_SECONDS if threshold is None else min(LOOK_SECONDS, threshold)

    def _goes_on(self) -> bool:
        intake = self._intake
        if intake.feed is not None and not intake.feed.stopping:
            return True
        busy = self._in_hand or self._unfit or self._asides or intake.busy
        return bool(busy) and self._time.seconds() > self._time.leave_seconds

    def _look(self) -> None:
        self._in_hand.stop_in_time()
        with self._lock:
            unfit, self._unfit = self._unfit, []
        self._give_back(unfit, NOT_STARTED_PAUSE_SECONDS)
        self._in_hand.tell_carried()
        intake = self._intake
        if intake.feed is not None:
            intake.feed.look(self._in_hand.abandoned)
            for errand in (intake.errand_beside, intake.errand_done):  # every thread may be busy for long
                with self._lock:
                    run = errand()
                if run is not None:
                    self._aside(run)
            self._give_back(intake.take_all() if intake.stopping else intake.take_surplus(SURPLUS_SECONDS), 0.0)

    def _give_back(self, leases: Sequence[Lease], delay_seconds: float) -> None:
        """Release messages that were not started, aside."""
        if leases:
            self._aside(partial(self._in_hand.release, leases, delay_seconds))

    def _aside(self, work: Callable[[], object]) -> None:
        """Do it in a thread of its own: a queue that does not answer must not keep the watch from the time."""

        def carry_out() -> None:
            try:
                work()
            except BaseException as crash:  # noqa: BLE001 - raised again in the caller's thread
                self._crashed(crash)
            with self._lock:
                self._asides -= 1
                self._call_if_wanted()
                self._news.notify()

        with self._lock:
            self._asides += 1
        if not self._start_thread(carry_out, f"ringfence-aside-{self._queue.name}"):
            carry_out()

    def _wait_for_asides(self) -> None:
        """As long as there is time."""
        with self._lock:
            while self._asides and self._crash is None and (left := self._time.seconds() - self._time.leave_seconds / 2) > 0:
                self._news.wait(None if left == ENDLESS else left + 0.001)

    # --- the threads -------------------------------------------------------------------------------------------------

    def _start_thread(self, code: Callable[[], None], name: str | None = None) -> bool:
        """Whether it could be started: a machine, or a limit on this process, may have no more threads."""
        try:
            threading.Thread(target=code, name=name or f"ringfence-crew-{self._queue.name}", daemon=True).start()
        except RuntimeError as fault:
            self._telemetry.event("thread_not_started", queue=self._queue.name, reason=str(fault))
            return False
        return True

    def _start_threads(self, wanted: int) -> None:
        """As many as there may be, but not none."""
        for started in range(wanted):
            if not self._start_thread(self._lead_and_follow):
                if not started:
                    raise RuntimeError(f"no thread could be started for the messages of queue {self._queue.name}")
                return

    def _lead_and_follow(self) -> None:
        streak = Streak(self._clock)
        try:
            while (message := self._next(streak)) is not None:
                if not self._in_hand.decide(*message) and self._is_replaced():
                    return
                streak.messages += 1
                if streak.messages == STREAK and self._intake.feed is not None:
                    with self._lock:
                        self._lead_alone(streak, streak.is_quick())
        except BaseException as crash:  # noqa: BLE001 - raised again in the caller's thread
            self._crashed(crash)

    def _replace(self, carry_out: Callable[[], None]) -> None:
        """In a thread that then takes the place of one that is lost to its job."""

        def take_place() -> None:
            try:
                carry_out()
            except BaseException as crash:  # noqa: BLE001 - raised again in the caller's thread
                self._crashed(crash)
            if self._takes_place():
                self._lead_and_follow()

        if not self._start_thread(take_place):
            carry_out()

    def _is_replaced(self) -> bool:
        """Whether another thread has taken the place of this one, whose job was decided beside it."""
        with self._lock:
            self._in_hand.abandoned -= 1
        return not self._takes_place()

    def _takes_place(self) -> bool:
        """Whether a place was vacant: then it is this thread's."""
        with self._lock:
            vacant = self._in_hand.vacancies > 0
            self._in_hand.vacancies -= vacant
            return vacant

    def _crashed(self, crash: BaseException) -> None:
        with self._lock:
            self._crash = self._crash or crash
            self._news.notify()

    # --- taking and fetching: in these threads -----------------------------------------------------------------------

    def _next(self, streak: Streak) -> Message | None:
        """The next message for a thread that has none; None when there is nothing left to do."""
        intake = self._intake
        while True:
            with self._lock:
                stopping, message = intake.stopping, None
                if not stopping:
                    if self._leading is not streak and self._leading is not None:
                        self._stand_by(self._leading)
                        continue
                    message = self._take()
                if message is not None:
                    errand = intake.errand_ahead(self._in_hand)
                    if errand is None:
                        return message
                elif intake.feed is None or stopping:
                    self._news.notify()
                    return None
                else:
                    errand = intake.errand(self._in_hand)
                    if errand is None or intake.fetching_anew:
                        self._lead_alone(streak, False)
                    if errand is None:
                        self._wait_for_call()
                        continue
            errand()
            streak.begin()
            if message is not None:
                with self._lock:
                    self._call_if_wanted()  # who found nothing to do meanwhile
                return message

    def _take(self) -> Message | None:
        """Under the lock."""
        intake = self._intake
        while intake.pending:
            message = intake.pending.popleft()
            if not (self._time.endless or self._time.fits(self._taker.timeout_seconds_for(name_of(message[1])))):
                self._unfit.append(message[0])
                self._news.notify()
                continue
            self._in_hand.add(message)
            self._takes += 1
            self._call_if_wanted()
            return message
        return None

    def _wait_for_call(self) -> None:
        """Under the lock."""
        if self._over.is_set():
            return  # the last call was made
        self._idle += 1
        self._work.wait()
        self._idle -= 1
        self._called = False

    def _call_if_wanted(self) -> None:
        """Under the lock: call one of those that wait, if there is something for it to do."""
        if self._idle and not (self._called or (self._stands_by and self._leading is not None)) and self._is_work:
            self._called = True
            self._work.notify()

    @property
    def _is_work(self) -> bool:
        """Whether there is something to do that nobody does."""
        return bool(self._intake.pending) or not self._intake.fetching

    def _adjust(self, messages: Sequence[Message], leased_seconds: float) -> Collection[str]:
        """Those whose jobs have another lease than they were leased for get its length. Returns the receipts of those that are
        lost already."""
        if not self._leases_differ:
            return ()
        leases = self._taker.with_lease_seconds(messages)
        others = [(lease, seconds) for lease, seconds in leases if seconds != leased_seconds]
        return self._heartbeat.adjust(others) if others else ()

    # --- leading alone -----------------------------------------------------------------------------------------------

    def _lead_alone(self, streak: Streak, alone: bool) -> None:
        """Under the lock: whether this thread, if no other, shall take all messages from now on."""
        if alone:
            self._leading = self._leading or streak
        elif self._leading is streak:
            self._leading = None

    def _stand_by(self, leading: Streak) -> None:
        """Under the lock: wait as long as another thread leads alone. One of those who do looks whether it gets on, lest a job
        that is long for once keep messages waiting."""
        if not self._stands_by:
            self._stands_by = True
            while self._leading is leading and self._is_work:
                takes = self._takes
                self._pause.wait(STUCK_SECONDS)
                if self._takes == takes and self._is_work:
                    self._lead_alone(leading, False)
            self._stands_by = False
        if self._leading is leading:
            self._wait_for_call()


class Streak:
    """Messages that one thread has decided one after the other."""

    __slots__ = ("_began", "_clock", "messages")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.begin()

    def begin(self) -> None:
        """Anew: the thread has done something else."""
        self.messages, self._began = 0, self._clock.monotonic()

    def is_quick(self) -> bool:
        """Whether they were short; and begin anew."""
        messages, began = self.messages, self._began
        self.begin()
        return self._began - began < messages * SHORT_SECONDS
