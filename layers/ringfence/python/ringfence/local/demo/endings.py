"""Which jobs have ended: heard from the workers' logs as it happens, and asked of the ledger when the logs fall silent."""

from __future__ import annotations

import random
import time
from collections.abc import Collection, Sequence

from ringfence.local.demo.worker_log import WorkerLog
from ringfence.ports import Ledger

ENDED = frozenset({"job_succeeded", "job_dead", "job_cancelled", "claim_finished"})
"""Events after which a job is in a terminal state. The last one tells of an end whose own event was never written."""

SILENCE_SECONDS = 3.0
ASKED_AT_ONCE = 20
"""Rows read in one go: the ledger has more important things to do, and the bar shall move."""

STALL_SECONDS = 75.0
"""Without a new job or an ending for so long, waiting is given up: longer than a lease, a take-over and a backoff together."""


class Endings:
    """The jobs of one demo that are still to end. ``job_ids`` may grow while they are watched."""

    def __init__(self, log: WorkerLog, ledger: Ledger) -> None:
        self._log, self._ledger = log, ledger
        self._heard: set[str] = set()
        self._known = 0
        self._latest = self._asked = time.monotonic()

    @property
    def stalled(self) -> bool:
        return time.monotonic() - self._latest > STALL_SECONDS

    def count(self, job_ids: Collection[str]) -> int:
        """How many of these have ended."""
        new = {event.job_id for event in self._log.new_events() if event.name in ENDED}
        now = time.monotonic()
        if not new - self._heard and now - max(self._latest, self._asked) > SILENCE_SECONDS:
            self._asked = now
            new = self._ask([job_id for job_id in job_ids if job_id not in self._heard])
        if new - self._heard or len(job_ids) != self._known:
            self._latest = now
        self._heard |= new
        self._known = len(job_ids)
        return sum(job_id in self._heard for job_id in job_ids)

    def _ask(self, job_ids: Sequence[str]) -> set[str]:
        """Those of some of these that the ledger says have ended: others every time."""
        some = random.sample(job_ids, min(ASKED_AT_ONCE, len(job_ids)))
        rows = [self._ledger.get(job_id) for job_id in some]
        return {row.job_id for row in rows if row is not None and row.state.terminal}
