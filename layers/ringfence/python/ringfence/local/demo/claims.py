"""Claims: who runs which job with which token. Seen first in a worker's log, believed only when the ledger says the same."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ringfence.job import Job, State
from ringfence.local.demo.worker_log import Event
from ringfence.ports import Ledger

CLAIMED = "job_claimed"
ENDINGS = frozenset(
    {"job_succeeded", "job_dead", "job_retried", "job_handed_over", "job_cancelled", "lease_lost", "outcome_undecided"}
)
"""Events after which an attempt is over."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A process's hold on a job."""

    job_id: str
    token: int
    pid: int

    def is_held(self, ledger: Ledger) -> bool:
        """Whether the ledger says that this process runs this job with this token now."""
        row = ledger.get(self.job_id)
        return row is not None and row.state is State.RUNNING and row.token == self.token and _pid_of(row) == self.pid

    def taken_over_by(self, ledger: Ledger) -> int | None:
        """The token that has come after this claim's; None while there is none."""
        row = ledger.get(self.job_id)
        return row.token if row is not None and row.token > self.token else None


class OpenClaims:
    """The claims that, by their own logs, processes hold and have not ended yet."""

    def __init__(self) -> None:
        self._open: dict[tuple[str, int], Claim] = {}

    def see(self, events: Iterable[Event]) -> None:
        for event in events:
            if event.name == CLAIMED:
                self._open[event.job_id, event.token] = Claim(event.job_id, event.token, event.pid)
            elif event.name in ENDINGS:
                self._open.pop((event.job_id, event.token), None)

    def newest_first(self) -> Iterator[Claim]:
        return reversed(list(self._open.values()))

    def of(self, pid: int) -> list[Claim]:
        return [claim for claim in self._open.values() if claim.pid == pid]


def _pid_of(row: Job) -> int | None:
    """A worker that is no Lambda is called ``<host>-<pid>``."""
    pid = (row.worker or "").rpartition("-")[2]
    return int(pid) if pid.isdigit() else None
