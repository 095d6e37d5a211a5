"""What the relay could not push for as long as the log keeps it goes back into the log.

Rule 1 holds here, too: a batch is appended whole, and only then removed from where it was kept. Whoever dies in between leaves
it there, and its records come twice: their jobs collapse at the ledger, and those without a row run twice at worst.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random
from typing import Protocol

from ringfence.errors import Poisoned, RingfenceError, Unavailable
from ringfence.ports import Clock, Log, LogEntry
from ringfence.retry import Backoff, Pauses
from ringfence.wire import decode_record

PATIENCE_SECONDS = 60.0
"""How long the records of one batch are offered to a log that throttles: a shard takes the largest batch in six seconds."""

BACKOFF = Backoff(base_seconds=0.5, cap_seconds=5.0)


class UnreadableBatch(RingfenceError):
    """What lies there is no failed batch of this log. It is left where it is."""


@dataclass(frozen=True, slots=True)
class FailedBatch:
    """Records of one shard, in their order, that were given up."""

    entries: Sequence[LogEntry]
    arrived_at: str
    """When the first of them had come, as its source writes it."""
    why: str
    """The source's word for why it gave up: ``RecordAgeExceeded``."""

    def jobs(self) -> int:
        """How many jobs its records hold; of one that nobody can read, none."""
        return sum(map(_jobs_in, self.entries))


class FailedBatches(Protocol):
    """Where failed batches are kept. Any call may raise `Unavailable`."""

    def names(self) -> Iterator[str]:
        """All there are; those of one shard in the order in which they failed."""
        ...

    def read(self, name: str) -> FailedBatch:
        """Raises `UnreadableBatch`."""
        ...

    def remove(self, name: str) -> None: ...


class Replayer:
    """Puts failed batches back."""

    def __init__(self, batches: FailedBatches, log: Log, clock: Clock, random_source: Random) -> None:
        self.batches = batches
        self._log, self._clock, self._random = log, clock, random_source

    def replay(self, name: str, batch: FailedBatch) -> None:
        """Append its records and remove it. Raises `Unavailable` if the log does not take all of them; then it stays."""
        pauses = Pauses(BACKOFF, self._clock, self._random, seconds=PATIENCE_SECONDS)
        left = list(batch.entries)
        while left:
            left = [entry for entry, number in zip(left, self._log.append(left), strict=True) if number is None]
            if left and not pauses.another_try():
                raise Unavailable(f"the log did not take {len(left)} of {len(batch.entries)} records of {name}")
        self.batches.remove(name)


def _jobs_in(entry: LogEntry) -> int:
    try:
        return len(decode_record(entry.data))
    except Poisoned:
        return 0
