"""What nobody can read or run: into the quarantine with its bytes and the reason, and the job it stands for is dead."""

from __future__ import annotations

from ringfence import transitions
from ringfence.change import Written
from ringfence.errors import Poisoned, Unavailable
from ringfence.job import WAITING
from ringfence.ports import Lease, Services, SetAside

LOOKS = 10
"""How often a row that changes under its burial is looked at again."""


def set_aside_message(lease: Lease, fault: Poisoned, services: Services) -> None:
    """Keep a queue's message. Raises `Unavailable` when it cannot be kept: then it must not be acknowledged."""
    services.quarantine.put(
        SetAside(
            source=f"queue:{lease.queue}",
            position=lease.message_id,
            reason=fault.reason,
            data=lease.body.encode(errors="surrogatepass"),
            at=services.clock.now(),
            job_id=fault.job_id,
        )
    )
    services.telemetry.event("ticket_quarantined", queue=lease.queue, job_id=fault.job_id, reason=fault.reason)


def set_aside_record(shard: str, sequence: str, data: bytes, fault: Poisoned, services: Services) -> None:
    """Keep a record of the log. Raises `Unavailable` when it cannot be kept: then the checkpoint must not pass it."""
    services.quarantine.put(
        SetAside(
            source=f"log:{shard}",
            position=sequence,
            reason=fault.reason,
            data=data,
            at=services.clock.now(),
            job_id=fault.job_id,
        )
    )
    services.telemetry.event("record_quarantined", shard=shard, sequence=sequence, job_id=fault.job_id, reason=fault.reason)


def bury(job_id: str, reason: str, services: Services) -> None:
    """Write ``dead`` for a waiting job that can never run; one that runs or has ended is left alone.

    Raises `Unavailable` when that cannot be decided: then whatever stands for the job must not be acknowledged.
    """
    for _ in range(LOOKS):
        seen = next(iter(services.ledger.peek([job_id])), None)
        if seen is None or seen.state not in WAITING:
            return
        now = services.clock.now()
        expires_at = transitions.expiry(seen, now, services.retention_seconds)
        change = transitions.bury_unreadable(seen, reason, write_id=services.ids.mark(), now=now, expires_at=expires_at)
        outcome = services.ledger.write(change)
        if isinstance(outcome, Written):
            services.telemetry.event("job_dead", job_id=job_id, queue=seen.queue, job_name=seen.name, reason=reason)
            return
    raise Unavailable(f"job {job_id} keeps changing")
