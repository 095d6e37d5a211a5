"""The lines of parked jobs: who is called up, in what order, and when newcomers need not join any more."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from ringfence.errors import Unavailable
from ringfence.job import Job, Millis, State
from ringfence.pace import Pacer
from ringfence.poison import bury
from ringfence.ports import Group, Queue, Services
from ringfence.queue_settings import Line, QueueState
from ringfence.sender import Sender

CALLED_UP_TOGETHER = 100
"""Parked jobs of one queue taken up before it is another one's turn."""

SETTLED_MS = 10_000
"""So long after the last place was given out, whoever got it stands in line or never will: a write, an index, and its relay's
death take less."""

EMPTY_LOOKS = 3
"""A line found empty so often, though somebody had joined in between each time, is opened: under a steady stream of newcomers
it would never be empty for long enough."""

HEAD_START_MS = 5_000
"""Then the tickets of newcomers are held back for so long, and those who joined at the last moment are released before them.
The releases of that time are theirs: were they given to newcomers, all of these would be visible at its end, at once."""

FORGOTTEN_MS = 600_000
"""Nobody stands in a line that has been open for so long."""


@dataclass(frozen=True, slots=True)
class Served:
    """How many parked jobs were released, and whether a line may move again in a moment."""

    released: int
    look_again: bool = False
    more: bool = False
    """There may be others whose turn has come already."""


class Lines:
    """The lines of all queues during one run of the timers."""

    def __init__(self, services: Services, queues: Mapping[str, Queue], pacer: Pacer) -> None:
        self._services, self._queues, self._pacer = services, queues, pacer
        self._ledger, self._clock = services.ledger, services.clock
        self._sender = Sender(services, queues, pacer)
        self._empty_looks: dict[str, int] = {}
        self._last_released: dict[str, Millis] = {}
        self._ahead: dict[str, list[float]] = {}
        """By queue, the releases that are reserved for those who joined at the last moment, on the monotonic clock."""

    def serve(self, states: Mapping[str, QueueState], has_time: Callable[[], bool]) -> Served:
        """Call up those whose turn it is, in every line, and open the lines that are empty."""
        for queue in states.keys() - self._queues.keys():
            try:
                self._bury_all(queue, states[queue].line, has_time)
            except Unavailable as fault:
                self._services.telemetry.event("line_failed", queue=queue, reason=str(fault))
        released, look_again = 0, False
        turn: Sequence[str] = list(self._queues)
        while turn and has_time():
            served = {queue: self._serve_one(queue) for queue in turn}
            released += sum(each.released for each in served.values())
            look_again = look_again or any(each.look_again for each in served.values())
            turn = [queue for queue, each in served.items() if each.more]
        return Served(released, look_again)

    def _serve_one(self, queue: str) -> Served:
        """A queue whose Redis is out of reach does not keep the lines of others waiting."""
        try:
            state = self._pacer.state(queue)  # those who joined in this very run included
            if not state.settings.paused and self._may_be_needed(state.line):
                return self._serve(queue, state.line)
        except Unavailable as fault:
            self._services.telemetry.event("line_failed", queue=queue, reason=str(fault))
        return Served(0)

    def _may_be_needed(self, line: Line) -> bool:
        return line.waiting or self._clock.now() <= line.last_place + FORGOTTEN_MS

    def _serve(self, queue: str, line: Line) -> Served:
        most = self._pacer.within_reach(queue, CALLED_UP_TOGETHER)
        jobs = self._ledger.line(queue, most)
        # Looked for after the others: whoever came before one of those, through the same relay, is here by now.
        for group in self._ledger.groups(queue, 1):
            jobs = [job for job in jobs if (job.run_at or 0) < group.first_place]
            if not jobs:
                return self._serve_group(group, most)
        if not jobs:
            return Served(0, self._open(queue, line) if line.waiting else self._is_fresh(line))
        waits = self._call_up(queue, len(jobs))
        called = jobs[: len(waits)]
        sent = self._sender.release(
            queue, called, [max(wait, self._until(job.run_at or 0)) for job, wait in zip(called, waits, strict=True)]
        )
        if sent.pushed:
            self._last_released[queue] = max(job.run_at or 0 for job in sent.pushed)
        if sent.first_unsent is not None:
            return Served(len(sent.pushed))
        if len(waits) == len(jobs):
            return Served(len(sent.pushed), more=True)
        return self._held_up(queue, len(sent.pushed))

    def _serve_group(self, group: Group, most: int) -> Served:
        """Call up those of the first group whose turn it is, ``most`` at the most. Their rows have no marks to clear: that they
        have left is written on the group, after the push, for a second ticket is harmless and a lost one is not."""
        queue, standing = group.queue, group.waiting[:most]
        rows = {job.job_id: job for job in self._ledger.peek([job_id for job_id, _ in standing])}
        jobs = [(rows[job_id], place) for job_id, place in standing if job_id in rows and waits_in_group(rows[job_id])]
        waits = self._call_up(queue, len(jobs))
        called = jobs[: len(waits)]
        sent = self._sender.push(
            queue,
            [job for job, _ in called],
            [max(wait, self._until(place)) for (_, place), wait in zip(called, waits, strict=True)],
        )
        gone = len(called) if sent.first_unsent is None else sent.first_unsent
        next_place = jobs[gone][1] if gone < len(jobs) else standing[-1][1] + 1
        if next_place > standing[0][1]:
            self._ledger.leave_line(group, next_place - group.first_place)
            self._last_released[queue] = next_place - 1
        for job_id, place in standing:
            if place < next_place and job_id not in rows:  # ended and expired meanwhile
                self._services.telemetry.event("place_given_up", job_id=job_id, queue=queue)
        if gone < len(called):
            return Served(len(sent.pushed))
        if gone == len(jobs):
            return Served(len(sent.pushed), more=True)
        return self._held_up(queue, len(sent.pushed))

    def _call_up(self, queue: str, count: int) -> list[Millis]:
        now = self._clock.monotonic()
        ahead = [release for release in self._ahead.get(queue, ()) if release >= now]  # two that are late would come at once
        waits = self._pacer.call_up(queue, count, [math.ceil((release - now) * 1_000) for release in ahead])
        self._ahead[queue] = ahead[len(waits) :]
        return waits

    def _held_up(self, queue: str, released: int) -> Served:
        """Nobody else is called up now; room below a high-water mark may come at any moment."""
        return Served(released, look_again=self._pacer.state(queue).settings.high_water_mark is not None)

    def _until(self, place: Millis) -> Millis:
        """Where places are given out faster than one a millisecond, a place is a little ahead of the clock."""
        return max(0, place - self._clock.now())

    def _open(self, queue: str, line: Line) -> bool:
        """Open a line that was found empty, unless somebody may be about to stand in it. Returns whether to look again."""
        now = self._clock.now()
        settled = self._last_released.get(queue) == line.last_place or now > line.last_place + SETTLED_MS
        if settled and self._pacer.open_line(queue, line.last_place, now):
            self._opened(queue, line)
            return False
        self._empty_looks[queue] = self._empty_looks.get(queue, 0) + 1
        if self._empty_looks[queue] >= EMPTY_LOOKS:
            waits = self._pacer.reserve_ahead(queue, HEAD_START_MS)
            self._ahead[queue] = [self._clock.monotonic() + wait / 1_000 for wait in waits]
            if self._pacer.open_line(queue, None, now + HEAD_START_MS):
                self._opened(queue, line)
        return True

    def _opened(self, queue: str, line: Line) -> None:
        self._empty_looks.pop(queue, None)
        self._services.telemetry.event("line_opened", queue=queue, last_place=line.last_place)

    def _is_fresh(self, line: Line) -> bool:
        """Whether somebody may still be about to stand in a line that was opened."""
        return self._clock.now() <= line.open_from

    def _bury_all(self, queue: str, line: Line, has_time: Callable[[], bool]) -> None:
        """The line of a queue that no longer exists: each job is dead with the reason."""
        while line.waiting and has_time():
            job_ids = [job.job_id for job in self._ledger.line(queue, CALLED_UP_TOGETHER)]
            groups = self._ledger.groups(queue, 1)
            if not job_ids and not groups:
                self._pacer.open_line(queue, line.last_place, self._clock.now())
                return
            for job_id in [*job_ids, *(job_id for group in groups for job_id, _ in group.waiting)]:
                bury(job_id, f"there is no queue {queue!r}", self._services)
            for group in groups:
                self._ledger.leave_line(group, len(group.job_ids))


def waits_in_group(job: Job) -> bool:
    """Whether nothing has become of a job in a group: else it was claimed, cancelled or put off, and has its own way."""
    return job.state is State.QUEUED and job.token == 0
