"""Tickets on their way into a queue: pushed now, pushed with a delay, or their jobs parked; and due marks cleared after it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Generic, TypeVar

from ringfence import transitions
from ringfence.change import Change, Refused, Written
from ringfence.errors import Unavailable
from ringfence.job import LINE_MARK, Guarantee, Job, Millis
from ringfence.pace import Pacer
from ringfence.ports import Group, Queue, Services
from ringfence.retry import Backoff, Pauses
from ringfence.wire import JobRecord, new_ticket

AT_ONCE = 16
"""Calls to the ledger at the same time: they are independent, and each only waits for its answer."""

WRITTEN_TOGETHER = 25
"""Rows in one of these calls."""

PARKED_TOGETHER = AT_ONCE * WRITTEN_TOGETHER
"""Jobs parked between two looks at the time."""

ALONE_AT_MOST = WRITTEN_TOGETHER
"""So many newcomers are parked on their rows, which takes one call. More of them stand in line as groups."""

GROUP_JOBS = 500
"""Jobs that stand in line as one. Each write costs a unit for every KB of them, and there is one for every turn in which some
leave: of more, the turns would cost too much; of fewer, a crowd would take too many calls to join."""

PARK_ROUNDS = 4
PARK_BACKOFF = Backoff(base_seconds=0.1, cap_seconds=1.0)

Waiting = TypeVar("Waiting", JobRecord, Job)
Result = TypeVar("Result")

Park = Callable[[Waiting, Millis, str], Change | Job]
"""Makes the change that parks a job, or the row of one that had none, from the job, its place or time, and its new due mark."""


@dataclass(frozen=True, slots=True)
class Sent(Generic[Waiting]):
    """What became of some jobs."""

    pushed: list[Waiting]
    first_unsent: int | None
    """The index of the first that is neither pushed nor parked. Of those behind it only ``pushed`` tells."""


class Sender:
    """Sends tickets at their queue's pace. A downstream that fails is told in the answer, not raised."""

    def __init__(self, services: Services, queues: Mapping[str, Queue], pacer: Pacer) -> None:
        self._services, self._queues, self._pacer = services, queues, pacer
        self._ledger, self._ids, self._telemetry = services.ledger, services.ids, services.telemetry

    # --- pushing -----------------------------------------------------------------------------------------------------

    def send(self, queue: str, jobs: Sequence[Waiting], park: Park[Waiting], has_time: Callable[[], bool]) -> Sent[Waiting]:
        """Push as many newcomers as the queue's pace lets through and park the rest behind them, in order.

        Nothing is sent after a failure: when what failed is sent again, it must not find itself overtaken.
        """
        try:
            waits = self._pacer.admit(queue, len(jobs))
        except Unavailable as fault:
            self._tell_failed(queue, len(jobs), fault)
            return Sent([], 0)
        sent = self.push(queue, jobs[: len(waits)], waits)
        if sent.first_unsent is not None or len(waits) == len(jobs):
            return sent
        parked = self._park_in_line(queue, jobs[len(waits) :], park, has_time)
        return Sent(sent.pushed, len(waits) + parked if len(waits) + parked < len(jobs) else None)

    def push(self, queue: str, jobs: Sequence[Waiting], waits: Sequence[Millis]) -> Sent[Waiting]:
        """Push tickets, each with its own delay: never early."""
        if not jobs:
            return Sent([], None)
        tickets = [new_ticket(self._ids.mark(), job) for job in jobs]
        reason = None
        try:
            untaken = {ticket.ticket_id for ticket in self._queues[queue].push(tickets, _delay_seconds(waits))}
        except Unavailable as fault:
            untaken, reason = {ticket.ticket_id for ticket in tickets}, str(fault)
        pushed = [job for job, ticket in zip(jobs, tickets, strict=True) if ticket.ticket_id not in untaken]
        self._pacer.pushed(queue, len(pushed), waits[-1])
        self._telemetry.event("tickets_pushed", queue=queue, count=len(pushed))
        if not untaken:
            return Sent(pushed, None)
        self._telemetry.event("push_failed", queue=queue, count=len(untaken), reason=reason)
        return Sent(pushed, next(index for index, ticket in enumerate(tickets) if ticket.ticket_id in untaken))

    def release(self, queue: str, jobs: Sequence[Job], waits: Sequence[Millis]) -> Sent[Job]:
        """Push the tickets of marked jobs, then clear the marks: in this order, for a second ticket is harmless and a lost one
        is not. A mark that cannot be cleared counts as unsent, though its ticket is pushed."""
        sent = self.push(queue, jobs, waits)
        return sent if self.clear(sent.pushed) else Sent(sent.pushed, sent.first_unsent or 0)

    def clear(self, jobs: Sequence[Job]) -> bool:
        """Clear the due marks of jobs whose tickets are pushed. False if one had to stay: the next run pushes another."""
        return all(in_parallel(self._clear, jobs))

    def _clear(self, job: Job) -> bool:
        try:
            outcome = self._ledger.write(transitions.clear_mark(job, write_id=self._ids.mark()))
        except Unavailable as fault:
            self._telemetry.event("mark_kept", job_id=job.job_id, queue=job.queue, reason=str(fault))
            return False
        # Refused: claimed meanwhile, or marked anew; the next run looks again.
        name = "mark_moved" if isinstance(outcome, Refused) else "mark_released"
        self._telemetry.event(name, job_id=job.job_id, queue=job.queue)
        return True

    # --- parking -----------------------------------------------------------------------------------------------------

    def park_until_due(self, queue: str, jobs: Sequence[Waiting], park: Park[Waiting], has_time: Callable[[], bool]) -> int:
        """Let jobs wait on their rows for their own time. Returns how many, from the first, are decided."""
        return self._park(queue, jobs, [(job.run_at or 0, self._ids.mark()) for job in jobs], park, has_time)

    def _park_in_line(self, queue: str, jobs: Sequence[Waiting], park: Park[Waiting], has_time: Callable[[], bool]) -> int:
        try:
            places = self._pacer.join_line(queue, len(jobs))
        except Unavailable as fault:
            self._tell_failed(queue, len(jobs), fault)
            return 0
        if _may_stand_together(jobs):
            return self._join_as_groups(queue, [job.job_id for job in jobs], places, has_time)
        return self._park(queue, jobs, [(place, LINE_MARK + self._ids.mark()) for place in places], park, has_time)

    def _join_as_groups(
        self, queue: str, job_ids: Sequence[str], places: Sequence[Millis], has_time: Callable[[], bool]
    ) -> int:
        """Let many jobs stand in line without a write to each one's row, for which the shard would have to wait. Returns how
        many, from the first, stand there."""
        starts = range(0, len(job_ids), GROUP_JOBS)
        groups = [Group(queue, places[start], job_ids[start : start + GROUP_JOBS]) for start in starts]
        for start in range(0, len(groups), AT_ONCE):
            if not has_time():
                return start * GROUP_JOBS
            together = groups[start : start + AT_ONCE]
            left = self._join_line(queue, together)
            self._tell_parked(queue, sum(len(group.job_ids) for group in together if group not in left))
            if left:
                return groups.index(left[0]) * GROUP_JOBS
        return len(job_ids)

    def _join_line(self, queue: str, groups: Sequence[Group]) -> Sequence[Group]:
        """Those that could not be written, though it was tried again."""
        left = groups
        pauses = Pauses(PARK_BACKOFF, self._services.clock, self._services.random_source, tries=PARK_ROUNDS)
        while left := [group for group, joined in zip(left, in_parallel(self._join, left), strict=True) if not joined]:
            self._telemetry.event("park_failed", queue=queue, count=sum(len(group.job_ids) for group in left))
            if not pauses.another_try():
                break
        return left

    def _join(self, group: Group) -> bool:
        try:
            self._ledger.join_line(group)
        except Unavailable:
            return False
        return True

    def _park(
        self,
        queue: str,
        jobs: Sequence[Waiting],
        marks: Sequence[tuple[Millis, str]],
        park: Park[Waiting],
        has_time: Callable[[], bool],
    ) -> int:
        """Park jobs with these new due marks. Returns how many, from the first, are decided: parked, or on another way already
        and so as good as sent."""
        for start in range(0, len(jobs), PARKED_TOGETHER):
            if not has_time():
                return start
            together = slice(start, start + PARKED_TOGETHER)
            writes = [park(job, *mark) for job, mark in zip(jobs[together], marks[together], strict=True)]
            outcomes = self._write_many(queue, writes)
            decided = [self._is_parked(queue, job, outcome) for job, outcome in zip(jobs[together], outcomes, strict=True)]
            self._tell_parked(queue, sum(isinstance(outcome, Written) for outcome in outcomes))
            if not all(decided):
                return start + decided.index(False)
        return len(jobs)

    def _write_many(self, queue: str, writes: Sequence[Change | Job]) -> list[Written | Refused | None]:
        """Some writes at a time, and again what could not be decided: a throttle must not turn the order around."""
        outcomes: list[Written | Refused | None] = [None] * len(writes)
        pauses = Pauses(PARK_BACKOFF, self._services.clock, self._services.random_source, tries=PARK_ROUNDS)
        while True:
            left = [index for index, outcome in enumerate(outcomes) if outcome is None]
            slices = [left[start : start + WRITTEN_TOGETHER] for start in range(0, len(left), WRITTEN_TOGETHER)]
            written = in_parallel(lambda indices: self._ledger.write_many([writes[index] for index in indices]), slices)
            for indices, answers in zip(slices, written, strict=True):
                for index, answer in zip(indices, answers, strict=True):
                    outcomes[index] = answer
            if None not in outcomes:
                return outcomes
            self._telemetry.event("park_failed", queue=queue, count=outcomes.count(None))
            if not pauses.another_try():
                return outcomes

    def _is_parked(self, queue: str, job: Waiting, outcome: Written | Refused | None) -> bool:
        if outcome == Refused(None):
            # A row that is gone: there is nothing to wait on. Whoever gets the ticket finds that out and sets it aside.
            return self.push(queue, [job], [0]).first_unsent is None
        return outcome is not None

    def _tell_parked(self, queue: str, count: int) -> None:
        if count:
            self._telemetry.event("jobs_parked", queue=queue, count=count)

    def _tell_failed(self, queue: str, count: int, fault: Unavailable) -> None:
        self._telemetry.event("push_failed", queue=queue, count=count, reason=str(fault))


def _may_stand_together(jobs: Sequence[JobRecord] | Sequence[Job]) -> bool:
    """Whether these are many newcomers who have rows, with nothing marked on them."""
    return len(jobs) > ALONE_AT_MOST and all(isinstance(job, JobRecord) and job.guarantee is Guarantee.ONCE for job in jobs)


def _delay_seconds(waits: Sequence[Millis]) -> float | list[float]:
    """One delay where all are the same: engines have a shorter way for that."""
    return waits[0] / 1_000 if waits[0] == waits[-1] == max(waits) else [wait / 1_000 for wait in waits]


def in_parallel(function: Callable[..., Result], items: Iterable[object]) -> list[Result]:
    """The results in the order of the items, `AT_ONCE` of them made at a time."""
    waiting = list(items)
    if len(waiting) < 2:
        return [function(item) for item in waiting]
    with ThreadPoolExecutor(min(AT_ONCE, len(waiting))) as pool:
        return list(pool.map(function, waiting))
