"""What every hop wrote down (`inside.recorder`), beside what the store kept of it (`trail`).

The order of a job's writes is that of its row's versions, which the store gave them. The order of what one process did is that
of its lines. Between processes there is no other order, and no clock is asked for one.
"""

from __future__ import annotations

import bisect
import itertools
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import msgspec

from ringfence.job import Job

from .trail import Trail, Versions

Outcome = Literal["ok", "refused", "unknown"]
"""As heard by whoever called; unknown: the answer was lost, or the caller died before it came."""

Told = Mapping[str, Any]
NOTHING: Told = {"heard": "unknown"}


@dataclass(slots=True)
class Call:
    """One call of a port, or one thing that a hop did, and what it heard of it."""

    process: str
    what: str
    """``port.method``, or ``ran``, ``relay.handle``, ``gateway.submit``."""
    told: Told
    began: int
    """Its place among the lines of its process."""
    ended: int | None = None
    heard: Told = field(default_factory=lambda: NOTHING)

    @property
    def outcome(self) -> Outcome:
        outcome: Outcome = self.heard["heard"]
        return outcome

    @property
    def unanswered(self) -> int:
        """Attempts of which nobody told what became of them, though the call itself may have been answered in the end."""
        return int(self.heard.get("unanswered", 0))

    @property
    def sent_at_most(self) -> int:
        """How many attempts there were; without end for a caller that died."""
        return sys.maxsize if self.ended is None else 1 + self.unanswered

    @property
    def method(self) -> str:
        return self.what.rpartition(".")[2]


@dataclass(slots=True)
class Process:
    """What one process did, in its own order. ``name`` is what the rows that it claims call it."""

    name: str
    calls: list[Call] = field(default_factory=list)
    """In the order in which they were begun."""

    def of(self, what: str) -> Iterator[Call]:
        """Those of this kind: ``port.method``, or of any queue ``acknowledge``."""
        return (call for call in self.calls if call.what == what or call.method == what)

    def within(self, outer: Call) -> Iterator[Call]:
        """What was begun and ended between the two lines of another."""
        first = bisect.bisect_right(self.calls, outer.began, key=lambda call: call.began)
        for call in itertools.islice(self.calls, first, None):
            if outer.ended is None or call.began > outer.ended:
                return
            if call.ended is not None and call.ended < outer.ended:
                yield call


@dataclass(slots=True)
class Write:
    """One conditional write to one row, as one call asked for it. Of one that was repeated there are several."""

    call: Call
    told: Told
    heard: Told

    @property
    def job_id(self) -> str:
        return str(self.told["job"])

    @property
    def write_id(self) -> str:
        return str(self.told["write"])

    @property
    def outcome(self) -> Outcome:
        outcome: Outcome = self.heard["heard"]
        return outcome

    @property
    def may_have_landed(self) -> bool:
        """A refusal is certain only if every attempt was answered: an earlier one may have landed, and been written over."""
        return self.outcome != "refused" or self.call.unanswered > 0

    @property
    def row(self) -> Told | None:
        """The row that it wrote or met, as far as the store told it."""
        row: Told | None = None if self.heard.get("computed") else self.heard.get("row")
        return row

    @property
    def effects(self) -> Sequence[str]:
        effects: Sequence[str] = self.told.get("effects", ())
        return effects


@dataclass
class Recorded:
    """A history. ``rows`` are those that the ledger holds in the end."""

    processes: Sequence[Process]
    trail: Trail
    rows: Mapping[str, Job] = field(default_factory=dict)
    lines: int = 0
    bytes: int = 0

    def calls(self, *methods: str) -> Iterator[Call]:
        """Those of these methods."""
        return (call for process in self.processes for call in process.calls if call.method in methods)

    @cached_property
    def writes(self) -> Sequence[Write]:
        """All that was asked of rows, also where only effects were to land."""
        return [write for call in self.calls("register", "write", "write_many", "write_effects") for write in writes_of(call)]

    @cached_property
    def by_write_id(self) -> Mapping[str, Sequence[Write]]:
        """The writes that may be versions."""
        found: dict[str, list[Write]] = defaultdict(list)
        for write in self.writes:
            if write.call.method != "write_effects":
                found[write.write_id].append(write)
        return found

    @cached_property
    def whole(self) -> Versions:
        """The jobs whose rows were put since the trail began: all is known of them."""
        return {job_id: rows for job_id, rows in self.trail.versions.items() if rows[0].version == 1}


def writes_of(call: Call) -> Iterator[Write]:
    """The writes of one call to the ledger."""
    outcomes = call.heard.get("outcomes") or [{"heard": call.outcome}] * len(call.told["writes"])
    for told, heard in zip(call.told["writes"], outcomes, strict=True):
        yield Write(call, told, heard)


# --- reading ---------------------------------------------------------------------------------------------------------

Marks = Mapping[str, int]
"""How long each file of a folder was at some time, by its name."""


def marks_in(folder: Path) -> Marks:
    """From where a history that begins now is to be read."""
    return {file.name: file.stat().st_size for file in folder.iterdir()}


def read(folder: Path, since: Marks, trail: Trail, rows: Mapping[str, Job]) -> Recorded:
    """The history in this folder. What was begun before its beginning is left out."""
    recorded = Recorded([], trail, rows)
    processes = []
    for file in sorted(folder.iterdir()):
        text = file.read_bytes()
        first, *lines = text.split(b"\n")[:-1]  # without what a process was killed in the middle of
        skipped = since.get(file.name, 0)
        process = Process(msgspec.json.decode(first)["process"])
        position = len(first) + 1
        kept = []
        for line in lines:
            if position >= skipped:
                kept.append(line)
            position += len(line) + 1
        process.calls = _calls(process.name, kept)
        processes.append(process)
        recorded.lines += len(kept)
        recorded.bytes += max(0, len(text) - skipped)
    recorded.processes = processes
    return recorded


def _calls(process: str, lines: Sequence[bytes]) -> list[Call]:
    calls: dict[int, Call] = {}
    for place, line in enumerate(lines):
        told = msgspec.json.decode(line)
        number = told.pop("n")
        if "do" in told:
            calls[number] = Call(process, told.pop("do"), told, place)
        elif number in calls:
            calls[number].ended, calls[number].heard = place, told
    return list(calls.values())
