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
    can only be refused nothing counts but that."""

    def __init__(self, rules: Rules) -> None:
        self._late_is_late = rules.late_owners_are_refused
        self._stale_is_stale = rules.stale_snapshots_are_refused
        self._small: dict[Hashable, int] = {}

    def of(self, world: World) -> Hashable:
        small = self._small
        jobs, labels, ranks = [], [], []
        for number, job in enumerate(world.jobs):
            label, rank, told = self._job(number, job, world.workers)
            jobs.append(small.setdefault(told, len(small)))
            labels.append(label)
            ranks.append(rank)
        workers = sorted(
            small.setdefault(told, len(small))
            for told in [self._worker(at, worker, world.jobs, labels, ranks) for at, worker in enumerate(world.workers)]
        )
        return (
            *jobs,
            *workers,
            world.log,
            world.relay,
            self._timers(world),
            self._operator(world),
            world.faults,
            world.cancels,
            world.redrives,
        )

    def _job(
        self, number: int, job: Job, workers: tuple[Worker, ...]
    ) -> tuple[dict[int, tuple[int, bool, int]], dict[int, list[int]], Hashable]:
        """How its tickets are called, which of their deliveries are compared, and the job itself."""
        row = job.row
        recorded = row.ticket if row is not None and row.state == RUNNING else 0
        ranks: dict[int, list[int]] = {}
        if row is not None and recorded:
            ranks[recorded] = [row.deliveries]
        busy: dict[int, list[tuple[int, int]]] = {}
        for at, worker in enumerate(workers):
            if worker.stage != IDLE and worker.job == number:
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
        jobs: tuple[Job, ...],
        labels: list[dict[int, tuple[int, bool, int]]],
        ranks: list[dict[int, list[int]]],
    ) -> Hashable:
        stage = worker.stage
        if stage == IDLE:
            return IDLE
        job = jobs[worker.job]
        row = job.row
        place, is_recorded, holder = labels[worker.job].get(
            worker.ticket, (-1, row is not None and row.ticket == worker.ticket, 0)
        )
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
        rank = ranks[worker.job][worker.ticket].index(worker.deliveries) if stage <= SEEN else 0
        return (stage, worker.job, place, holder == at, is_recorded, rank, told)

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

    def _timers(self, world: World) -> Hashable:
        if world.timers is None:
            return None
        row = world.jobs[world.timers.job].row
        is_same = row is not None and row.due == world.timers.due
        return (*world.timers._replace(due=world.timers.due > 0), is_same)

    def _operator(self, world: World) -> Hashable:
        if world.operator is None:
            return None
        what, number, row, version = world.operator
        if version == world.jobs[number].version:
            return (what, number, True)
        return (what, number, False) if self._stale_is_stale else (what, number, row)
