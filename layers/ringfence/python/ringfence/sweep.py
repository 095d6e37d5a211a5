"""Where the search for jobs without a ticket stands: values only, kept in the ledger from one run of the timers to the next."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import msgspec

from ringfence.job import Millis

SEGMENTS = 8
"""Parts in which the rows are looked through, side by side. A sweep that is under way keeps the number it began with."""

ALL_LOST = "everything"
LAST_WRITES_LOST = "perhaps the last writes"


class Sweep(msgspec.Struct, frozen=True, kw_only=True):
    """One look at every row of the ledger."""

    begun_at: Millis
    left: dict[int, str | None]
    """Segment → the cursor at which it goes on (None: at its beginning). A segment that is at its end is not here."""
    segments: int = SEGMENTS
    queues: list[str] | None = None
    """A repair: the queues that lost their memory, sorted. None: a round through all queues, for jobs that have waited long."""
    previous_at: Millis | None = None
    """Of a round: when the last one before it that missed nothing began."""
    examined: int = 0
    renewed: int = 0
    missed: int = 0
    """Rows looked at so far; jobs that have got a new ticket, or stand in line for one; those whose queue took none."""

    @property
    def ended(self) -> bool:
        return not self.left

    def concerns(self, queue: str) -> bool:
        return self.queues is None or queue in self.queues

    def advanced(self, cursors: Mapping[int, str | None], *, examined: int, renewed: int, missed: int = 0) -> Sweep:
        """After one more page of each segment that was left; a cursor of None says that its segment is at its end."""
        return msgspec.structs.replace(
            self,
            left={segment: cursor for segment, cursor in cursors.items() if cursor is not None},
            examined=self.examined + examined,
            renewed=self.renewed + renewed,
            missed=self.missed + missed,
        )

    def of(self, queues: Collection[str]) -> Sweep:
        """The same repair, at the same place, of these queues only."""
        return msgspec.structs.replace(self, queues=sorted(queues))


def begun(now: Millis, queues: Collection[str] | None = None, previous_at: Millis | None = None) -> Sweep:
    """A sweep that has looked at nothing yet."""
    named = None if queues is None else sorted(queues)
    return Sweep(begun_at=now, left=dict.fromkeys(range(SEGMENTS)), queues=named, previous_at=previous_at)


class Notes(msgspec.Struct, frozen=True, kw_only=True):
    """All that has to be remembered between two runs of the timers, as one value: to note that a memory was lost and to begin
    its repair is one write, which happens or does not."""

    version: int = 0
    """Raised by every write; whoever writes names the one that it has read."""
    marks: dict[str, str] = {}
    """Queue → the mark of its memory when it was last looked at."""
    repairs: list[Sweep] = []
    """The oldest first; a queue is in one of them at most."""
    round: Sweep | None = None
    round_begun_at: Millis | None = None
    whole_round_at: Millis | None = None
    """When the latest round began, and when the latest one began that missed nothing."""

    def of_version(self, version: int) -> Notes:
        """The same, as the store has it after a write."""
        return msgspec.structs.replace(self, version=version)

    def noticed(self, marks: Mapping[str, str], now: Millis) -> tuple[Notes, dict[str, str]]:
        """With these marks, and a repair begun for the queues whose mark was another one; and what each of them has lost.

        A queue that is lost again while it is repaired is repaired from the beginning. One that was never looked at before has
        nothing to compare with: it is taken for new.
        """
        lost = {
            queue: lost_between(self.marks[queue], mark) for queue, mark in marks.items() if self.marks.get(queue, mark) != mark
        }
        repairs = [rest for repair in self.repairs if (rest := _without(repair, lost)) is not None]
        if lost:
            repairs.append(begun(now, lost))
        return msgspec.structs.replace(self, marks={**self.marks, **marks}, repairs=repairs), lost

    def with_round(self, now: Millis, every_ms: Millis) -> Notes:
        """With a round begun, if none is under way and the last one began so long ago."""
        latest = self.round_begun_at
        if self.round is not None or (latest is not None and latest <= now < latest + every_ms):
            return self
        return msgspec.structs.replace(self, round=begun(now, previous_at=self.whole_round_at), round_begun_at=now)

    def with_step(self, before: Sweep, *after: Sweep) -> Notes:
        """With one of the sweeps replaced by what has become of it; those that have ended are dropped. The same notes if it
        is not among them: somebody else has gone on with it."""
        going_on = [sweep for sweep in after if not sweep.ended]
        if before == self.round:
            whole = [sweep.begun_at for sweep in after if sweep.ended and not sweep.missed]
            return msgspec.structs.replace(
                self, round=going_on[0] if going_on else None, whole_round_at=whole[0] if whole else self.whole_round_at
            )
        if before not in self.repairs:
            return self
        place = self.repairs.index(before)
        return msgspec.structs.replace(self, repairs=[*self.repairs[:place], *going_on, *self.repairs[place + 1 :]])


def lost_between(before: str, after: str) -> str:
    """What a queue has lost whose mark (`ports.MarkedQueue.memory_mark`) was one and is another."""
    return LAST_WRITES_LOST if before.partition("/")[0] == after.partition("/")[0] else ALL_LOST


def _without(repair: Sweep, queues: Collection[str]) -> Sweep | None:
    rest = [queue for queue in repair.queues or [] if queue not in queues]
    return repair.of(rest) if rest else None
