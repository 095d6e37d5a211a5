"""A new ticket for a job that may have lost its own: who may lack one, since when, and how it is given."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from ringfence import transitions
from ringfence.change import Change
from ringfence.job import Job, Millis
from ringfence.line import waits_in_group
from ringfence.pace import Pacer
from ringfence.ports import Queue, Services
from ringfence.sender import Sender

GROUPS_AT_MOST = 100_000
"""Of one queue: ten million parked jobs."""

GROUPS_SECONDS = 5.0
"""How long is believed who stands in them. Who has left since then has got a ticket since then; who has joined since then may
get a second one."""

LOOKS = 5
"""How often a job is looked at again that changed while it was to be parked."""


def lacks_ticket(job: Job) -> bool:
    """Whether only a ticket can bring this job on. Whether it has one is not known."""
    return not job.state.terminal and job.due_id is None


def last_change(job: Job) -> Millis:
    """The latest time that the row knows of: until then, something else than a lost ticket explains that nothing happened."""
    ended = job.history[-1].ended_at if job.history else 0
    return max(job.created_at, job.started_at or 0, job.lease_until or 0, job.run_at or 0, ended)


def renewals_due(waited: Millis, after: Millis) -> int:
    """How many tickets, beside its own, a job is due that has waited so long: one after ``after``, and one more with each
    doubling. So a queue that nobody serves does not fill up with duplicates."""
    return (waited // after).bit_length() if waited > 0 else 0


class Renewer:
    """Gives jobs a new ticket, at the pace of their queue."""

    def __init__(self, services: Services, queues: Mapping[str, Queue], pacer: Pacer) -> None:
        self._services, self._pacer = services, pacer
        self._sender = Sender(services, queues, pacer)
        self._in_groups: dict[str, tuple[float, frozenset[str]]] = {}

    def lacking(self, queue: str, jobs: Sequence[Job]) -> list[Job]:
        """Those of unmarked jobs that may lack a ticket: not who stands in line in a group, though no mark on the row says so.
        Raises `Unavailable`.

        They may have been looked at up to `GROUPS_SECONDS` ago, though not before the latest `look_anew`: whoever left before a
        memory was lost may have lost what he got."""
        in_groups = self._standing_in_groups(queue)
        return [job for job in jobs if job.job_id not in in_groups or not waits_in_group(job)]

    def look_anew(self) -> None:
        """What is known of groups may be older than what is to be mended from now on."""
        self._in_groups.clear()

    def renew(self, queue: str, jobs: Sequence[Job], has_time: Callable[[], bool]) -> bool:
        """Push a ticket for each job, or let it wait on its row for its time or its turn in line. False if the queue did not
        take all of them, or the time was up. Raises `Unavailable` for the ledger."""
        in_order = sorted(jobs, key=lambda job: job.created_at)
        if self._pacer.is_free(queue):
            now = self._services.clock.now()
            waits = [max(0, (job.run_at or 0) - now) for job in in_order]
            renewed = self._sender.push(queue, in_order, waits).first_unsent is None
        else:
            renewed = self._renew_paced(queue, in_order, has_time)
        if renewed:
            self._services.telemetry.event("tickets_renewed", queue=queue, count=len(jobs))
        return renewed

    def _renew_paced(self, queue: str, jobs: Sequence[Job], has_time: Callable[[], bool]) -> bool:
        left = jobs
        for _ in range(LOOKS):
            now = self._services.clock.now()
            later = [job for job in left if job.run_at is not None and job.run_at > now]
            due = [job for job in left if job.run_at is None or job.run_at <= now]
            sent = self._sender.send(queue, due, self._mark, has_time)
            if sent.first_unsent is not None:
                return False
            if self._sender.park_until_due(queue, later, self._mark, has_time) < len(later):
                return False
            pushed = {job.job_id for job in sent.pushed}
            parked = [job.job_id for job in left if job.job_id not in pushed]
            # One that changed meanwhile (a heartbeat, a retry) was not parked.
            left = [job for job in self._services.ledger.peek(parked) if lacks_ticket(job)]
            if not left:
                return True
        return False

    def _standing_in_groups(self, queue: str) -> frozenset[str]:
        now = self._services.clock.monotonic()
        read_at, known = self._in_groups.get(queue, (float("-inf"), frozenset()))
        if now < read_at + GROUPS_SECONDS:
            return known
        groups = self._services.ledger.groups(queue, GROUPS_AT_MOST)
        standing = frozenset(job_id for group in groups for job_id, _ in group.waiting)
        self._in_groups[queue] = now, standing
        return standing

    def _mark(self, job: Job, run_at: Millis, due_id: str) -> Change:
        return transitions.mark_again(job, write_id=self._services.ids.mark(), run_at=run_at, due_id=due_id)
