"""A campaign from beginning to end: check the bed, load and faults, heal, drain, reckon."""

from __future__ import annotations

import dataclasses
import random
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from ringfence.job import Job
from ringfence.local.demo.tables import rows_of

from .acts import Stage
from .bed import DEFAULT, PRIORITY, Bed
from .books import Books
from .events import Story, happened
from .history import Recorded, marks_in, read
from .history_checkers import faults_of, silent_hops
from .inside.traces import COUNTER_KEY, COUNTERS, LAST, is_of
from .load import Load
from .nemesis import Nemesis
from .plan import Plan
from .reckoning import Found, Reckoned, Summary, reckon
from .redrives import Redrives
from .watch import Watch

ANSWER_SECONDS = 120.0
"""After everything is healed, clients get their answers within this."""

LOOK_SECONDS = 1.0
READ_AT_ONCE = 100


class Campaign:
    """One campaign on a bed. ``run`` is for the thread that started it."""

    def __init__(self, bed: Bed, plan: Plan, say: Callable[[str], None], progress: Callable[[str], None]) -> None:
        self._bed, self._plan, self._say, self._progress = bed, plan, say, progress
        self.books = Books()
        self.watch = Watch(bed.dev.logs, self.books)
        self.load = Load(bed.dev.api_url, [DEFAULT, PRIORITY], self.books, plan, self.watch.outstanding)
        self._redrives = Redrives(bed.client, self.books, self.watch)
        stage = Stage(bed, self.load, self.watch, self.books, random.Random(plan.seed))
        self._confirmed = stage.confirmed
        self._nemesis = Nemesis(stage, plan, say, self._missing)
        self._history_since = marks_in(bed.history)
        self._began = time.monotonic()

    def run(self) -> tuple[Summary, Reckoned]:
        """Load and faults, then heal, drain and reckon."""
        self._hurt()
        hurt_seconds = time.monotonic() - self._began
        accepted, ended = len(self.books.promises), self.watch.ends()
        clients_left, drained_seconds, tickets_left = self._drain()
        self._raise_faults()
        self._say("reading every row of the ledger and of the tables")
        found = self._found(tickets_left, clients_left)
        recorded, in_history = self._judge_history(found.rows)
        told = [f"{checker}: {line}" for checker, lines in in_history.items() for line in lines]
        told += [f"the history tells of no {hop}" for hop in silent_hops(recorded)]
        reckoned = reckon(dataclasses.replace(found, contradictions=[*found.contradictions, *told]))
        events = self._happened(found.rows.values())
        summary = Summary(
            queues=self._bed.engines,
            seed=self._plan.seed,
            minutes=round(hurt_seconds / 60, 1),
            lost=len(reckoned.lost),
            doubled=len(reckoned.doubled),
            stuck=len(reckoned.stuck),
            other=len(reckoned.other),
            accepted=len(found.promises),
            succeeded=reckoned.states.get("succeeded", 0),
            dead=reckoned.states.get("dead", 0),
            cancelled=reckoned.states.get("cancelled", 0),
            excused=len(reckoned.excused),
            late_writes_refused=self.watch.counts["late_write_refused"],
            accepted_per_second=round(accepted / hurt_seconds, 1),
            ended_per_second=round(ended / hurt_seconds, 1),
            drained_seconds=round(drained_seconds, 1),
            faults=self._nemesis.faults.total(),
            faults_by_act=dict(sorted(self._nemesis.faults.items())),
            history_lines=recorded.lines,
            found_in_history={checker: len(lines) for checker, lines in in_history.items()},
            happened={name: count for name, count in events.items() if count},
            never_happened=[name for name, count in events.items() if not count],
        )
        return summary, reckoned

    # --- the safety phase --------------------------------------------------------------------------------------------

    def _hurt(self) -> None:
        self._bed.begin_trail()
        self.watch.start()
        self.load.start()
        self._redrives.start()
        self._say(f"load: {self._plan.rate:g} jobs a second; the faults begin in {self._plan.quiet_seconds:g} s")
        self._bed.wait_for("the first jobs have ended", lambda: self.watch.ends() > 0, 60.0)
        time.sleep(self._plan.quiet_seconds)
        self._nemesis.run(self._plan.seconds, self._tick)

    def _tick(self) -> None:
        told = f"{len(self.books.promises)} accepted, {self.watch.outstanding()} outstanding"
        self._progress(f"{told}, {self._nemesis.faults.total()} faults")

    # --- the drain ---------------------------------------------------------------------------------------------------

    def _drain(self) -> tuple[int, float, bool]:
        """Returns how many clients have no answer, how long it took, and whether tickets are left."""
        self._say("healing everything; draining")
        began = time.monotonic()
        self._bed.heal()
        self.load.burst(1.0)
        clients_left = self.load.finish(ANSWER_SECONDS)
        self._redrives.finish()
        self.watch.last_end = time.monotonic()
        left = self._unended()
        tickets_left = True
        while time.monotonic() - self.watch.last_end < self._plan.stalled_seconds:
            left = self._unended(left)
            self._progress(f"{len(left)} jobs have not ended")
            if not left and not (tickets_left := not self._bed.empty()):
                break
            time.sleep(LOOK_SECONDS)
        seconds = time.monotonic() - began
        self.watch.stop()
        self._say(f"drained in {seconds:.0f} s" if not left and not tickets_left else f"NOT drained after {seconds:.0f} s")
        return clients_left, seconds, tickets_left

    def _unended(self, among: Sequence[str] | None = None) -> Sequence[str]:
        """Job ids that have a row which is not terminal."""
        job_ids = [promise.job_id for promise in self.books.with_rows()] if among is None else among
        return [row.job_id for row in self._rows(job_ids) if not row.state.terminal]

    def _rows(self, job_ids: Sequence[str]) -> Sequence[Job]:
        peek = self._bed.ledger.peek
        return [row for n in range(0, len(job_ids), READ_AT_ONCE) for row in peek(job_ids[n : n + READ_AT_ONCE])]

    def _raise_faults(self) -> None:
        """What went wrong in the campaign's own threads."""
        for fault in [*self.load.failures, self.watch.fault, self._redrives.fault]:
            if fault is not None:
                raise fault

    # --- the reckoning -----------------------------------------------------------------------------------------------

    def _happened(self, rows: Iterable[Job]) -> Mapping[str, int]:
        """How often each interesting event happened."""
        there = {"sqs": self._bed.sqs_queues, "redis": self._bed.redis_queues}
        lease_ms = round(self._bed.lease_seconds * 1_000)
        return happened(Story(self.watch.counts, rows, self.books, lease_ms, frozenset(self._confirmed)), there)

    def _missing(self) -> Collection[str]:
        """What has not happened so far, as far as it can be told without the rows."""
        return [name for name, count in self._happened(()).items() if not count]

    def _found(self, tickets_left: bool, clients_left: int) -> Found:
        bed, promises = self._bed, self.books.all()
        return Found(
            promises=promises,
            rows={row.job_id: row for row in self._rows([promise.job_id for promise in promises])},
            counters=self._written(COUNTERS, COUNTER_KEY),
            last=self._written(LAST, "module"),
            carried_runs=Counter(key for file in bed.runs.iterdir() for key in file.read_text().split()),
            told_succeeded=self.watch.succeeded,
            redis_queues=bed.redis_queues,
            redis_losses=self.books.redis_losses,
            contradictions=self.books.contradictions,
            tickets_left=tickets_left,
            clients_left=clients_left,
        )

    def _judge_history(self, rows: Mapping[str, Job]) -> tuple[Recorded, Mapping[str, Sequence[str]]]:
        """What the processes wrote down, held against itself and against what the store has told; and what is wrong with it."""
        began = time.monotonic()
        trail = self._bed.trail(lambda key: is_of(self._plan.seed, key))
        recorded = read(self._bed.history, self._history_since, trail, rows)
        faults = faults_of(recorded)
        self._say(f"{_told(recorded)}; checked in {time.monotonic() - began:.1f} s")
        return recorded, faults

    def _written(self, table: str, key: str) -> Mapping[str, Mapping[str, int]]:
        """What our jobs wrote: there may be others' in these tables."""
        rows = rows_of(self._bed.dynamodb, self._bed.table(table), key)
        return {name: row for name, row in rows.items() if is_of(self._plan.seed, name)}


def _told(recorded: Recorded) -> str:
    rows = recorded.trail.versions
    versions, unknown = sum(map(len, rows.values())), sum(write.outcome == "unknown" for write in recorded.writes)
    size = f"{recorded.lines} lines, {recorded.bytes / 1e6:.1f} MB, of {len(recorded.processes)} processes"
    writes = f"{len(recorded.writes)} writes, of which {unknown} unheard of"
    return f"history: {size}; {writes}; {versions} versions of {len(rows)} rows"
