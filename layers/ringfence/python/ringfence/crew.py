"""The threads that work on the messages of one queue.

They lead by turns: whoever has nothing to do takes the next message, whoever finds none fetches more, and nothing is handed
from thread to thread (the pattern Leader/Followers: Schmidt, Stal, Rohnert and Buschmann, POSA 2). Short jobs are so run one
after another by the very thread that fetched them, and long ones side by side.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from ringfence.attempt import Taker, name_of, run_code
from ringfence.carried import Carried
from ringfence.company import Company
from ringfence.errors import Poisoned
from ringfence.intake import Feed, Intake, Message
from ringfence.lease import Heartbeat
from ringfence.outcome import Acknowledge, Disposition, Failed, Interrupted, Keep, Outcome, Release
from ringfence.ownership import Hold, Ownership
from ringfence.places import kind_and_place
from ringfence.ports import Lease, Queue
from ringfence.settle import settle
from ringfence.wire import Ticket

STOP_SECONDS = 10.0
"""So long before an invocation's end nothing new is started and running jobs are asked to stop."""

HAND_OVER_SECONDS = 5.0
"""So long before it, what still runs is handed over, its checkpoint kept; if the whole of it is short, in its last quarter."""

LEAVE_SECONDS = 1.0
"""So long before it, or in its last twentieth, the batch returns with what is decided by then; the rest comes again."""

NOT_STARTED_PAUSE_SECONDS = 1.0

SURPLUS_SECONDS = 1.0
"""What no thread has come to within this time goes back: another worker may have a thread for it."""

LOOK_SECONDS = 0.5
"""How often a crew that is fed looks whether it is to stop."""


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
        self._taker, self._services, self._queue, self._threads = taker, taker.services, queue, threads
        self._company = company
        self._longest_lease_seconds = taker.lease_seconds_for(None)
        self._clock, self._telemetry = taker.services.clock, taker.services.telemetry
        self._remaining_seconds = remaining_seconds
        self._whole_seconds = remaining_seconds()
        self._undecided: dict[str, Lease] = {}
        self._running: dict[str, Ownership | Carried] = {}
        self._unfit: list[Lease] = []
        self._carried = 0
        self._asides = 0
        """Threads that do something for the watch."""
        self._abandoned = 0
        """Threads that still run code whose job was decided beside them."""
        self._short = 0
        """Threads that were lost to a job and could not be replaced."""
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
        self._intake = Intake(
            queue.name,
            leases,
            feed,
            taker.services,
            threads=threads,
            lease_seconds=self._longest_lease_seconds,
            lock=self._lock,
            over=self._over,
            on_fetched=self._awaits,
            on_stop=self._news.notify,
        )
        self._heartbeat = heartbeat(queue, self._services, on_timeout=self._time_out)

    def run(self) -> list[Lease]:
        """Until every message is decided or the time is up. Returns those that may be acknowledged and are not yet."""
        intake = self._intake
        self._heartbeat.start(self._with_lease_seconds(intake.pending))
        try:
            for _ in range(min(self._threads, len(intake.pending)) if intake.feed is None else self._threads):
                if not self._start_thread(self._lead_and_follow):
                    break  # with as many as there may be
            self._watch()
            self._tell_carried()
            self._give_back(intake.take_all(), NOT_STARTED_PAUSE_SECONDS)
            if intake.done and intake.feed is not None:
                self._aside(intake.acknowledge)
            self._wait_for_asides()
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
                self._news.wait(self._until_next_look())

    def _goes_on(self) -> bool:
        intake = self._intake
        if intake.feed is not None and not intake.feed.stopping:
            return True
        busy = self._undecided or self._unfit or self._asides or intake.busy
        return bool(busy) and self._remaining_seconds() > self._leave_seconds

    def _look(self) -> None:
        self._stop_in_time()
        with self._lock:
            unfit, self._unfit = self._unfit, []
        self._give_back(unfit, NOT_STARTED_PAUSE_SECONDS)
        self._tell_carried()
        intake = self._intake
        if intake.feed is not None:
            intake.feed.look(self._abandoned)
            for errand in (intake.errand_beside, intake.errand_done):  # every thread may be busy for long
                with self._lock:
                    run = errand()
                if run is not None:
                    self._aside(run)
            self._give_back(intake.take_all() if intake.stopping else intake.take_surplus(SURPLUS_SECONDS), 0.0)

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
            while self._asides and self._crash is None and (left := self._remaining_seconds() - self._leave_seconds / 2) > 0:
                self._news.wait(None if left == float("inf") else left + 0.001)

    def _stop_in_time(self) -> None:
        left = self._remaining_seconds()
        with self._lock:
            running = list(self._running.values())
        told_to_stop = self._intake.stopping
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
        if self._intake.feed is not None:
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

    # --- taking and fetching: in the threads of the crew -------------------------------------------------------------

    def _start_thread(self, code: Callable[[], None], name: str | None = None) -> bool:
        """Whether it could be started: a machine, or a limit on this process, may have no more threads."""
        try:
            threading.Thread(target=code, name=name or f"ringfence-crew-{self._queue.name}", daemon=True).start()
        except RuntimeError as fault:
            self._telemetry.event("thread_not_started", queue=self._queue.name, reason=str(fault))
            return False
        return True

    def _lead_and_follow(self) -> None:
        try:
            while (message := self._next()) is not None:
                if not self._decide(*message) and self._is_replaced():
                    return
        except BaseException as crash:  # noqa: BLE001 - raised again in the caller's thread
            self._crashed(crash)

    def _is_replaced(self) -> bool:
        """Whether another thread has taken the place of one whose job was decided beside it."""
        with self._lock:
            self._abandoned -= 1
            short = self._short > 0
            self._short -= short
            return not short

    def _crashed(self, crash: BaseException) -> None:
        with self._lock:
            self._crash = self._crash or crash
            self._news.notify()

    def _next(self) -> Message | None:
        """The next message for a thread that has none; None when there is nothing left to do."""
        intake = self._intake
        while True:
            with self._lock:
                stopping = intake.stopping
                message = None if stopping else self._take()
                if message is not None:
                    errand = intake.errand_ahead(len(self._undecided))
                    if errand is None:
                        return message
                elif intake.feed is None or stopping:
                    self._news.notify()
                    return None
                else:
                    errand = intake.errand(len(self._undecided))
                    if errand is None:
                        self._idle += 1
                        self._work.wait()
                        self._idle -= 1
                        self._called = False
                        continue
            errand()
            if message is not None:
                with self._lock:
                    self._call_if_wanted()  # who found nothing to do meanwhile
                return message

    def _take(self) -> Message | None:
        """Under the lock."""
        intake = self._intake
        while intake.pending:
            lease, ticket = intake.pending.popleft()
            if not self._heartbeat.waits(lease):
                continue  # its lease ended before it was started: somebody else has it
            if not self._fits(name_of(ticket)):
                self._unfit.append(lease)
                self._news.notify()
                continue
            self._undecided[lease.receipt] = lease
            self._call_if_wanted()
            return lease, ticket
        return None

    def _call_if_wanted(self) -> None:
        """Under the lock: call one of those that wait, if there is something for it to do."""
        if self._idle and not self._called and (self._intake.pending or not self._intake.fetching):
            self._called = True
            self._work.notify()

    def _fits(self, name: str | None) -> bool:
        """A job is started only if its timeout fits the time left; one that fits no invocation has the whole of one."""
        if self._whole_seconds == float("inf"):
            return True
        wanted = min(self._taker.timeout_seconds_for(name) + STOP_SECONDS, 0.9 * self._whole_seconds)
        return self._remaining_seconds() >= wanted

    def _awaits(self, messages: Sequence[Message]) -> None:
        self._heartbeat.awaits(self._with_lease_seconds(messages), self._longest_lease_seconds)

    def _with_lease_seconds(self, messages: Iterable[Message]) -> list[tuple[Lease, float]]:
        seconds_for = self._taker.lease_seconds_for
        return [(lease, seconds_for(name_of(ticket))) for lease, ticket in messages]

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
            self._running[lease.receipt] = hold
            self._heartbeat.owns(hold)
            left = self._remaining_seconds()
            if left <= STOP_SECONDS:
                hold.stopping = True
            # A claim may have taken so much patience that it is too late, or that this batch has returned without it.
            too_late = hold.settled or self._over.is_set() or left <= self._hand_over_seconds
            outcome, effects = (Interrupted(), ()) if too_late else run_code(hold)
        finally:
            seat.leave()
        if hold.take_outcome():
            return settle(hold, outcome, effects, self._services)
        with self._lock:
            if lease.receipt not in self._undecided:  # it may have been decided before it was known to be running
                self._running.pop(lease.receipt, None)
                self._heartbeat.forget(lease)
        return None

    def _stops(self) -> bool:
        """Whether it is too late for a job that has waited for company to end."""
        return self._intake.stopping or self._over.is_set() or self._remaining_seconds() <= STOP_SECONDS

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
                self._intake.done.append(lease)
                self._carried += isinstance(hold, Carried)
            if self._intake.feed is None or self._intake.stopping:
                self._news.notify()

    def _give_back(self, leases: Sequence[Lease], delay_seconds: float) -> None:
        """Release messages that were not started, aside."""
        if leases:
            self._aside(partial(self._release, leases, delay_seconds))

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
        with self._lock:
            self._abandoned += 1
        hold.stopping = True
        hold.leave()
        if hold.abandon is not None:
            hold.abandon()

        def carry_out() -> None:
            try:
                try:
                    disposition = settle(hold, outcome, (), self._services)
                except Exception as fault:  # noqa: BLE001 - told, and the message comes again when its lease ends
                    disposition = self._failed(hold.lease, fault)
                self._decided(hold.lease, disposition)
            except BaseException as crash:  # noqa: BLE001 - raised again in the caller's thread
                self._crashed(crash)

        def take_its_place() -> None:
            carry_out()
            self._lead_and_follow()

        if not self._start_thread(take_its_place):
            with self._lock:
                self._short += 1
            carry_out()
