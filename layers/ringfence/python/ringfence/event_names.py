"""What is known of the events by name: how loud each is, which are counted, and what none may tell.

An event that is not listed here is told at INFO and not counted.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

NEVER_TOLD = frozenset({"payload", "result", "checkpoint", "body", "data"})
"""Fields that would carry what a user sent or a job returned."""

LEVELS: Mapping[str, int] = {
    "job_held": logging.DEBUG,
    "job_early": logging.DEBUG,
    "mark_moved": logging.DEBUG,
    "job_retried": logging.WARNING,
    "lease_lost": logging.WARNING,
    "late_write_refused": logging.WARNING,
    "heartbeat_failed": logging.WARNING,
    "append_failed": logging.WARNING,
    "withdraw_failed": logging.WARNING,
    "line_failed": logging.WARNING,
    "park_failed": logging.WARNING,
    "push_failed": logging.WARNING,
    "settings_stale": logging.WARNING,
    "release_failed": logging.WARNING,
    "tickets_renewed": logging.WARNING,
    "repair_started": logging.WARNING,
    "relay_held": logging.WARNING,
    "timers_held": logging.WARNING,
    "claim_failed": logging.WARNING,
    "clock_wrong": logging.WARNING,
    "job_claimed_early": logging.WARNING,
    "message_failed": logging.WARNING,
    "queue_unreachable": logging.WARNING,
    "thread_not_started": logging.WARNING,
    "aws_call_failed": logging.WARNING,
    "redis_call_failed": logging.WARNING,
    "redis_not_inspected": logging.WARNING,
    "redis_evicts_other_keys": logging.WARNING,
    "redis_evicts_queues": logging.ERROR,
    "queue_memory_lost": logging.ERROR,
    "request_failed": logging.ERROR,
    "job_dead": logging.ERROR,
    "record_quarantined": logging.ERROR,
    "ticket_quarantined": logging.ERROR,
    "last_resort_drained": logging.ERROR,
}


@dataclass(frozen=True, slots=True)
class Counted:
    """The metric an event adds to: by one, or by the field that ``by_field`` names. ``unit`` is CloudWatch's word for it."""

    metric: str
    by_field: str | None = None
    unit: Literal["Count", "Seconds"] = "Count"


METRICS: Mapping[str, Counted] = {
    "job_accepted": Counted("AcceptedJobs"),
    "job_succeeded": Counted("SucceededJobs"),
    "carried_jobs_succeeded": Counted("SucceededJobs", "count"),
    "job_retried": Counted("RetriedJobs"),
    "job_dead": Counted("DeadJobs"),
    "job_handed_over": Counted("HandedOverJobs"),
    "lease_lost": Counted("LostLeases"),
    "late_write_refused": Counted("LateWritesRefused"),
    "append_failed": Counted("FailedAppends"),
    "push_failed": Counted("FailedPushes", by_field="count"),
    "heartbeat_failed": Counted("FailedHeartbeats"),
    "record_quarantined": Counted("Quarantined"),
    "ticket_quarantined": Counted("Quarantined"),
    "last_resort_drained": Counted("LastResortDrained"),
    "queue_memory_lost": Counted("QueueMemoriesLost"),
    "repair_started": Counted("Repairs"),
    "tickets_renewed": Counted("RenewedTickets", by_field="count"),
}
"""Each costs a CloudWatch metric per queue, so only what is alarmed on or drawn is counted."""

MEASURED: Mapping[str, Sequence[Counted]] = {
    "queue_depth": (
        Counted("ReadyTickets", by_field="ready"),
        Counted("LeasedTickets", by_field="leased"),
        Counted("DelayedTickets", by_field="delayed"),
        Counted("OldestReadySeconds", by_field="oldest_ready_seconds", unit="Seconds"),
    ),
}
"""Events that say how something stands: several metrics each. CloudWatch knows by itself how queues on SQS do."""
