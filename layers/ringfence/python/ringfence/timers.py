"""Everything later: rows whose due mark has come get a ticket, and what SQS gave up on gets another.

Safe to run twice and at once: a second ticket is harmless, a lost one is not, so the push comes first and the mark is cleared
after it, only if it is still the same mark.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ringfence import transitions
from ringfence.change import Refused
from ringfence.errors import Poisoned, Unavailable
from ringfence.job import Job
from ringfence.poison import set_aside_message
from ringfence.ports import DUE_SHARDS, Lease, Queue, Services
from ringfence.wire import decode_ticket, new_ticket

DUE_PER_SHARD = 200
"""Rows looked at in one shard and run: bounded work, the rest waits for the next run."""

LAST_RESORT_BATCHES = 20
LAST_RESORT_LEASE_SECONDS = 60.0


class Timers:
    """One run a minute (each second in ``ringfence dev``)."""

    def __init__(self, services: Services, queues: Mapping[str, Queue], last_resort: Queue | None) -> None:
        self._services, self._queues, self._last_resort = services, queues, last_resort
        self._ledger, self._ids, self._telemetry = services.ledger, services.ids, services.telemetry

    def run(self) -> dict[str, int]:
        """Release what is due and drain the last resort. Returns how many of each."""
        released = sum(self._release_due(shard) for shard in range(DUE_SHARDS))
        return {"released": released, "drained": self._drain_last_resort()}

    def _release_due(self, shard: int) -> int:
        now = self._services.clock.now()
        by_queue: dict[str, list[Job]] = {}
        for job_id in self._ledger.due(shard, now, DUE_PER_SHARD):
            job = self._ledger.get(job_id)
            if job is None or job.due_id is None or job.run_at is None or job.run_at > now:
                continue  # the index was a little stale
            by_queue.setdefault(job.queue, []).append(job)
        return sum(self._release(queue, jobs) for queue, jobs in by_queue.items())

    def _release(self, queue: str, jobs: Sequence[Job]) -> int:
        if queue not in self._queues:
            self._telemetry.event("release_failed", queue=queue, count=len(jobs), reason="there is no such queue")
            return 0
        pushed = self._push(queue, jobs)
        for job in pushed:
            outcome = self._ledger.write(transitions.clear_mark(job, write_id=self._ids.mark()))
            if isinstance(outcome, Refused):
                # Claimed meanwhile, or marked anew: the next run looks again.
                self._telemetry.event("mark_moved", job_id=job.job_id, queue=queue)
            else:
                self._telemetry.event("mark_released", job_id=job.job_id, queue=queue)
        return len(pushed)

    def _push(self, queue: str, jobs: Sequence[Job]) -> list[Job]:
        tickets = [new_ticket(self._ids.mark(), job) for job in jobs]
        try:
            untaken = {ticket.ticket_id for ticket in self._queues[queue].push(tickets)}
        except Unavailable:
            untaken = {ticket.ticket_id for ticket in tickets}
        if untaken:
            self._telemetry.event("push_failed", queue=queue, count=len(untaken))
        return [job for job, ticket in zip(jobs, tickets, strict=True) if ticket.ticket_id not in untaken]

    def _drain_last_resort(self) -> int:
        if self._last_resort is None:
            return 0
        drained = 0
        for _ in range(LAST_RESORT_BATCHES):
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
        job = self._ledger.get(ticket.job_id)
        if job is None or job.state.terminal:
            return True
        if job.queue not in self._queues or not self._push(job.queue, [job]):
            return False
        self._telemetry.event("last_resort_drained", job_id=job.job_id, queue=job.queue)
        return True
