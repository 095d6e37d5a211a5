"""From the log to the queues: push now, push with a delay, or park; then let the checkpoint pass, in order within a shard.

Only a downstream that fails holds the shard, never the pace of a queue. A record that nobody can read goes to the quarantine
and counts as sent.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ringfence import transitions
from ringfence.change import Change
from ringfence.errors import Poisoned, Rejected, Unavailable
from ringfence.job import Millis
from ringfence.pace import Pacer
from ringfence.poison import bury, set_aside_record
from ringfence.ports import Queue, Services
from ringfence.sender import Sender
from ringfence.wire import JobRecord, Ticket, decode_record, new_ticket

WINDOW_JOBS = 100
"""Jobs pushed between two looks at the outcome: at most so many tickets are pushed twice after a failure."""

STOP_SECONDS = 10.0
"""So long before the end of an invocation nothing more is begun. What is done then stays done: the rest is read again."""


@dataclass(frozen=True, slots=True)
class Read:
    """One record as read from the log. ``fault`` is set when the transport's own encoding was already broken."""

    data: bytes
    sequence: str
    shard: str
    fault: str | None = None


@dataclass(slots=True)
class _Window:
    """Consecutive records that are pushed together: which ticket came from which record."""

    tickets: dict[tuple[str, int], list[Ticket]] = field(default_factory=dict)
    record_of: dict[str, int] = field(default_factory=dict)

    def add(self, queue: str, delay_seconds: int, ticket: Ticket, record: int) -> None:
        self.tickets.setdefault((queue, delay_seconds), []).append(ticket)
        self.record_of[ticket.ticket_id] = record


@dataclass(slots=True)
class _Paced:
    """The jobs of one queue that keeps a pace, in the order of the log, and the record of each."""

    jobs: list[JobRecord] = field(default_factory=list)
    records: list[int] = field(default_factory=list)

    def add(self, job: JobRecord, record: int) -> None:
        self.jobs.append(job)
        self.records.append(record)


class Relay:
    """The only reader of the log."""

    def __init__(self, services: Services, queues: Mapping[str, Queue], pacer: Pacer) -> None:
        self._services, self._queues, self._pacer = services, queues, pacer
        self._ledger, self._ids, self._telemetry = services.ledger, services.ids, services.telemetry
        self._sender = Sender(services, queues, pacer)

    def handle(self, records: Sequence[Read], remaining_seconds: Callable[[], float] = lambda: float("inf")) -> str | None:
        """Push the tickets of these records, or park their jobs. Returns the sequence number of the first record that is not
        wholly sent, None if all are. Everything before it is sent; everything from it on will be read again.

        Queues without a pace go first, for theirs is the cheaper work: a slow neighbour in the shard does not delay them.
        ``remaining_seconds`` says how long this invocation may still take.
        """

        def has_time() -> bool:
            return remaining_seconds() > STOP_SECONDS

        paced: dict[str, _Paced | None] = {}
        end = self._push_free(records, paced, has_time)
        for queue, held_back in paced.items():
            if held_back is not None:
                end = self._send_paced(queue, held_back, end, has_time)
        return records[end].sequence if end < len(records) else None

    def _push_free(self, records: Sequence[Read], paced: dict[str, _Paced | None], has_time: Callable[[], bool]) -> int:
        """Push what has no pace, and gather what has. Returns how many records, from the first, are done with but for that."""
        window = _Window()
        for index, record in enumerate(records):
            try:
                if not has_time():
                    raise Unavailable("the time is nearly up")
                self._gather(record, index, window, paced)
            except Unavailable as fault:
                unsent = self._push(window)
                self._telemetry.event("relay_held", shard=record.shard, sequence=record.sequence, reason=str(fault))
                return index if unsent is None else min(unsent, index)
            if len(window.record_of) >= WINDOW_JOBS:
                unsent = self._push(window)
                if unsent is not None:
                    return unsent
                window = _Window()
        unsent = self._push(window)
        return len(records) if unsent is None else unsent

    def _send_paced(self, queue: str, held_back: _Paced, end: int, has_time: Callable[[], bool]) -> int:
        """Send the jobs of one queue that lie in the records before ``end``. Returns the first record not wholly sent."""
        now = self._services.clock.now()
        due, later = _Paced(), _Paced()
        for job, record in zip(held_back.jobs, held_back.records, strict=True):
            if record < end:
                (later if job.run_at is not None and job.run_at > now else due).add(job, record)
        first = self._sender.send(queue, due.jobs, self._park, has_time).first_unsent
        if first is not None:
            end = due.records[first]
        waiting = self._sender.park_until_due(queue, later.jobs, self._park, has_time)
        return min(end, later.records[waiting]) if waiting < len(later.jobs) else end

    def _park(self, job: JobRecord, run_at: Millis, due_id: str) -> Change:
        return transitions.park(job, write_id=self._ids.mark(), run_at=run_at, due_id=due_id)

    def _gather(self, record: Read, index: int, window: _Window, paced: dict[str, _Paced | None]) -> None:
        try:
            if record.fault is not None:
                raise Poisoned(record.fault)
            jobs = decode_record(record.data)
        except Poisoned as fault:
            set_aside_record(record.shard, record.sequence, record.data, fault, self._services)
            return
        for job in jobs:
            try:
                self._gather_job(record, job, index, window, paced)
            except (Poisoned, Rejected) as fault:
                # Its shape is right and its content is not: the row it would become cannot be stored, or is there and broken.
                set_aside_record(
                    record.shard, record.sequence, record.data, Poisoned(str(fault), job_id=job.job_id), self._services
                )

    def _gather_job(self, record: Read, job: JobRecord, index: int, window: _Window, paced: dict[str, _Paced | None]) -> None:
        if job.queue not in self._queues:
            self._bury(record, job)
            return
        if not job.registered:
            self._ledger.register(transitions.accept(job, write_id=self._ids.mark(), due_id=self._ids.mark()))
        if transitions.is_far(job):
            return  # its due mark is on the row: timers owe it a ticket
        if job.queue not in paced:  # asked once for a batch, or a change in its middle would turn the order around
            paced[job.queue] = None if self._pacer.is_free(job.queue) else _Paced()
        held_back = paced[job.queue]
        if held_back is None:
            window.add(job.queue, self._delay_seconds(job), new_ticket(self._ids.mark(), job), index)
        else:
            held_back.add(job, index)

    def _delay_seconds(self, job: JobRecord) -> int:
        """Whole seconds, rounded up: a ticket may be late, not early."""
        return 0 if job.run_at is None else max(0, -(-(job.run_at - self._services.clock.now()) // 1000))

    def _push(self, window: _Window) -> int | None:
        """Push a window. Returns the index of the first record with a ticket that was not taken."""
        unsent: set[int] = set()
        for (name, delay_seconds), tickets in window.tickets.items():
            try:
                untaken = self._queues[name].push(tickets, delay_seconds)
            except Unavailable:
                untaken = tickets
            self._telemetry.event("tickets_pushed", queue=name, count=len(tickets) - len(untaken))
            if untaken:
                self._telemetry.event("push_failed", queue=name, count=len(untaken))
                unsent.update(window.record_of[ticket.ticket_id] for ticket in untaken)
        return min(unsent) if unsent else None

    def _bury(self, record: Read, job: JobRecord) -> None:
        """A job for a queue that no longer exists: kept in the quarantine, and dead with the reason."""
        reason = f"there is no queue {job.queue!r}"
        fault = Poisoned(reason, job_id=job.job_id)
        set_aside_record(record.shard, record.sequence, record.data, fault, self._services)
        self._ledger.register(transitions.accept(job, write_id=self._ids.mark(), due_id=self._ids.mark()))
        bury(job.job_id, reason, self._services)
