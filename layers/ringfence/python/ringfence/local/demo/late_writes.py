"""The writes that came too late: told by the worker that tried them, matched with the higher token in the ledger."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ringfence.local.demo.claims import Claim
from ringfence.local.demo.worker_log import Event
from ringfence.ports import Ledger

REFUSED = "late_write_refused"


@dataclass(frozen=True, slots=True)
class LateWrite:
    """A conditional write that the database refused."""

    job_id: str
    purpose: str
    """What it was to do: commit, heartbeat, dead, …"""
    held_token: int
    ledger_token: int
    """The job's token in the ledger, read afterwards."""

    @property
    def matched(self) -> bool:
        """Whether the ledger bears out that somebody else had claimed the job since."""
        return self.ledger_token > self.held_token


def late_writes_in(events: Iterable[Event], lost: Sequence[Claim], ledger: Ledger) -> tuple[LateWrite, ...]:
    """The refused writes among ``events`` that were made with one of the ``lost`` claims."""
    known = {(claim.job_id, claim.token) for claim in lost}
    refused = [
        event for event in events if event.name == REFUSED and (event.job_id, int(event.fields.get("held_token", -1))) in known
    ]
    rows = {job_id: ledger.get(job_id) for job_id in {event.job_id for event in refused}}
    return tuple(
        LateWrite(
            job_id=event.job_id,
            purpose=str(event.fields.get("purpose", "")),
            held_token=int(event.fields["held_token"]),
            ledger_token=row.token if (row := rows[event.job_id]) is not None else -1,
        )
        for event in refused
    )
