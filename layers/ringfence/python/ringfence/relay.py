"""From the log to the queues: push, then let the checkpoint pass, in order within a shard.

Only a downstream that fails holds the shard. A record that nobody can read goes to the quarantine and counts as sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from ringfence import transitions
from ringfence.errors import Poisoned, Rejected, Unavailable
from ringfence.poison import bury, set_aside_record
from ringfence.ports import Queue, Services
from ringfence.wire import JobRecord, Ticket, decode_record, new_ticket

WINDOW_JOBS = 100
"""Jobs pushed between two looks at the outcome: at most so many tickets are pushed twice after a failure."""


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


class Relay:
    """The only reader of the log."""

    def __init__(self, services: Services, queues: Mapping[str, Queue]) -> None:
        self._services, self._queues = services, queues
        self._ledger, self._ids, self._telemetry = services.ledger, services.ids, services.telemetry

    def handle(self, records: Sequence[Read]) -> str | None:
        """Push the tickets of these records. Returns the sequence number of the first record that is not wholly sent, None
        if all are. Everything before it is sent; everything from it on will be read again."""
        window = _Window()
        for index, record in enumerate(records):
            try:
                self._gather(record, index, window)
            except Unavailable as fault:
                unsent = self._push(window)
                self._telemetry.event("relay_held", shard=record.shard, sequence=record.sequence, reason=str(fault))
                return records[index if unsent is None else min(unsent, index)].sequence
            if len(window.record_of) >= WINDOW_JOBS:
                unsent = self._push(window)
                if unsent is not None:
                    return records[unsent].sequence
                window = _Window()
        unsent = self._push(window)
        return None if unsent is None else records[unsent].sequence

    def _gather(self, record: Read, index: int, window: _Window) -> None:
        try:
            if record.fault is not None:
                raise Poisoned(record.fault)
            jobs = decode_record(record.data)
        except Poisoned as fault:
            set_aside_record(record.shard, record.sequence, record.data, fault, self._services)
            return
        for job in jobs:
            try:
                self._gather_job(record, job, index, window)
            except (Poisoned, Rejected) as fault:
                # Its shape is right and its content is not: the row it would become cannot be stored, or is there and broken.
                set_aside_record(
                    record.shard, record.sequence, record.data, Poisoned(str(fault), job_id=job.job_id), self._services
                )

    def _gather_job(self, record: Read, job: JobRecord, index: int, window: _Window) -> None:
        if job.queue not in self._queues:
            self._bury(record, job)
            return
        if not job.registered:
            self._ledger.register(transitions.accept(job, write_id=self._ids.mark(), due_id=self._ids.mark()))
        if not transitions.is_far(job):  # else its due mark is on the row: timers owe it a ticket
            window.add(job.queue, self._delay_seconds(job), new_ticket(self._ids.mark(), job), index)

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
