"""lease → claim → run under a heartbeat → commit → acknowledge: the same core in Lambda and in a process.

`Worker.handle` takes a batch of leased messages and returns when each is decided: claimed by `claim`, run here, settled by
`settle`.
"""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections import deque
from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from ringfence.app import App, JobSpec
from ringfence.claim import Claimant, Claimed, bury_poison, claim
from ringfence.context import Context, encode_text
from ringfence.effects import Effect
from ringfence.errors import Poisoned, Unavailable
from ringfence.lease import Heartbeat, Ownership
from ringfence.outcome import (
    Acknowledge,
    Disposition,
    Done,
    Failed,
    Interrupted,
    Keep,
    Outcome,
    Release,
    outcome_of,
)
from ringfence.places import kind_and_place
from ringfence.ports import Lease, Queue, Services
from ringfence.retry import Backoff
from ringfence.settle import settle
from ringfence.wire import Ticket, decode_ticket

STOP_SECONDS = 10.0
"""So long before an invocation's end nothing new is started and running jobs are asked to stop."""

HAND_OVER_SECONDS = 5.0
"""So long before it, what still runs is handed over, its checkpoint kept."""

LEAVE_SECONDS = 1.0
"""So long before it, the batch returns with what is decided by then; the rest comes again."""

NOT_STARTED_PAUSE_SECONDS = 1.0

PREFETCHED_PER_THREAD = 2
"""Messages a process holds for each of its threads, so that one that ends a job finds the next at hand."""

LOOK_SECONDS = 0.5
"""How often a process whose threads are all busy looks whether it is to stop."""

QUEUE_PAUSE_SECONDS = 1.0
"""Between two tries of a queue that cannot be reached."""

NAMES_TOLD = 10
"""As many registered names as an unknown one is answered with."""


class Feed(Protocol):
    """Where a process worker's messages come from, for as long as it is to go on."""

    @property
    def stopping(self) -> bool:
        """Whether no more messages shall be taken, and jobs shall be asked to stop."""

    def remaining_seconds(self) -> float:
        """How long the running jobs may still take; without end until it stops."""

    def exchange(self, done: Sequence[Lease], room: int, lease_seconds: float, *, wait: bool) -> list[Lease]:
        """Acknowledge what is done and take at most ``room`` messages, waiting a moment for a first one if asked to.

        Raises `Unavailable` when the queue cannot be reached; acknowledging again is harmless.
        """


class Worker:
    """Runs the jobs of one `App`, ``threads`` at once in each batch."""

    def __init__(
        self,
        app: App,
        services: Services,
        *,
        name: str,
        threads: int,
        lease_seconds: float,
        heartbeat: type[Heartbeat] = Heartbeat,
    ) -> None:
        self.app, self.services, self.name, self.threads, self.heartbeat = app, services, name, threads, heartbeat
        self._lease_seconds = lease_seconds

    def handle(
        self, queue: Queue, leases: Sequence[Lease], remaining_seconds: Callable[[], float] = lambda: float("inf")
    ) -> list[Lease]:
        """Decide every message of a batch. Returns those that may be acknowledged; the others were released or are lost.

        ``remaining_seconds`` says how long this invocation may still take.
        """
        return _Batch(self, queue, leases, remaining_seconds).run()

    def serve(self, queue: Queue, feed: Feed) -> None:
        """Take messages from a feed and decide them, until it stops; then let what runs end within its time, hand over what
        does not, and give back what was not started."""
        _Batch(self, queue, (), feed.remaining_seconds, feed).run()

    def lease_seconds_for(self, name: str | None) -> float:
        """The lease of a job by its name; the longest of all when the name is not told."""
        if name is None:
            return max([self._lease_seconds, *(spec.lease_seconds or 0.0 for spec in self.app.jobs.values())])
        spec = self.app.jobs.get(name)
        return self._lease_seconds if spec is None or spec.lease_seconds is None else spec.lease_seconds

    def timeout_seconds_for(self, name: str | None) -> float:
        """The timeout of a job by its name; the longest of all when the name is not known."""
        spec = self.app.jobs.get(name) if name is not None else None
        return spec.timeout_seconds if spec else max((spec.timeout_seconds for spec in self.app.jobs.values()), default=0.0)


class _Batch:
    """One call of `Worker.handle`: its messages, its heartbeat, and a thread for each job that runs."""

    def __init__(
        self,
        worker: Worker,
        queue: Queue,
        leases: Sequence[Lease],
        remaining_seconds: Callable[[], float],
        feed: Feed | None = None,
    ) -> None:
        self._worker, self._services, self._queue, self._feed = worker, worker.services, queue, feed
        self._remaining_seconds = remaining_seconds
        self._whole_seconds = remaining_seconds()
        self._messages = [(lease, _read(lease)) for lease in leases]
        self._pending = deque(self._messages)
        self._undecided: dict[str, Lease] = {}
        self._running: dict[str, Ownership] = {}
        self._acknowledged: list[Lease] = []
        self._crash: BaseException | None = None
        self._changed = threading.Condition()
        self._heartbeat = worker.heartbeat(queue, self._services, on_timeout=self._time_out)

    def run(self) -> list[Lease]:
        self._heartbeat.start((lease, self._worker.lease_seconds_for(_name(ticket))) for lease, ticket in self._messages)
        try:
            while self._goes_on() and self._remaining_seconds() > LEAVE_SECONDS:
                if self._feed is not None:
                    self._exchange(self._feed)
                    if self._feed.stopping:
                        self._give_back_pending(0.0)
                self._release(self._start_what_fits(), NOT_STARTED_PAUSE_SECONDS)
                self._stop_in_time()
                with self._changed:
                    self._raise_crash()
                    if self._undecided and not self._has_room() and not self._takes_more():
                        self._changed.wait(self._until_next_look())
            self._raise_crash()
            self._give_back_pending(NOT_STARTED_PAUSE_SECONDS)
            if self._feed is not None:
                self._exchange(self._feed)
        finally:
            self._heartbeat.stop()
        return list(self._acknowledged)

    # --- what comes and goes while it runs ---------------------------------------------------------------------------

    def _goes_on(self) -> bool:
        if self._feed is not None and not self._feed.stopping:
            return True
        return bool(self._pending or self._undecided)

    def _takes_more(self) -> bool:
        """Whether the next exchange will take, or wait for, messages."""
        return self._feed is not None and not self._feed.stopping and self._room() > 0

    def _give_back_pending(self, delay_seconds: float) -> None:
        self._release([lease for lease, _ in self._pending], delay_seconds)
        self._pending.clear()

    def _room(self) -> int:
        return PREFETCHED_PER_THREAD * self._worker.threads - len(self._pending) - len(self._undecided)

    def _exchange(self, feed: Feed) -> None:
        with self._changed:
            done, self._acknowledged = self._acknowledged, []
        room = 0 if feed.stopping else max(0, self._room())
        if not done and not room:
            return
        try:
            longest_seconds = self._worker.lease_seconds_for(None)
            leases = feed.exchange(done, room, longest_seconds, wait=not self._pending)
        except Unavailable as fault:
            self._services.telemetry.event("queue_unreachable", queue=self._queue.name, reason=str(fault))
            with self._changed:
                self._acknowledged = done + self._acknowledged
                self._changed.wait(QUEUE_PAUSE_SECONDS)
            return
        for lease in leases:
            ticket = _read(lease)
            self._heartbeat.awaits(lease, self._worker.lease_seconds_for(_name(ticket)), longest_seconds)
            self._pending.append((lease, ticket))
        self._heartbeat.adjust()

    # --- in the batch's own thread -----------------------------------------------------------------------------------

    def _has_room(self) -> bool:
        return bool(self._pending) and len(self._undecided) < self._worker.threads

    def _start_what_fits(self) -> list[Lease]:
        """Start jobs while there are threads for them. Returns the messages whose jobs do not fit the time left."""
        unfit: list[Lease] = []
        while self._has_room():
            lease, ticket = self._pending.popleft()
            if not self._heartbeat.waits(lease):
                continue  # its lease ended before it was started: somebody else has it
            if not self._fits(_name(ticket)):
                unfit.append(lease)
                continue
            with self._changed:
                self._undecided[lease.receipt] = lease
            threading.Thread(target=self._decide, args=(lease, ticket), name=f"job-{lease.message_id}", daemon=True).start()
        return unfit

    def _raise_crash(self) -> None:
        if self._crash is not None:
            raise self._crash

    def _fits(self, name: str | None) -> bool:
        """A job is started only if its timeout fits the time left; one that fits no invocation has the whole of one."""
        wanted = min(self._worker.timeout_seconds_for(name) + STOP_SECONDS, 0.9 * self._whole_seconds)
        return self._remaining_seconds() >= wanted

    def _stop_in_time(self) -> None:
        left = self._remaining_seconds()
        with self._changed:
            running = list(self._running.values())
        told_to_stop = self._feed is not None and self._feed.stopping
        for ownership in running:
            if left <= STOP_SECONDS or told_to_stop:
                ownership.stopping.set()
            if left <= HAND_OVER_SECONDS:
                self._settle_beside(ownership, Interrupted())

    def _until_next_look(self) -> float | None:
        """Seconds until a threshold near the invocation's end is crossed; None without such an end."""
        if self._feed is not None:
            return LOOK_SECONDS  # it may be asked to stop at any moment
        left = self._remaining_seconds()
        if left == float("inf"):
            return None
        ahead = [left - threshold for threshold in (STOP_SECONDS, HAND_OVER_SECONDS, LEAVE_SECONDS) if left > threshold]
        return min(ahead, default=0.1) + 0.001

    # --- in a job's thread -------------------------------------------------------------------------------------------

    def _decide(self, lease: Lease, ticket: Ticket | Poisoned) -> None:
        self._deciding(lease, lambda: self._claim_and_run(lease, ticket))

    def _deciding(self, lease: Lease, decide: Callable[[], Disposition | None]) -> None:
        """Every thread that may decide a message runs in here, so that none can end without its batch being told."""
        try:
            disposition = decide()
        except Exception as fault:  # noqa: BLE001 - told, and the message comes again when its lease ends
            reason = kind_and_place(fault)
            self._services.telemetry.event("message_failed", queue=lease.queue, message_id=lease.message_id, reason=reason)
            disposition = Keep()
        except BaseException as crash:  # noqa: BLE001 - raised again in the batch's own thread
            with self._changed:
                self._crash = crash
                self._changed.notify_all()
            return
        if disposition is not None:
            self._decided(lease, disposition)

    def _claim_and_run(self, lease: Lease, ticket: Ticket | Poisoned) -> Disposition | None:
        """None when the outcome was taken by the timeout or a hand-over: they decide the message too."""
        if isinstance(ticket, Poisoned):
            return bury_poison(lease, ticket, self._services)
        lease_seconds = self._worker.lease_seconds_for(ticket.name)
        known = None if ticket.name is None else self._worker.app.jobs.get(ticket.name)
        claimant = Claimant(self._worker.name, ticket, lease, lease_seconds, None if known is None else known.max_attempts)
        claimed = claim(claimant, self._services)
        if not isinstance(claimed, Claimed):
            return claimed
        name = claimed.job.name
        spec = self._worker.app.jobs.get(name) or _unregistered(name, self._worker.app.jobs)
        ownership = Ownership(claimed.job, lease, spec, lease_seconds, self._services, counted=claimed.counted)
        with self._changed:
            self._running[lease.receipt] = ownership
            if self._remaining_seconds() <= STOP_SECONDS:
                ownership.stopping.set()
        self._heartbeat.owns(ownership)
        outcome, effects = self._run_code(ownership)
        return settle(ownership, outcome, effects, self._services) if ownership.take_outcome() else None

    def _run_code(self, ownership: Ownership) -> tuple[Outcome, Sequence[Effect]]:
        """The job's code under its context. Every exception becomes an outcome."""
        context = Context(ownership)
        try:
            result = ownership.spec.function(context, **ownership.spec.decode(context.payload))
            if inspect.iscoroutine(result):
                result = asyncio.run(result)
            return Done(encode_text(result, "result")), context.effects.staged
        except (Exception, SystemExit, KeyboardInterrupt, asyncio.CancelledError) as raised:  # noqa: BLE001 - it is the outcome
            return outcome_of(raised), ()

    def _decided(self, lease: Lease, disposition: Disposition) -> None:
        self._heartbeat.forget(lease)
        if isinstance(disposition, Release):
            self._release([lease], disposition.delay_seconds)
        with self._changed:
            if self._undecided.pop(lease.receipt, None) is not None and isinstance(disposition, Acknowledge):
                self._acknowledged.append(lease)
            self._running.pop(lease.receipt, None)
            self._changed.notify_all()

    def _release(self, leases: Sequence[Lease], delay_seconds: float) -> None:
        if not leases:
            return
        for lease in leases:
            self._heartbeat.forget(lease)
        try:
            self._queue.release(leases, delay_seconds)
        except Exception as fault:  # noqa: BLE001 - they come back by themselves when their leases end
            reason = kind_and_place(fault)
            self._services.telemetry.event("release_failed", queue=self._queue.name, count=len(leases), reason=reason)

    # --- beside a job's thread ---------------------------------------------------------------------------------------

    def _time_out(self, ownership: Ownership) -> None:
        self._settle_beside(ownership, Failed(f"timed out after {ownership.spec.timeout_seconds:g} s", "timeout"))

    def _settle_beside(self, ownership: Ownership, outcome: Outcome) -> None:
        """Decide a job whose own thread is still busy; that thread is lost to the job from here on."""
        if not ownership.take_outcome():
            return
        ownership.stopping.set()

        def carry_out() -> Disposition:
            return settle(ownership, outcome, (), self._services)

        name = f"settle-{ownership.job.job_id}"
        threading.Thread(target=self._deciding, args=(ownership.lease, carry_out), name=name, daemon=True).start()


def _read(lease: Lease) -> Ticket | Poisoned:
    try:
        return decode_ticket(lease.body)
    except Poisoned as fault:
        return fault


def _name(ticket: Ticket | Poisoned) -> str | None:
    return ticket.name if isinstance(ticket, Ticket) else None


def _unregistered(name: str, known: Collection[str]) -> JobSpec:
    """A job this worker does not know: a newer version of the worker may, so it is retried before it is dead."""

    def refuse(context: Context) -> None:
        names = ", ".join(sorted(known)[:NAMES_TOLD]) + (", …" if len(known) > NAMES_TOLD else "")
        raise LookupError(
            f"this worker has no job named {name!r}, only {names or 'none at all'}; is its module imported where the app is "
            "(jobs/__init__.py), and was the worker started anew since?"
        )

    return JobSpec(
        name=name,
        function=refuse,
        lease_seconds=None,
        timeout_seconds=60.0,
        max_attempts=None,
        backoff=Backoff(),
        arguments=None,
    )
