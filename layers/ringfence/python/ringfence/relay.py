"""From the log to the queues: push now, push with a delay, or park; then let the checkpoint pass, in order within a shard.

Only a downstream that fails holds the shard, never the pace of a queue. A record that nobody can read goes to the quarantine
and counts as sent. A job with the guarantee at-least-once rides in its ticket; it gets a row only where it is parked.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ringfence import transitions
from ringfence.change import Change
from ringfence.errors import Poisoned, Rejected, Unavailable
from ringfence.job import Guarantee, Job, Millis
from ringfence.pace import Pacer
from ringfence.poison import bury, set_aside_record
from ringfence.ports import MAX_DELAY_SECONDS, Queue, Services
from ringfence.sender import Sender
from ringfence.wire import MAX_PAYLOAD_BYTES, JobRecord, Ticket, decode_record, new_ticket

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
class _Waiting:
    """Jobs of one queue, in the order of the log, and the record of each."""

    jobs: list[JobRecord] = field(default_factory=list)
    records: list[int] = field(default_factory=list)

    def add(self, job: JobRecord, record: int) -> None:
        self.jobs.append(job)
        self.records.append(record)

    def before(self, end: int) -> _Waiting:
        """Those that lie in the records before ``end``."""
        waiting = _Waiting()
        for job, record in zip(self.jobs, self.records, strict=True):
            if record < end:
                waiting.add(job, record)
        return waiting


@dataclass(slots=True)
class _Batch:
    """What is known of the records of one batch, beside the tickets that are pushed as they are read."""

    pushed_before: frozenset[str] = frozenset()
    """Jobs without rows that an earlier reading of these records has pushed."""
    pushed: dict[str, int] = field(default_factory=dict)
    """Jobs without rows that this one or an earlier one has pushed, and the record of each."""
    paced: dict[str, _Waiting | None] = field(default_factory=dict)
    """By queue, the jobs of those that keep a pace; None for a queue that was found to keep none."""
    far: dict[str, _Waiting] = field(default_factory=dict)
    """By queue, jobs without rows that are too far ahead to stay without."""


class Relay:
    """The only reader of the log."""

    def __init__(self, services: Services, queues: Mapping[str, Queue], pacer: Pacer) -> None:
        self._services, self._queues, self._pacer = services, queues, pacer
        self._ledger, self._ids, self._telemetry = services.ledger, services.ids, services.telemetry
        self._sender = Sender(services, queues, pacer)
        self._pushed_ahead: dict[str, frozenset[str]] = {}
        """By shard, jobs without rows that are pushed, though their records will be read again: what holds the shard would
        otherwise make them run again with every reading. Forgotten with the process."""

    def handle(self, records: Sequence[Read], remaining_seconds: Callable[[], float] = lambda: float("inf")) -> str | None:
        """Push the tickets of these records, or park their jobs. Returns the sequence number of the first record that is not
        wholly sent, None if all are. Everything before it is sent; everything from it on will be read again.

        The records are of one shard. Queues without a pace go first, for theirs is the cheaper work: a slow neighbour in the
        shard does not delay them. ``remaining_seconds`` says how long this invocation may still take.
        """
        if not records:
            return None

        def has_time() -> bool:
            return remaining_seconds() > STOP_SECONDS

        shard = records[0].shard
        batch = _Batch(self._pushed_ahead.pop(shard, frozenset()))
        end = self._push_free(records, batch, has_time)
        for queue, far in batch.far.items():
            end = self._park_until_due(queue, far, end, has_time)
        for queue, paced in batch.paced.items():
            if paced is not None:
                end = self._send_paced(queue, paced.before(end), end, batch, has_time)
        if end == len(records):
            return None
        self._pushed_ahead[shard] = frozenset(job_id for job_id, record in batch.pushed.items() if record >= end)
        return records[end].sequence

    def _push_free(self, records: Sequence[Read], batch: _Batch, has_time: Callable[[], bool]) -> int:
        """Push what has no pace, and gather the rest. Returns how many records, from the first, are done with but for that."""
        window = _Window()
        for index, record in enumerate(records):
            try:
                if not has_time():
                    raise Unavailable("the time is nearly up")
                self._gather(record, index, window, batch)
            except Unavailable as fault:
                unsent = self._push(window, batch)
                self._telemetry.event("relay_held", shard=record.shard, sequence=record.sequence, reason=str(fault))
                return index if unsent is None else min(unsent, index)
            if len(window.record_of) >= WINDOW_JOBS:
                unsent = self._push(window, batch)
                if unsent is not None:
                    return unsent
                window = _Window()
        unsent = self._push(window, batch)
        return len(records) if unsent is None else unsent

    def _send_paced(self, queue: str, paced: _Waiting, end: int, batch: _Batch, has_time: Callable[[], bool]) -> int:
        """Send the jobs of one queue, which lie in the records before ``end``. Returns the first record not wholly sent."""
        now = self._services.clock.now()
        due, later = _Waiting(), _Waiting()
        for job, record in zip(paced.jobs, paced.records, strict=True):
            (later if job.run_at is not None and job.run_at > now else due).add(job, record)
        sent = self._sender.send(queue, due.jobs, self._park, has_time)
        record_of = {job.job_id: record for job, record in zip(due.jobs, due.records, strict=True)}
        batch.pushed |= {job.job_id: record_of[job.job_id] for job in sent.pushed if _rides_in_its_ticket(job)}
        if sent.first_unsent is not None:
            end = due.records[sent.first_unsent]
        return self._park_until_due(queue, later, end, has_time)

    def _park_until_due(self, queue: str, later: _Waiting, end: int, has_time: Callable[[], bool]) -> int:
        """Let jobs wait on their rows for their own time. Returns the first record not wholly sent, ``end`` at the most."""
        decided = self._sender.park_until_due(queue, later.jobs, self._park, has_time)
        return min(end, later.records[decided]) if decided < len(later.jobs) else end

    def _park(self, job: JobRecord, run_at: Millis, due_id: str) -> Change | Job:
        park = transitions.accept_parked if _rides_in_its_ticket(job) else transitions.park
        return park(job, write_id=self._ids.mark(), run_at=run_at, due_id=due_id)

    def _gather(self, record: Read, index: int, window: _Window, batch: _Batch) -> None:
        try:
            if record.fault is not None:
                raise Poisoned(record.fault)
            jobs = decode_record(record.data)
        except Poisoned as fault:
            set_aside_record(record.shard, record.sequence, record.data, fault, self._services)
            return
        for job in jobs:
            try:
                self._gather_job(record, job, index, window, batch)
            except (Poisoned, Rejected) as fault:
                # Its shape is right and its content is not: the row it would become cannot be stored, or is there and broken.
                set_aside_record(
                    record.shard, record.sequence, record.data, Poisoned(str(fault), job_id=job.job_id), self._services
                )

    def _gather_job(self, record: Read, job: JobRecord, index: int, window: _Window, batch: _Batch) -> None:
        if job.queue not in self._queues:
            self._bury(record, job)
            return
        if _rides_in_its_ticket(job):
            if job.job_id in batch.pushed_before:
                batch.pushed[job.job_id] = index
                return
            _ensure_it_fits(job)
            if transitions.is_far(job) or self._delay_seconds(job) > MAX_DELAY_SECONDS:
                batch.far.setdefault(job.queue, _Waiting()).add(job, index)
                return
        elif not job.registered:
            self._ledger.register(transitions.accept(job, write_id=self._ids.mark(), due_id=self._ids.mark()))
        if transitions.is_far(job):
            return  # its due mark is on the row: timers owe it a ticket
        if job.queue not in batch.paced:  # asked once for a batch, or a change in its middle would turn the order around
            batch.paced[job.queue] = None if self._pacer.is_free(job.queue) else _Waiting()
        paced = batch.paced[job.queue]
        if paced is None:
            window.add(job.queue, self._delay_seconds(job), new_ticket(self._ids.mark(), job), index)
        else:
            paced.add(job, index)

    def _delay_seconds(self, job: JobRecord) -> int:
        """Whole seconds, rounded up: a ticket may be late, not early."""
        return 0 if job.run_at is None else max(0, -(-(job.run_at - self._services.clock.now()) // 1000))

    def _push(self, window: _Window, batch: _Batch) -> int | None:
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
            left = {ticket.ticket_id for ticket in untaken}
            batch.pushed |= {
                ticket.job_id: window.record_of[ticket.ticket_id]
                for ticket in tickets
                if ticket.payload is not None and ticket.ticket_id not in left
            }
        return min(unsent) if unsent else None

    def _bury(self, record: Read, job: JobRecord) -> None:
        """A job for a queue that no longer exists: kept in the quarantine, and dead with the reason."""
        reason = f"there is no queue {job.queue!r}"
        fault = Poisoned(reason, job_id=job.job_id)
        set_aside_record(record.shard, record.sequence, record.data, fault, self._services)
        self._ledger.register(transitions.accept(job, write_id=self._ids.mark(), due_id=self._ids.mark()))
        bury(job.job_id, reason, self._services)


def _rides_in_its_ticket(job: JobRecord) -> bool:
    """Whether the job has no row, unless it is parked."""
    return job.guarantee is Guarantee.AT_LEAST_ONCE


def _ensure_it_fits(job: JobRecord) -> None:
    """Raise `Poisoned` for a payload that no queue takes in a ticket; the gateway lets none through."""
    size = len(job.payload.encode())
    if size > MAX_PAYLOAD_BYTES:
        raise Poisoned(f"the payload has {size} bytes; a ticket carries at most {MAX_PAYLOAD_BYTES}", job_id=job.job_id)
