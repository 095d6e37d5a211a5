"""What nobody can read goes to the quarantine, with its bytes, where it came from, and why."""

from __future__ import annotations

from ringfence.errors import Poisoned
from ringfence.ports import Lease, Services, SetAside


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
