"""Which jobs have ended: heard from the workers' logs as it happens, and asked of the ledger when the logs fall silent."""

from __future__ import annotations

import time
from collections.abc import Collection

from ringfence.local.demo.worker_log import WorkerLog
from ringfence.ports import Ledger

ENDED = frozenset({"job_succeeded", "job_dead", "job_cancelled", "claim_finished"})
"""Events after which a job is in a terminal state. The last one tells of an end whose own event was never written."""

SILENCE_SECONDS = 2.0
STALL_SECONDS = 75.0
"""Without a single ending for so long, waiting is given up: longer than a lease, a take-over and a backoff together."""


class Endings:
    """The jobs of one demo that are still to end. ``job_ids`` may grow while they are watched."""

    def __init__(self, log: WorkerLog, ledger: Ledger) -> None:
        self._log, self._ledger = log, ledger
        self._heard: set[str] = set()
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
            new = {job_id for job_id in job_ids if job_id not in self._heard and self._has_ended(job_id)}
        if new - self._heard:
            self._latest = now
            self._heard |= new
        return sum(job_id in self._heard for job_id in job_ids)

    def _has_ended(self, job_id: str) -> bool:
        row = self._ledger.get(job_id)
        return row is not None and row.state.terminal
