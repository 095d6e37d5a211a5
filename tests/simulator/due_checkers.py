"""What must hold of times: no attempt begins before its own."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ringfence.errors import Poisoned
from ringfence.job import WAITING, Millis, State
from ringfence.relay import Read
from ringfence.wire import JobRecord, decode_record

from .history import Entry, Landed, pushed_in
from .world import EPOCH_MS, World

ROUNDING_SECONDS = 0.002
"""Times are whole milliseconds."""

NO_TIME = float("-inf")
"""Of what may start at once."""


def nothing_starts_early(world: World) -> Iterator[str]:
    """No attempt begins before the time that was asked for, by the client or by a job that wants to be tried again later.

    Each who has a part in that goes by a clock of its own, and is held to this very clock: a record and a row say the time that
    was asked for, a row's time never falls, a worker starts no job before it, and a ticket in which its job rides is not
    visible before. So the times differ from the true ones by the error of these clocks, and no more.
    """
    starts = _Starts(world)
    yield from starts.recorded()
    for entry in world.history.with_rows():
        if isinstance(entry, Landed):
            yield from starts.landed(entry)
            continue
        match entry.what:
            case "asked for later":
                starts.asked_for_later(entry)
            case "started":
                yield from starts.started(entry)
            case "queue:free.push" | "queue:paced.push":
                yield from starts.pushed(entry)


class _Starts:
    """When each job may start, as far as is known at one moment of the history. All times are seconds, as `Entry.at`."""

    def __init__(self, world: World) -> None:
        self._world = world
        asked = ((job_id, entry.args[2].delay_seconds) for job_id, entry in world.history.first_accepted.items())
        self._delays = {job_id: delay for job_id, delay in asked if delay}
        self._recorded: dict[str, float] = {}
        """By job, the time in its record."""
        self._due: dict[str, float] = {}
        """By job, the time that its row is to say, unless it says a later one."""
        self._later: dict[tuple[str, int], float] = {}
        """By job and attempt, when it wants to be tried again, by the clock of whoever ran it last."""
        self._next: dict[tuple[str, int], float] = {}
        """The same of a job without a row, which may run twice at a time: the first of these moments, in true time."""
        self._claimed: dict[tuple[str, int], float] = {}
        """By job and token, the time in the row that was claimed."""
        self._visible: dict[tuple[str, int], float] = {}
        """By job and attempt, when the first ticket is visible in which it rides."""

    def _by_clock_of(self, process: str, at: float) -> float:
        return at + self._world.skews[process] + ROUNDING_SECONDS

    def recorded(self) -> Iterator[str]:
        for read in self._world.log.read():
            for job in _jobs_in(read):
                if job.run_at is not None:
                    self._recorded[job.job_id] = seconds_of(job.run_at)
                delay = self._delays.get(job.job_id)
                if delay is not None and (job.run_at or 0) < job.created_at + round(delay * 1_000):
                    yield f"{job.job_id} was to wait for {delay} s, and its record says {job.run_at}"

    def landed(self, landed: Landed) -> Iterator[str]:
        before, after = landed.before, landed.after
        job_id, run_at = after.job_id, seconds_of(after.run_at)
        if before is None:
            delay = self._delays.get(job_id)
            if delay is not None and after.run_at is None and landed.entry.process.startswith(("gateway", "relay")):
                yield f"{job_id} was to wait for {delay} s, and its row does not say so"
        elif before.state is State.RUNNING and after.state in WAITING and after.history[-1].outcome == "retry":
            later = self._later.get((job_id, before.attempts), NO_TIME)
            if run_at + ROUNDING_SECONDS < later:
                yield f"{job_id} is to be tried again at {later:.3f}, and its row says {run_at:.3f}"
        elif not before.state.terminal and not after.state.terminal:
            if after.state is State.RUNNING and after.attempt_id != before.attempt_id:
                self._claimed[job_id, after.token] = run_at
            if run_at < self._due[job_id]:  # a place in line is no earlier either
                yield f"{job_id} is due at {self._due[job_id]:.3f}, and its row says {run_at:.3f}"
            return
        self._due[job_id] = run_at

    def asked_for_later(self, note: Entry) -> None:
        job_id, attempt, seconds, _ = note.args
        later = note.at + seconds
        self._later[job_id, attempt] = later + self._world.skews[note.process]
        self._next[job_id, attempt] = min(later, self._next.get((job_id, attempt), later))

    def started(self, note: Entry) -> Iterator[str]:
        job_id, token, attempt = note.args
        if token:
            due = self._claimed.get((job_id, token), NO_TIME)
            if self._by_clock_of(note.process, note.at) < due:
                yield f"{job_id}: began at {note.at:.3f}, by the clock of {note.process} before {due:.3f}"
        elif note.at + ROUNDING_SECONDS < (visible := self._visible.get((job_id, attempt), NO_TIME)):
            yield f"{job_id}: attempt {attempt} began at {note.at:.3f}, and its ticket is visible from {visible:.3f} on"

    def pushed(self, push: Entry) -> Iterator[str]:
        """Whoever is not told of a time by a row has it from the delay of the ticket alone."""
        for ticket, delay in pushed_in(push):
            if ticket.payload is None:
                continue
            job_id, attempt, visible = ticket.job_id, ticket.attempts + 1, push.at + delay
            self._visible[job_id, attempt] = min(visible, self._visible.get((job_id, attempt), visible))
            if attempt > 1:
                later = self._next.get((job_id, attempt - 1), NO_TIME)
                is_early = visible + ROUNDING_SECONDS < later
            else:
                later = self._recorded.get(job_id, NO_TIME)
                is_early = self._by_clock_of(push.process, visible) < later
            if is_early:
                yield f"{job_id}: {push.process} let attempt {attempt} be visible at {visible:.3f}, before {later:.3f}"


def _jobs_in(read: Read) -> Sequence[JobRecord]:
    try:
        return decode_record(read.data)
    except Poisoned:
        return ()


def seconds_of(time: Millis | None) -> float:
    """A time as `Entry.at` has it."""
    return NO_TIME if time is None else (time - EPOCH_MS) / 1_000


DUE_CHECKERS = (nothing_starts_early,)
