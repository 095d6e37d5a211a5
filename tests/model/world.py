"""A state of the whole queue in small numbers, and which states count as the same."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, NamedTuple

from .rules import RUNNING, TERMINAL, Owner, Row, Rules

NOBODY = -1


class Ticket(NamedTuple):
    """A message in the queue. ``holder``: the worker that holds its current lease."""

    number: int
    deliveries: int = 0
    holder: int = NOBODY


class Job(NamedTuple):
    """One job: its row, its tickets, what it has done to the world, and what was promised about it."""

    row: Row | None
    version: int = 0
    """Raised by every write to the row."""
    tickets: tuple[Ticket, ...] = ()
    pushed: int = 0
    given_up: bool = False
    """Whether a ticket of it lies in the queue of last resort."""
    claims: int = 0
    marks: int = 0
    forgotten: bool = False
    """Whether the queue has lost its memory, and the repair has yet to come to this job."""
    committed: int = 0
    """How often the effect has happened that is staged for the commit."""
    written: int = 0
    """How often the effect has happened that is written while the job runs."""
    gate: int = 0
    """Where its client's request stands: `ASKS`, `REGISTERED`, `ANSWERED`."""
    accepted: bool = False
    cancelled: bool = False
    """Whether somebody was told that it will not run again."""
    not_yet: bool = False
    """Whether the queue was told that its time is still to come."""


ASKS, REGISTERED, ANSWERED = range(3)

IDLE, LEASED, AGAIN, SEEN, RUNS, HALF, ENDS_AGAIN, LETS_GO, ACKS, LATER = range(10)
"""What a worker is about to do."""


class Worker(NamedTuple):
    """A worker's thread: at most one job at a time."""

    stage: int = IDLE
    job: int = 0
    ticket: int = 0
    deliveries: int = 0
    more: Any = None
    """What it knows beside, by its stage: an `Owner`, or a `Pending`."""


class Pending(NamedTuple):
    """A write about to be made. ``applied``: the version it made already, its reply lost."""

    change: str
    row: Row | None = None
    version: int = 0
    counted: bool = True
    later: bool = False
    applied: int = 0
    owner: Owner | None = None


class Timers(NamedTuple):
    """A job with a mark, or, where that is 0, one that lies in the last resort: what was seen of its row."""

    job: int
    state: int
    due: int
    run_at: int
    first_done: bool = False
    """Whether the first of two steps is done."""


class World(NamedTuple):
    """Everything. ``log`` is what lies beyond the checkpoint: the job, and whether it had its row when it was appended."""

    jobs: tuple[Job, ...]
    log: tuple[tuple[int, bool], ...] = ()
    relay: tuple[int, int, int, bool] | None = None
    """How many records it has taken, which it is at, the first unsent so far, whether that one's row is there."""
    workers: tuple[Worker, ...] = ()
    timers: Timers | None = None
    operator: Any = None
    """A write of an operator's: what, of which job, the row seen and its version."""
    faults: int = 0
    cancels: int = 0
    redrives: int = 0


class Keys:
    """Which worlds are the same: workers and tickets are named by what they do, ids by what they equal, and of a write that
    can only be refused nothing counts but that. Jobs that are ``alike`` have no names either, once they are out of the log."""

    def __init__(self, rules: Rules, *, alike: bool = False) -> None:
        self._late_is_late = rules.late_owners_are_refused
        self._stale_is_stale = rules.stale_snapshots_are_refused
        self._alike = alike
        self._numbers: dict[Hashable, int] = {}
        self._known: dict[Hashable, int] = {}
        """What was said of a job: a step leaves the others as they were, and most have been so before."""

    def of(self, world: World) -> Hashable:
        at_work: list[list[tuple[int, Worker]]] = [[] for _ in world.jobs]
        for at, worker in enumerate(world.workers):
            if worker.stage != IDLE:
                at_work[worker.job].append((at, worker))
        jobs = []
        for job, workers in zip(world.jobs, at_work, strict=True):
            asked = (job, *workers)
            told = self._known.get(asked)
            if told is None:
                told = self._known[asked] = self._number(self._with_workers(job, workers))
            jobs.append(told)
        if world.timers is not None:
            number = world.timers.job
            jobs[number] = self._number((jobs[number], self._timers(world.timers, world.jobs[number])))
        if world.operator is not None:
            number = world.operator[1]
            jobs[number] = self._number((jobs[number], self._operator(world.operator, world.jobs[number])))
        if self._alike and not world.log and world.relay is None:
            jobs.sort()
        return (*jobs, world.log, world.relay, world.faults, world.cancels, world.redrives)

    def _number(self, told: Hashable) -> int:
        return self._numbers.setdefault(told, len(self._numbers))

    def _with_workers(self, job: Job, at_work: list[tuple[int, Worker]]) -> Hashable:
        """A job, and those who are at work on it, by no name and in no order."""
        labels, ranks, told = self._job(job, at_work)
        return (told, *sorted(self._number(self._worker(at, worker, job, labels, ranks)) for at, worker in at_work))

    def _job(
        self, job: Job, at_work: list[tuple[int, Worker]]
    ) -> tuple[dict[int, tuple[int, bool, int]], dict[int, list[int]], Hashable]:
        """How its tickets are called, which of their deliveries are compared, and the job itself."""
        row = job.row
        recorded = row.ticket if row is not None and row.state == RUNNING else 0
        ranks: dict[int, list[int]] = {}
        if row is not None and recorded:
            ranks[recorded] = [row.deliveries]
        busy: dict[int, list[tuple[int, int]]] = {}
        for at, worker in at_work:
            busy.setdefault(worker.ticket, []).append((at, worker.stage))
            if worker.stage <= SEEN:
                ranks.setdefault(worker.ticket, []).append(worker.deliveries)
        for known in ranks.values():
            if len(known) > 1:
                known[:] = sorted(set(known))
        named = sorted(
            [
                (
                    ticket.number == recorded,
                    ticket.holder != NOBODY,
                    sorted([(stage, at == ticket.holder) for at, stage in busy.get(ticket.number, ())]),
                    # A queue that failed over counts up to these again.
                    [max(0, known - ticket.deliveries) for known in ranks.get(ticket.number, ())],
                    ticket.number,
                    ticket.holder,
                )
                for ticket in job.tickets
            ]
        )
        label = {number: (place, is_recorded, holder) for place, (is_recorded, _, _, _, number, holder) in enumerate(named)}
        told_row = None
        if row is not None:
            ended = row.state in TERMINAL
            told_row = (
                row.state,
                row.token > 0 if self._late_is_late else row.token,
                0 if ended else row.attempts,
                0 if ended else row.hand_overs,
                row.cancel,
                row.run_at,
                row.due > 0,
                ranks[recorded].index(row.deliveries) if recorded else 0,
            )
        told = (
            told_row,
            tuple([(is_recorded, held, *ahead) for is_recorded, held, _, ahead, _, _ in named]),
            job.given_up,
            job.forgotten,
            job.committed,
            job.written,
            job.gate,
            job.accepted,
            job.cancelled,
            job.not_yet,
        )
        return label, ranks, told

    def _worker(
        self,
        at: int,
        worker: Worker,
        job: Job,
        labels: dict[int, tuple[int, bool, int]],
        ranks: dict[int, list[int]],
    ) -> tuple[Hashable, ...]:
        stage, row = worker.stage, job.row
        place, is_recorded, holder = labels.get(worker.ticket, (-1, row is not None and row.ticket == worker.ticket, 0))
        told: Hashable
        if stage == LEASED:
            told = None
        elif stage in (SEEN, AGAIN):
            told = self._pending(worker.more, job)
        elif stage in (RUNS, HALF, LETS_GO):
            told = self._owner(worker.more, job)
        elif stage == ENDS_AGAIN:
            pending = worker.more
            told = (self._owner(pending.owner, job), pending.applied == job.version)
            if pending.applied == job.version or told[0] != 0:
                told = (*told, pending.change, pending.later)
        else:
            told = worker.more
        rank = ranks[worker.ticket].index(worker.deliveries) if stage <= SEEN else 0
        return (stage, place, holder == at, is_recorded, rank, told)

    def _pending(self, pending: Pending, job: Job) -> Hashable:
        if pending.applied:
            return (pending.change, pending.counted, pending.applied == job.version)
        if pending.version == job.version:
            return (pending.change, pending.counted, True)
        return 0 if self._stale_is_stale else pending

    def _owner(self, owner: Owner, job: Job) -> Hashable:
        row = job.row
        if row is not None and row.state == RUNNING and (row.token, row.attempt) == (owner.token, owner.attempt):
            return (owner.attempts, owner.hand_overs, owner.counted, owner.cancel)
        return 0 if self._late_is_late else (owner, owner.attempt == job.claims)

    def _timers(self, timers: Timers, job: Job) -> Hashable:
        is_same = job.row is not None and job.row.due == timers.due
        return ("timers", timers.state, timers.due > 0, timers.run_at, timers.first_done, is_same)

    def _operator(self, operator: Any, job: Job) -> Hashable:
        what, _, row, version = operator
        if version == job.version:
            return (what, True)
        return (what, False) if self._stale_is_stale else (what, row)
