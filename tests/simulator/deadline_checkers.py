"""What must hold once all faults are over: nobody waits for long beyond what there is to wait for."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator

from ringfence.company import LATER_SECONDS
from ringfence.job import WAITING, Job, State
from ringfence.verdict import CLOCK_SKEW_MS

from .due_checkers import ROUNDING_SECONDS, seconds_of
from .history import Entry, Landed, pushed_in
from .mishaps import lost_with_its_queue
from .wire import LATE_SECONDS
from .workers import LEASE_SECONDS
from .world import RUN_SECONDS, World

SLACK_SECONDS = RUN_SECONDS + LATER_SECONDS + LEASE_SECONDS
"""The next run of the timers; the time for which a job is put off that is to run alone and finds company; and a lease."""


def every_job_goes_on_in_time(world: World) -> Iterator[str]:
    """Once the last fault is over, an accepted job takes each of its steps at most `SLACK_SECONDS` after what it waits for.

    That is the step before; its own time, and the end of a lease, as the slowest clock reads them; its ticket, until that is
    visible; and in line, that somebody left it, or was seen to find the queue full. A step is a write of its row, a ticket that
    is pushed, a start, or the end of one that has no row. The last fault is over when what was sent before has arrived, and who
    was frozen then has thawed: that takes `LATE_SECONDS` at the most. And a job that wants to be tried again is put off no
    longer than it asked for and its backoff may add, at any time.
    """
    deadlines = _Deadlines(world)
    for entry in world.history.with_rows():
        if isinstance(entry, Landed):
            yield from deadlines.landed(entry)
            continue
        match entry.what:
            case "asked for later":
                deadlines.asked_for_later(entry)
            case "accepted" | "started" | "ran":
                yield from deadlines.noted(entry)
            case "queue:free.push" | "queue:paced.push":
                yield from deadlines.pushed(entry)
            case "queue:paced.depth":
                deadlines.looked(entry)
    yield from deadlines.ended()


class _Deadlines:
    """What each job waits for, at one moment of the history."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._healed = world.plan.quiet_after_seconds + LATE_SECONDS
        self._slowest = min(world.skews.values())
        self._rows: dict[str, Job] = {}
        self._may_go_on: dict[str, float] = defaultdict(lambda: self._healed)
        """By job, when that is over for which it waits."""
        self._line_moved = 0.0
        """When somebody left the line of the paced queue, or found the queue full."""
        self._longest: dict[tuple[str, int], float] = {}
        """By job and attempt, the longest delay after which it is to be tried again."""
        self._ended = lost_with_its_queue(world.history)

    def landed(self, landed: Landed) -> Iterator[str]:
        before, row, at = landed.before, landed.after, landed.entry.at
        yield from self._step(row.job_id, at)
        if _wants_to_be_tried_again(before, row):
            latest = self._by_clock_of_its_writer(landed, self._longest_delay(row.job_id, row.attempts))
            if seconds_of(row.run_at) > latest:
                yield f"{row.job_id} is to be tried again by {latest:.3f}, and its row says {seconds_of(row.run_at):.3f}"
        if before is not None and before.in_line and not row.in_line:
            self._line_moved = at
        self._rows[row.job_id] = row
        if row.state.terminal:
            self._ended.add(row.job_id)
            return
        if before is not None and before.state.terminal:
            self._ended.discard(row.job_id)
            del self._may_go_on[row.job_id]
        own_time = seconds_of(None if row.in_line else row.run_at)
        if row.state is State.RUNNING:
            own_time = self._by_clock_of_its_writer(landed, LEASE_SECONDS + CLOCK_SKEW_MS / 1_000)
        self._wait(row.job_id, at, own_time - self._slowest)

    def _by_clock_of_its_writer(self, landed: Landed, seconds: float) -> float:
        """So long after a write was sent."""
        return landed.entry.sent_at + self._world.skews[landed.entry.process] + seconds

    def asked_for_later(self, note: Entry) -> None:
        job_id, attempt, _, longest = note.args
        self._longest[job_id, attempt] = max(longest, self._longest.get((job_id, attempt), longest))

    def _longest_delay(self, job_id: str, attempt: int) -> float:
        return self._longest.get((job_id, attempt), math.inf) + ROUNDING_SECONDS

    def noted(self, note: Entry) -> Iterator[str]:
        job_id = note.args[0]
        yield from self._step(job_id, note.at)
        if note.what == "ran" and job_id not in self._rows:
            self._ended.add(job_id)
        self._wait(job_id, note.at)

    def pushed(self, push: Entry) -> Iterator[str]:
        for ticket, delay in pushed_in(push):
            yield from self._step(ticket.job_id, push.at)
            if ticket.attempts and delay > self._longest_delay(ticket.job_id, ticket.attempts):
                yield f"{ticket.job_id} is pushed with a delay of {delay} s"
            self._wait(ticket.job_id, push.at + delay)

    def looked(self, look: Entry) -> None:
        mark = self._world.plan.high_water_mark
        if mark is not None and look.reply.ready + look.reply.leased + look.reply.delayed >= mark:
            self._line_moved = look.at

    def ended(self) -> Iterator[str]:
        for job_id in self._world.history.first_accepted:
            yield from self._step(job_id, self._world.scheduler.now)

    def _step(self, job_id: str, at: float) -> Iterator[str]:
        if job_id in self._ended or job_id not in self._world.history.first_accepted:
            return
        since, row = self._may_go_on[job_id], self._rows.get(job_id)
        if row is not None and row.in_line:
            since = max(since, self._line_moved)
        if at > since + SLACK_SECONDS:
            state = "without a row" if row is None else f"{row.state}{' in line' * row.in_line}"
            yield f"{job_id}, {state}, could have gone on at {since:.3f}, and did at {at:.3f}"

    def _wait(self, job_id: str, *until: float) -> None:
        self._may_go_on[job_id] = max(self._may_go_on[job_id], *until)


def _wants_to_be_tried_again(before: Job | None, row: Job) -> bool:
    is_given_back = before is not None and before.state is State.RUNNING and row.state in WAITING
    return is_given_back and row.history[-1].outcome == "retry"


DEADLINE_CHECKERS = (every_job_goes_on_in_time,)
