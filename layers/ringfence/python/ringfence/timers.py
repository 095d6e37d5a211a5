"""Everything later: rows whose due mark has come get a ticket, and what SQS gave up on, or a queue has lost, gets another.

Safe to run twice and at once: a second ticket is harmless, a lost one is not, so the push comes first and the mark is cleared
after it, only if it is still the same mark.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial

from ringfence import transitions
from ringfence.change import Change
from ringfence.errors import Poisoned, Unavailable
from ringfence.job import Job, Millis
from ringfence.line import Lines
from ringfence.pace import Pacer
from ringfence.poison import bury, set_aside_message
from ringfence.ports import DUE_SHARDS, Depth, Lease, MarkedQueue, Queue, Services, SettingsStore
from ringfence.queue_settings import QueueState
from ringfence.reconcile import Reconciler
from ringfence.sender import Sender, in_parallel
from ringfence.wire import decode_ticket

PAGE_MARKS = 100
"""Due marks taken up together."""

LOOK_AHEAD_SECONDS = 75
"""Tickets of what falls due before the next run are pushed now, with the rest as delay: a job is not late by up to a minute."""

HELD_BACK_TOGETHER = 2_000
"""Due jobs of queues with a pace that are gathered before they are sent in the order in which they fell due."""

STOP_SECONDS = 10.0
"""So long before the end of an invocation no further page is begun; the next run goes on."""

LINGER_SECONDS = 1.0
"""Between two looks at a line that may move at any moment."""

LAST_RESORT_LEASE_SECONDS = 60.0


class Timers:
    """One run a minute (each second in ``ringfence dev``)."""

    def __init__(
        self,
        services: Services,
        queues: Mapping[str, Queue],
        last_resort: Queue | None,
        settings: SettingsStore,
        pacer: Pacer,
        reconciler: Reconciler,
    ) -> None:
        self._services, self._queues, self._last_resort = services, queues, last_resort
        self._ledger, self._ids, self._telemetry = services.ledger, services.ids, services.telemetry
        self._settings, self._pacer, self._reconciler = settings, pacer, reconciler
        self._sender = Sender(services, queues, pacer)
        self._marked = [queue for queue in queues.values() if isinstance(queue, MarkedQueue)]
        self._unavailable: Unavailable | None = None
        self._depths_told_in = -1
        """The minute of it: ``ringfence dev`` runs the timers each second."""

    def run(self, remaining_seconds: Callable[[], float] = lambda: float("inf"), *, linger: bool = False) -> dict[str, int]:
        """Release what is due, then the lines of parked jobs; drain the last resort; renew lost tickets. Returns how many of
        each.

        ``remaining_seconds`` says how long this invocation may still take. With ``linger`` it takes that long while a line
        waits for nothing but room in its queue, or a queue is repaired: once a minute would be too seldom.

        Raises `Unavailable` at the end, after everything else has had its turn, if some part of it met one.
        """
        self._unavailable = None

        def has_time() -> bool:
            return remaining_seconds() > STOP_SECONDS

        self._part("marks", self._reconciler.notice)
        self._tell_depths()
        drained = self._part("last resort", lambda: self._drain_last_resort(has_time))
        renewed = self._part("round", lambda: self._reconciler.go_round(has_time))
        lines = Lines(self._services, self._queues, self._pacer)
        released = 0
        while True:
            states = self._states()
            released += self._release_due(has_time)
            served = lines.serve(states, has_time)
            released += served.released
            renewed += self._part("repair", lambda: self._reconciler.repair(has_time))
            repairing = self._reconciler.may_go_on
            if not (linger and (served.look_again or repairing) and has_time()):
                break
            if not repairing:
                self._services.clock.sleep(LINGER_SECONDS)
        if self._unavailable is not None:
            raise self._unavailable
        return {"released": released, "drained": drained, "renewed": renewed}

    def _states(self) -> Mapping[str, QueueState]:
        """How all queues stand; nothing, and everybody goes on with what was known, while that cannot be read."""
        try:
            states = self._settings.all()
        except Unavailable as fault:
            self._telemetry.event("timers_held", part="settings", reason=str(fault))
            self._unavailable = fault
            return {}
        for queue in self._queues:
            self._pacer.learn(queue, states.get(queue, QueueState()))
        return states

    def _part(self, name: str, work: Callable[[], int]) -> int:
        """What ``work`` counts. A partition or queue out of reach does not stop the parts that come after it."""
        try:
            return work()
        except Unavailable as fault:
            self._telemetry.event("timers_held", part=name, reason=str(fault))
            self._unavailable = fault
            return 0

    def _tell_depths(self) -> None:
        """Once a minute, how the queues stand of which CloudWatch knows nothing."""
        minute = self._services.clock.now() // 60_000
        if minute == self._depths_told_in:
            return
        self._depths_told_in = minute
        for queue, depth in zip(self._marked, in_parallel(_depth_of, self._marked), strict=True):
            if depth is not None:
                self._telemetry.event("queue_depth", queue=queue.name, **dataclasses.asdict(depth))

    # --- what is due -------------------------------------------------------------------------------------------------

    def _release_due(self, has_time: Callable[[], bool]) -> int:
        released = 0
        held_back: dict[str, list[Job]] = {}
        for shard in range(DUE_SHARDS):
            released += self._part(f"shard {shard}", partial(self._release_shard, shard, held_back, has_time))
        return released + self._part("paced", lambda: self._send_paced(held_back, has_time))

    def _release_shard(self, shard: int, held_back: dict[str, list[Job]], has_time: Callable[[], bool]) -> int:
        """Release the due jobs of queues without a pace; add the others to ``held_back``, and send those once they are many."""
        released = 0
        for page in self._due_pages(shard, has_time):
            for queue, jobs in page.items():
                if queue not in self._queues:
                    self._bury(queue, jobs)
                elif self._pacer.is_free(queue):
                    released += self._release_free(queue, jobs)
                else:
                    held_back.setdefault(queue, []).extend(jobs)
            if sum(map(len, held_back.values())) >= HELD_BACK_TOGETHER:
                gathered = dict(held_back)
                held_back.clear()
                released += self._send_paced(gathered, has_time)
        return released

    def _due_pages(self, shard: int, has_time: Callable[[], bool]) -> Iterator[dict[str, list[Job]]]:
        """The jobs of a shard that are due before the next run, by queue, page after page: what cannot be released does not
        stand in the way of the rest."""
        until = self._services.clock.now() + LOOK_AHEAD_SECONDS * 1_000
        after = None
        while has_time():
            marks = self._ledger.due(shard, until, PAGE_MARKS, after)
            by_queue: dict[str, list[Job]] = {}
            for job in sorted(self._ledger.peek([mark.job_id for mark in marks]), key=_turn):
                # Else the index was a little stale.
                if job.due_id is not None and not job.in_line and job.run_at is not None and job.run_at <= until:
                    by_queue.setdefault(job.queue, []).append(job)
            yield by_queue
            if len(marks) < PAGE_MARKS:
                return
            after = marks[-1]

    def _release_free(self, queue: str, jobs: Sequence[Job]) -> int:
        now = self._services.clock.now()
        waits = [max(0, (job.run_at or 0) - now) for job in jobs]
        return len(self._sender.release(queue, jobs, waits).pushed)

    def _send_paced(self, held_back: Mapping[str, list[Job]], has_time: Callable[[], bool]) -> int:
        """Jobs that fall due are newcomers to their queue's pace. No release is reserved for what is not due yet: until then
        it would be in the way of those that are."""
        released = 0
        now = self._services.clock.now()
        for queue, jobs in held_back.items():
            due = sorted((job for job in jobs if job.run_at is not None and job.run_at <= now), key=_turn)
            sent = self._sender.send(queue, due, self._join_line, has_time)
            self._sender.clear(sent.pushed)
            released += len(sent.pushed)
        return released

    def _join_line(self, job: Job, place: Millis, due_id: str) -> Change:
        return transitions.join_line(job, write_id=self._ids.mark(), place=place, due_id=due_id)

    def _bury(self, queue: str, jobs: Sequence[Job]) -> None:
        for job in jobs:
            bury(job.job_id, f"there is no queue {queue!r}", self._services)

    # --- what SQS gave up on -----------------------------------------------------------------------------------------

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
        if job is None and ticket.payload is not None:
            # It is all there is of its job, and does not say which queue it was in.
            set_aside_message(lease, Poisoned("SQS gave up on a job that has no row", job_id=ticket.job_id), self._services)
            return True
        if job is None or job.state.terminal:
            return True
        if job.queue not in self._queues:
            bury(job.job_id, f"there is no queue {job.queue!r}", self._services)
            return True
        if self._sender.push(job.queue, [job], [0]).first_unsent is not None:
            return False
        self._telemetry.event("last_resort_drained", job_id=job.job_id, queue=job.queue)
        return True


def _depth_of(queue: Queue) -> Depth | None:
    try:
        return queue.depth()
    except Unavailable:
        return None  # the queue has told why


def _turn(job: Job) -> tuple[Millis, Millis]:
    return job.run_at or 0, job.created_at
