"""What the threads of a crew have in hand: each message from the moment it is taken until it is decided, by its own thread or,
when that takes too long, beside it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from ringfence.attempt import Taker, run_code
from ringfence.carried import Carried
from ringfence.company import Company
from ringfence.errors import Poisoned
from ringfence.intake import Intake, Message
from ringfence.lease import Heartbeat
from ringfence.outcome import Acknowledge, Disposition, Failed, Interrupted, Keep, Outcome, Release
from ringfence.ownership import Hold, Ownership
from ringfence.places import kind_and_place
from ringfence.ports import Lease, Queue
from ringfence.settle import settle
from ringfence.timeleft import TimeLeft
from ringfence.wire import Ticket


class InHand:
    """The messages of one crew that are taken and not decided. ``lock``, ``news`` and ``over`` are the crew's."""

    def __init__(
        self,
        taker: Taker,
        queue: Queue,
        company: Company,
        heartbeat: type[Heartbeat],
        *,
        intake: Intake,
        time: TimeLeft,
        lock: threading.Lock,
        news: threading.Condition,
        over: threading.Event,
        replace: Callable[[Callable[[], None]], None],
    ) -> None:
        """``replace`` carries something out in a thread that then takes a vacant place."""
        self.abandoned = 0
        """Threads that still run code whose job was decided beside them."""
        self.vacancies = 0
        """Places of such threads that nobody has taken yet: another thread, or they themselves when they are back."""
        self.heartbeat = heartbeat(
            queue,
            taker.services,
            shortest_lease_seconds=taker.shortest_lease_seconds,
            held=self._held,
            on_lost=intake.drop,
            on_timeout=self._time_out,
        )
        self._taker, self._queue, self._company, self._services = taker, queue, company, taker.services
        self._intake, self._time, self._lock, self._news, self._over = intake, time, lock, news, over
        self._replace = replace
        self._taken: dict[str, Message | Hold | None] = {}
        """By receipt. The message, then the hold on its job; None once it is being given back."""
        self._carried = 0
        """Successes that are not told yet."""

    def __len__(self) -> int:
        return len(self._taken)

    def add(self, message: Message) -> None:
        """Under the lock: a thread has taken it, and decides it next."""
        self._taken[message[0].receipt] = message

    def decide(self, lease: Lease, ticket: Ticket | Poisoned) -> bool:
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

    def stop_in_time(self) -> None:
        """Ask what runs to stop when it is time to, and hand over what does not."""
        left = self._time.seconds()
        with self._lock:
            running = [taken for taken in self._taken.values() if isinstance(taken, Hold)]
        told_to_stop = self._intake.stopping
        for hold in running:
            if left <= self._time.stop_seconds or told_to_stop:
                hold.stopping = True
            if left <= self._time.hand_over_seconds:
                self._settle_beside(hold, Interrupted())

    def tell_carried(self) -> None:
        """Jobs that ride in their tickets are told of together: a line for each would cost more than they do."""
        with self._lock:
            carried, self._carried = self._carried, 0
        if carried:
            self._services.telemetry.event("carried_jobs_succeeded", queue=self._queue.name, count=carried)

    def release(self, leases: Sequence[Lease], delay_seconds: float) -> None:
        """Give messages back to the queue that are not held here any more."""
        self.heartbeat.let_pass()  # it would undo that
        try:
            self._queue.release(leases, delay_seconds)
        except Exception as fault:  # noqa: BLE001 - they come back by themselves when their leases end
            reason = kind_and_place(fault)
            self._services.telemetry.event("release_failed", queue=self._queue.name, count=len(leases), reason=reason)

    def _held(self) -> tuple[list[tuple[Lease, float]], list[Hold]]:
        """See `Heartbeat`: what waits, to be started or to be acknowledged, and what runs."""
        with self._lock:
            taken = list(self._taken.values())
            messages = [*self._intake.pending, *(each for each in taken if isinstance(each, tuple))]
            # A function's are acknowledged when it returns, which may be long after the first of them is done.
            done = list(self._intake.done) if self._intake.feed is None else []
        longest_seconds = self._taker.lease_seconds_for(None)
        waiting = [*self._taker.with_lease_seconds(messages), *((lease, longest_seconds) for lease in done)]
        return waiting, [each for each in taken if isinstance(each, Hold)]

    # --- by the message's own thread ---------------------------------------------------------------------------------

    def _take_and_run(self, lease: Lease, ticket: Ticket | Poisoned) -> Disposition | None:
        seat = self._company.enter(self._stops)
        if seat is None:
            return Release()
        try:
            hold = self._taker.take(self._queue, lease, ticket, lambda: seat.be_alone(self._stops), self._over.is_set)
            if not isinstance(hold, Hold):
                return hold
            hold.leave = seat.leave
            self._taken[lease.receipt] = hold
            self.heartbeat.expect_end(hold)
            outcome, effects = (Interrupted(), ()) if self._is_too_late(hold) else run_code(hold)
        finally:
            seat.leave()
        return settle(hold, outcome, effects, self._services) if hold.take_outcome() else None

    def _is_too_late(self, hold: Hold) -> bool:
        """A claim may have taken so much patience that there is no time left, or that this batch has returned without it."""
        left = self._time.seconds()
        if left <= self._time.stop_seconds:
            hold.stopping = True
            if left <= self._time.hand_over_seconds:
                return True
        return hold.settled or self._over.is_set()

    def _stops(self) -> bool:
        """Whether it is too late for a job that has waited for company to end."""
        return self._intake.stopping or self._over.is_set() or self._time.seconds() <= self._time.stop_seconds

    def _failed(self, lease: Lease, fault: Exception) -> Disposition:
        reason = kind_and_place(fault)
        self._services.telemetry.event("message_failed", queue=lease.queue, message_id=lease.message_id, reason=reason)
        return Keep()

    def _decided(self, lease: Lease, disposition: Disposition) -> None:
        if isinstance(disposition, Release):
            self._taken[lease.receipt] = None
            self.release([lease], disposition.delay_seconds)
        with self._lock:
            taken = self._taken.pop(lease.receipt, None)
            if isinstance(disposition, Acknowledge):
                self._intake.done.append(lease)
                self._carried += isinstance(taken, Carried) and taken.succeeded
            if self._intake.feed is None or self._intake.stopping:
                self._news.notify()

    # --- beside it ---------------------------------------------------------------------------------------------------

    def _time_out(self, hold: Hold) -> None:
        self._settle_beside(hold, Failed(f"timed out after {hold.spec.timeout_seconds:g} s", "timeout"))

    def _settle_beside(self, hold: Hold, outcome: Outcome) -> None:
        """Decide a job whose own thread is still busy. That thread is lost to the crew from here on."""
        if not isinstance(hold, Ownership | Carried):
            return
        with self._lock:  # when its thread is back, it finds itself counted
            if not hold.take_outcome():
                return
            self.abandoned += 1
            self.vacancies += 1
        hold.stopping = True
        hold.leave()
        if hold.abandon is not None:
            hold.abandon()

        def carry_out() -> None:
            try:
                disposition = settle(hold, outcome, (), self._services)
            except Exception as fault:  # noqa: BLE001 - told, and the message comes again when its lease ends
                disposition = self._failed(hold.lease, fault)
            self._decided(hold.lease, disposition)

        self._replace(carry_out)
