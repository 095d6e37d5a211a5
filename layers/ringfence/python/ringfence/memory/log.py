"""A log in memory, sharded by partition key as Kinesis shards."""

from __future__ import annotations

import bisect
import hashlib
import itertools
import threading
from collections.abc import Sequence

from ringfence.ports import LogEntry
from ringfence.relay import Read

FIRST_SEQUENCE = 49_600_000_000_000_000_000_000
"""Sequence numbers are decimal text of one length here, too large for a double: whoever reads them as numbers is found out."""

_KEY_SPACE = 2**128
"""Partition keys are spread by their MD5, a 128-bit number."""


class MemoryLog:
    """Shards are lists; a record never leaves. Reading does not change anything, so a test can read again and again."""

    def __init__(self, shards: int = 1) -> None:
        self._shards: dict[str, list[Read]] = {f"shardId-{number:012d}": [] for number in range(shards)}
        self._sequence = itertools.count(FIRST_SEQUENCE)
        self._lock = threading.Lock()

    @property
    def shards(self) -> list[str]:
        return list(self._shards)

    def append(self, entries: Sequence[LogEntry]) -> list[str | None]:
        with self._lock:
            return [self._append(entry) for entry in entries]

    def read(self, shard: str | None = None, *, after: str | None = None, limit: int | None = None) -> list[Read]:
        """Records in the order of their sequence numbers, of one shard or of all, those beyond ``after``."""
        with self._lock:
            chosen = self._shards if shard is None else {shard: self._shards[shard]}
            records = [record for records in chosen.values() for record in records]
        if len(chosen) > 1:
            records.sort(key=lambda record: int(record.sequence))
        if after is not None:
            records = records[bisect.bisect(records, int(after), key=lambda record: int(record.sequence)) :]
        return records[:limit]

    def _append(self, entry: LogEntry) -> str:
        hashed = int.from_bytes(hashlib.md5(entry.partition_key.encode(), usedforsecurity=False).digest(), "big")
        shard = list(self._shards)[hashed * len(self._shards) // _KEY_SPACE]
        sequence = str(next(self._sequence))
        self._shards[shard].append(Read(data=bytes(entry.data), sequence=sequence, shard=shard))
        return sequence
