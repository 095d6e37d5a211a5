"""The closing table: what was done to the workers, and what came of it."""

from __future__ import annotations

from ringfence.local.demo.broken import BROKEN_FILES
from ringfence.local.demo.faults import Damage
from ringfence.local.demo.late_writes import LateWrite
from ringfence.local.demo.reckoning import Verdict

Row = tuple[str, str]


def closing_table(verdict: Verdict, damage: Damage | None) -> list[Row]:
    """Names and values, for people."""
    summary = verdict.summary
    return [
        ("files", told_files(summary.files)),
        ("jobs accepted", str(summary.accepted)),
        ("… succeeded", str(summary.succeeded)),
        ("… dead, as the parser says", str(summary.dead)),
        ("attempts", str(summary.attempts)),
        *(() if damage is None else _damage(damage)),
        ("lost", str(summary.lost)),
        ("doubled", str(summary.doubled)),
        ("late writes refused", str(summary.late_writes_refused)),
        ("seconds", str(summary.seconds)),
        ("verdict", f"{len(verdict.disagreements)} disagreements" if verdict.disagreements else "every number agrees"),
    ]


def told_files(files: int) -> str:
    """How many files there are, and that some of them are the demo's."""
    return f"{files}: {files - BROKEN_FILES} found, {BROKEN_FILES} broken ones of the demo's own"


def _damage(damage: Damage) -> list[Row]:
    frozen, killed = damage.frozen, damage.killed
    return [
        ("worker frozen", f"{frozen.pid} for {damage.frozen_seconds:.1f} s; jobs taken over: {len(damage.taken_over)}"),
        ("worker killed", f"{killed.pid}; jobs in hand: {len(killed.claims)}"),
        *(("late write refused", _told(late)) for late in damage.late_writes),
    ]


def _told(late: LateWrite) -> str:
    return f"{late.purpose} of {late.job_id} with token {late.held_token}; the ledger has {late.ledger_token}"
