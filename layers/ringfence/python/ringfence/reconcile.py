"""Unfinished jobs without a ticket get a new one: those of a queue that lost its memory soon, all others in a rare round.

A row that is unfinished and has no due mark should have a ticket. Whether it has, nobody can ask: a queue does not tell what is
in it. So a new one is pushed for every job that may lack it. A second ticket is harmless, for the ledger decides who may run;
but it takes room in the queue, so the queue's pace and high-water mark hold for renewed tickets as well.

*A round* goes through all rows every day or so and renews what has not changed for longer than a lease, a delay in a queue or
the log can explain; again when a job has waited twice as long, four times, and so on: a queue that nobody serves must not fill
up with duplicates. *A repair* follows at once when the mark of a queue's memory is another one than last time: then the age of
a row says nothing, and every unfinished job of that queue gets a ticket.

Both survive the end of a run: after each page the place is noted in the ledger. A page that is done twice, by two runs at once
or because one died before it had noted it, costs second tickets and nothing else.

A row whose client never got its 202 (the gateway died between register and append) is renewed like any other, and so may run.
It looks like a job whose ticket was lost, and to lose one that was promised is worse than to run one that was asked for and not
promised: a client without an answer has to reckon with that anyway, for its 202 may be what was lost.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from ringfence.errors import Unavailable
from ringfence.job import Job
from ringfence.pace import Pacer
from ringfence.patience import PATIENCE_SECONDS, patiently
from ringfence.poison import bury
from ringfence.ports import MarkedQueue, Queue, Services, SweepStore, Unmarked
from ringfence.renewal import Renewer, last_change, renewals_due
from ringfence.sender import in_parallel
from ringfence.sweep import ALL_LOST, Notes, Sweep, begun

PAGE_ROWS = 500
"""Rows of each segment that are looked at together: the tickets of all of them are pushed within seconds, on SQS too."""

SLICE_SECONDS = 5.0
"""So long a run stays with a round, which is in no hurry, or with repairs, before other things have their turn."""

EVERY_HOURS = 24.0
"""How often a round begins. It reads all there is, finished jobs too: each costs a quarter of a read unit per KB and day."""

AFTER_HOURS = 25.0
"""How long a job must not have changed before a round renews its ticket, counted from the end of its lease or delay. A delay in
a queue explains 900 seconds; a message that died with its worker before that had looked at it, the visibility timeout of 900
seconds; but a job that nobody has claimed may still be in the log, which keeps it for a day (where it keeps it longer,
template.yaml makes this longer). Only the wait in a long queue knows no bound: see `renewals_due`."""

FIRST_PATIENCE_SECONDS = 3.0
"""How long somebody who reconciles by hand waits for a ledger that has not answered yet, beyond the time of one call: it is a
wrong address more often than a throttle."""

LOOKS = 5
"""How often the notes are looked at again that somebody else has changed."""

UNKNOWN_QUEUE = "there is no such queue here"
TAKES_NONE = "it takes no tickets"

HasTime = Callable[[], bool]


@dataclass(slots=True)
class Found:
    """The jobs of one queue that may lack a ticket."""

    jobs: int = 0
    renewed: int = 0
    """Of these, the ones that have got a new ticket, or stand in line for it."""
    fault: str | None = None
    """Why not all of them are."""


@dataclass(frozen=True, slots=True)
class _Step:
    """One page of each segment of a sweep, and what became of the jobs in it."""

    cursors: Mapping[int, str | None]
    examined: int
    renewed: Mapping[str, int]
    failed: Mapping[str, int]
    """Queue → jobs whose tickets it did not take."""

    def advance(self, sweep: Sweep, missed: int = 0) -> Sweep:
        """The sweep after this step."""
        return sweep.advanced(self.cursors, examined=self.examined, renewed=sum(self.renewed.values()), missed=missed)


class Reconciler:
    """Sees to it that every unfinished job of a deployment has a ticket."""

    def __init__(
        self,
        services: Services,
        queues: Mapping[str, Queue],
        pacer: Pacer,
        store: SweepStore,
        *,
        every_hours: float = EVERY_HOURS,
        after_hours: float = AFTER_HOURS,
    ) -> None:
        self._services, self._queues, self._store = services, queues, store
        self._ledger, self._clock, self._telemetry = services.ledger, services.clock, services.telemetry
        self._marked = [queue for queue in queues.values() if isinstance(queue, MarkedQueue)]
        self._renewer = Renewer(services, queues, pacer)
        self._every_ms, self._after_ms = round(every_hours * 3_600_000), round(after_hours * 3_600_000)
        self._notes = Notes()
        self._may_go_on = False

    # --- in each run of the timers -----------------------------------------------------------------------------------

    def notice(self) -> int:
        """Compare the mark of each queue's memory with that of last time, and begin the repair of those that differ. Returns
        how many. A queue that cannot be asked now is asked in the next run."""
        answers = zip(self._marked, in_parallel(_mark_of, self._marked), strict=True)
        marks = {queue.name: mark for queue, mark in answers if mark is not None}
        for _ in range(LOOKS):
            seen = self._read()
            noticed, lost = seen.noticed(marks, self._clock.now())
            if noticed == seen:
                return 0
            if self._put(noticed):
                for queue, what in lost.items():
                    if what == ALL_LOST:
                        # Queues tell it as well, but to a process that has just started an empty one is a new one.
                        self._telemetry.event("queue_memory_lost", queue=queue)
                    self._telemetry.event("repair_started", queue=queue, lost=what, mark=marks[queue], before=seen.marks[queue])
                return len(lost)
        raise Unavailable("the notes of reconciling keep changing")

    @property
    def may_go_on(self) -> bool:
        """Whether the latest `repair` ended for no other reason than that its few seconds were over."""
        return self._may_go_on

    def repair(self, has_time: HasTime) -> int:
        """Go on for a few seconds with the repairs that were noticed. Returns how many jobs have got a ticket."""
        self._may_go_on = False
        renewed, place = 0, 0
        has_slice = self._slice(has_time)
        while place < len(self._notes.repairs) and has_slice():
            repair = self._notes.repairs[place]
            step = self._step(repair, lambda _job: True, has_time)
            if step is None:
                return renewed
            renewed += sum(step.renewed.values())
            # A queue that takes nothing is from here on a repair of its own, and keeps no other waiting.
            stuck = repair.of(step.failed)
            others = repair.of(set(repair.queues or ()) - step.failed.keys())
            place += bool(stuck.queues)
            self._note(repair, *(each for each in (stuck, step.advance(others)) if each.queues))
        self._may_go_on = place < len(self._notes.repairs)
        return renewed

    def go_round(self, has_time: HasTime) -> int:
        """Begin a round when it is time for one; go on with it for a few seconds. Returns how many jobs have got a ticket."""
        with_round = self._notes.with_round(self._clock.now(), self._every_ms)
        if with_round != self._notes and not self._put(with_round):
            self._read()
        renewed = 0
        has_slice = self._slice(has_time)
        while (sweep := self._notes.round) is not None and has_slice():
            step = self._step(sweep, self._is_due(sweep), has_time)
            if step is None:
                break
            renewed += sum(step.renewed.values())
            # What a queue did not take waits for the next round, lest it keep the others waiting.
            self._note(sweep, step.advance(sweep, missed=sum(step.failed.values())))
        return renewed

    def _is_due(self, sweep: Sweep) -> Callable[[Job], bool]:
        def is_due(job: Job) -> bool:
            changed = last_change(job)
            before = 0 if sweep.previous_at is None else renewals_due(sweep.previous_at - changed, self._after_ms)
            return renewals_due(sweep.begun_at - changed, self._after_ms) > before

        return is_due

    def _slice(self, has_time: HasTime) -> HasTime:
        until = self._clock.monotonic() + SLICE_SECONDS
        return lambda: has_time() and self._clock.monotonic() < until

    def _step(self, sweep: Sweep, wanted: Callable[[Job], bool], has_time: HasTime) -> _Step | None:
        """None if the time was up before the page was done: it will be done again."""
        pages = self._pages(sweep)
        renewed: dict[str, int] = {}
        failed: dict[str, int] = {}
        for queue, jobs in self._lacking(sweep, pages, wanted):
            if queue not in self._queues:
                for job in jobs:
                    bury(job.job_id, f"there is no queue {queue!r}", self._services)
            elif self._renewer.renew(queue, jobs, has_time):
                renewed[queue] = len(jobs)
            elif has_time():
                failed[queue] = len(jobs)
            else:
                return None
        cursors = {segment: page.cursor for segment, page in pages.items()}
        return _Step(cursors, sum(page.examined for page in pages.values()), renewed, failed)

    def _pages(self, sweep: Sweep) -> dict[int, Unmarked]:
        def page(segment: int) -> Unmarked:
            return self._ledger.unmarked(segment, sweep.segments, sweep.left[segment], PAGE_ROWS)

        return dict(zip(sweep.left, in_parallel(page, sweep.left), strict=True))

    def _lacking(
        self, sweep: Sweep, pages: Mapping[int, Unmarked], wanted: Callable[[Job], bool]
    ) -> list[tuple[str, Sequence[Job]]]:
        """Those of the jobs in these pages that may lack a ticket, by queue."""
        by_queue: dict[str, list[Job]] = {}
        for page in pages.values():
            for job in page.jobs:
                if sweep.concerns(job.queue) and wanted(job):
                    by_queue.setdefault(job.queue, []).append(job)
        lacking = [(queue, self._renewer.lacking(queue, jobs)) for queue, jobs in by_queue.items()]
        return [(queue, jobs) for queue, jobs in lacking if jobs]

    def _note(self, before: Sweep, *after: Sweep) -> None:
        """Keep what has become of a sweep. If somebody else has kept another thing meanwhile, that counts."""
        noted = self._notes.with_step(before, *after)
        if noted == self._notes or not self._put(noted):
            self._read()
            return
        for sweep in after:
            if sweep.ended:
                queues = "all" if sweep.queues is None else ", ".join(sweep.queues)
                told = {"examined": sweep.examined, "renewed": sweep.renewed, "missed": sweep.missed}
                self._telemetry.event("round_finished" if sweep.queues is None else "repair_finished", queues=queues, **told)

    def _read(self) -> Notes:
        self._notes = self._store.read()
        self._renewer.look_anew()
        return self._notes

    def _put(self, notes: Notes) -> bool:
        if not self._store.replace(self._notes, notes):
            return False
        self._notes = notes.of_version(self._notes.version + 1)
        return True

    # --- by hand -----------------------------------------------------------------------------------------------------

    def at_once(
        self,
        queues: Collection[str] | None,
        older_than_seconds: float,
        *,
        dry_run: bool = False,
        tell: Callable[[int], None] = lambda _examined: None,
    ) -> dict[str, Found]:
        """Look through everything now, from its beginning to its end, without taking note of it in the ledger.

        ``queues`` None are all; 0 seconds are all unfinished jobs without a due mark, those that a worker holds included.
        ``tell`` is given how many rows were looked at, page after page. Returns what was found in each queue; a queue that took
        no ticket is not tried again. Raises `Unavailable` for the ledger: soon if it does not answer at all, and after the
        patience of `patiently` if it has answered before.
        """
        sweep = begun(self._clock.now(), queues)
        older_than = round(older_than_seconds * 1_000)
        found: dict[str, Found] = {}

        def is_old(job: Job) -> bool:
            return older_than <= 0 or sweep.begun_at - last_change(job) >= older_than

        patience_seconds = FIRST_PATIENCE_SECONDS
        while not sweep.ended:
            pages = patiently(partial(self._pages, sweep), self._services, patience_seconds)
            patience_seconds = PATIENCE_SECONDS
            for queue, jobs in patiently(partial(self._lacking, sweep, pages, is_old), self._services):
                of_queue = found.setdefault(queue, Found())
                of_queue.jobs += len(jobs)
                if not dry_run and of_queue.fault is None:
                    of_queue.fault = patiently(partial(self._fault_in_renewing, queue, jobs), self._services)
                    of_queue.renewed += len(jobs) if of_queue.fault is None else 0
            examined = sum(page.examined for page in pages.values())
            tell(examined)
            sweep = sweep.advanced({segment: page.cursor for segment, page in pages.items()}, examined=examined, renewed=0)
        return found

    def _fault_in_renewing(self, queue: str, jobs: Sequence[Job]) -> str | None:
        if queue not in self._queues:
            return UNKNOWN_QUEUE
        return None if self._renewer.renew(queue, jobs, lambda: True) else TAKES_NONE


def _mark_of(queue: MarkedQueue) -> str | None:
    try:
        return queue.memory_mark()
    except Unavailable:
        return None  # the queue has told why
