"""Everything later: rows whose due mark has come get a ticket, and what SQS gave up on gets another.

Safe to run twice and at once: a second ticket is harmless, a lost one is not, so the push comes first and the mark is cleared
after it, only if it is still the same mark.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from ringfence import transitions
from ringfence.change import Refused
from ringfence.errors import Poisoned, Unavailable
from ringfence.job import Job
from ringfence.poison import bury, set_aside_message
from ringfence.ports import DUE_SHARDS, Lease, Queue, Services
from ringfence.wire import decode_ticket, new_ticket

PAGE_MARKS = 100
"""Due marks taken up together."""

CLEARED_AT_ONCE = 8

STOP_SECONDS = 10.0
"""So long before the end of an invocation no further page is begun; the next run goes on."""

LAST_RESORT_LEASE_SECONDS = 60.0


class Timers:
    """One run a minute (each second in ``ringfence dev``)."""

    def __init__(self, services: Services, queues: Mapping[str, Queue], last_resort: Queue | None) -> None:
        self._services, self._queues, self._last_resort = services, queues, last_resort
        self._ledger, self._ids, self._telemetry = services.ledger, services.ids, services.telemetry

    def run(self, remaining_seconds: Callable[[], float] = lambda: float("inf")) -> dict[str, int]:
        """Release what is due and drain the last resort. Returns how many of each.

        ``remaining_seconds`` says how long this invocation may still take.
        """

        def has_time() -> bool:
            return remaining_seconds() > STOP_SECONDS

        drained = self._drain_last_resort(has_time)
        released = 0
        with ThreadPoolExecutor(CLEARED_AT_ONCE) as pool:
            for shard in range(DUE_SHARDS):
                for page in self._due_pages(shard, has_time):
                    released += sum(self._release(queue, jobs, pool) for queue, jobs in page.items())
        return {"released": released, "drained": drained}

    def _due_pages(self, shard: int, has_time: Callable[[], bool]) -> Iterator[dict[str, list[Job]]]:
        """The due jobs of a shard by queue, page after page: what cannot be released does not stand in the way of the rest."""
        now = self._services.clock.now()
        after = None
        while has_time():
            marks = self._ledger.due(shard, now, PAGE_MARKS, after)
            by_queue: dict[str, list[Job]] = {}
            for job in sorted(self._ledger.peek([mark.job_id for mark in marks]), key=lambda job: (job.run_at, job.created_at)):
                if job.due_id is not None and job.run_at is not None and job.run_at <= now:  # else the index was a little stale
                    by_queue.setdefault(job.queue, []).append(job)
            yield by_queue
            if len(marks) < PAGE_MARKS:
                return
            after = marks[-1]

    def _release(self, queue: str, jobs: Sequence[Job], pool: ThreadPoolExecutor) -> int:
        if queue not in self._queues:
            for job in jobs:
                bury(job.job_id, f"there is no queue {queue!r}", self._services)
            return 0
        pushed = self._push(queue, jobs)
        list(pool.map(self._clear, pushed))
        return len(pushed)

    def _clear(self, job: Job) -> None:
        try:
            outcome = self._ledger.write(transitions.clear_mark(job, write_id=self._ids.mark()))
        except Unavailable as fault:  # the mark stays, and the next run pushes a second ticket
            self._telemetry.event("mark_kept", job_id=job.job_id, queue=job.queue, reason=str(fault))
            return
        # Refused: claimed meanwhile, or marked anew; the next run looks again.
        name = "mark_moved" if isinstance(outcome, Refused) else "mark_released"
        self._telemetry.event(name, job_id=job.job_id, queue=job.queue)

    def _push(self, queue: str, jobs: Sequence[Job]) -> list[Job]:
        tickets = [new_ticket(self._ids.mark(), job) for job in jobs]
        try:
            untaken = {ticket.ticket_id for ticket in self._queues[queue].push(tickets)}
        except Unavailable:
            untaken = {ticket.ticket_id for ticket in tickets}
        if untaken:
            self._telemetry.event("push_failed", queue=queue, count=len(untaken))
        return [job for job, ticket in zip(jobs, tickets, strict=True) if ticket.ticket_id not in untaken]

    def _drain_last_resort(self, has_time: Callable[[], bool]) -> int:
        drained = 0
        while self._last_resort is not None and has_time():
            leases = self._last_resort.lease(10, LAST_RESORT_LEASE_SECONDS)
            if not leases:
                break
            done = [lease for lease in leases if self._revive(lease)]
            self._last_resort.acknowledge(done)
            drained += len(done)
        return drained

    def _revive(self, lease: Lease) -> bool:
        """Give an unfinished job a new ticket. True when this message may go."""
        try:
            ticket = decode_ticket(lease.body)
        except Poisoned as fault:
            set_aside_message(lease, fault, self._services)
            return True
        job = next(iter(self._ledger.peek([ticket.job_id])), None)
        if job is None or job.state.terminal:
            return True
        if job.queue not in self._queues:
            bury(job.job_id, f"there is no queue {job.queue!r}", self._services)
            return True
        if not self._push(job.queue, [job]):
            return False
        self._telemetry.event("last_resort_drained", job_id=job.job_id, queue=job.queue)
        return True
