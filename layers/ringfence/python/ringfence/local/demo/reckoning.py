"""The reckoning: what the ledger and the tables hold in the end, against what a plain loop over the same files found.

Pure: everything is read before. Whatever does not agree is said, file by file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from ringfence.job import Job, State
from ringfence.local.demo.late_writes import LateWrite
from ringfence.local.demo.plain import Expected, Row

TIMES_INDEXED = "times_indexed"
"""The attribute of a module's row that each effect raises by one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What is there after the last job has ended. Files are named by their keys."""

    files: Sequence[str]
    jobs: Mapping[str, Job | None]
    """The row of each accepted job, None if the ledger has none."""
    modules: Mapping[str, Row]
    totals: Mapping[str, Row]
    late_writes: Sequence[LateWrite]


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The demo's last line."""

    files: int
    accepted: int
    succeeded: int
    dead: int
    lost: int
    """Accepted jobs that did not end, or whose effect is missing."""
    doubled: int
    """Effects that landed more than once, by the modules' rows or by the packages' totals."""
    late_writes_refused: int
    attempts: int
    seconds: float


@dataclass(frozen=True, slots=True)
class Verdict:
    """The numbers, and every disagreement in words. No words, and everything is as promised."""

    summary: Summary
    disagreements: tuple[str, ...]


def reckon(expected: Expected, found: Found, seconds: float) -> Verdict:
    """Compare everything with everything."""
    rows = [row for row in found.jobs.values() if row is not None]
    late = [write for write in found.late_writes if write.matched]
    summary = Summary(
        files=len(found.files),
        accepted=len(found.jobs),
        succeeded=sum(row.state is State.SUCCEEDED for row in rows),
        dead=sum(row.state is State.DEAD for row in rows),
        lost=len(list(_lost(found))),
        doubled=max(_doubled_rows(found), _doubled_totals(expected, found)),
        late_writes_refused=len(late),
        attempts=sum(row.attempts for row in rows),
        seconds=round(seconds, 1),
    )
    disagreements = (
        *(f"{key} was not accepted" for key in found.files if key not in found.jobs),
        *_lost(found),
        *_ends(expected, found),
        *_differences("module", expected.modules, {key: _counts(row) for key, row in found.modules.items()}),
        *(
            f"{key} was indexed {row.get(TIMES_INDEXED, 0)} times"
            for key, row in found.modules.items()
            if row.get(TIMES_INDEXED) != 1
        ),
        *_differences("package", expected.totals, found.totals),
        *_late(found.late_writes),
    )
    return Verdict(summary, disagreements)


def _lost(found: Found) -> Iterator[str]:
    for key, row in found.jobs.items():
        if row is None:
            yield f"{key}: its job is not in the ledger"
        elif not row.state.terminal:
            yield f"{key}: its job {row.job_id} has not ended, it is {row.state}"
        elif row.state is State.SUCCEEDED and key not in found.modules:
            yield f"{key}: its job {row.job_id} succeeded, but its effect is missing"


def _ends(expected: Expected, found: Found) -> Iterator[str]:
    """Each job must have ended as the plain loop's parser says: ``dead`` with its message, or ``succeeded``."""
    for key, row in found.jobs.items():
        if row is None or not row.state.terminal:
            continue
        message = expected.unparseable.get(key)
        if (row.state is State.DEAD) != (message is not None) or row.state is State.CANCELLED:
            yield f"{key}: its job is {row.state} ({row.error or 'no error'}), the plain loop found {message or 'no fault'}"
        elif message is not None and message not in (row.error or ""):
            yield f"{key}: its job's error is {row.error!r}, the parser's message {message!r}"


def _doubled_rows(found: Found) -> int:
    return sum(max(0, row.get(TIMES_INDEXED, 0) - 1) for row in found.modules.values())


def _doubled_totals(expected: Expected, found: Found) -> int:
    nothing: Row = {}
    return sum(
        max(0, row.get("modules", 0) - expected.totals.get(package, nothing).get("modules", 0))
        for package, row in found.totals.items()
    )


def _counts(row: Row) -> Row:
    return {name: value for name, value in row.items() if name != TIMES_INDEXED}


def _differences(what: str, wanted: Mapping[str, Row], actual: Mapping[str, Row]) -> Iterator[str]:
    for name in sorted(wanted.keys() | actual.keys()):
        if wanted.get(name) != actual.get(name):
            yield f"{what} {name}: {_told(actual.get(name))} in the table, {_told(wanted.get(name))} in the plain loop"


def _told(row: Row | None) -> str:
    return "nothing" if row is None else ", ".join(f"{name} {value}" for name, value in sorted(row.items()))


def _late(late_writes: Iterable[LateWrite]) -> Iterator[str]:
    writes = list(late_writes)
    if not any(write.matched for write in writes):
        yield "no late write of the thawed worker was refused"
    for write in writes:
        if not write.matched:
            yield (
                f"job {write.job_id}: a {write.purpose} with token {write.held_token} was refused, "
                f"but the ledger's token is {write.ledger_token}"
            )
