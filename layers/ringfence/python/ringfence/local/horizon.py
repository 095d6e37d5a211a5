"""How far ahead paced tickets are pushed where timers run more often than each minute."""

from __future__ import annotations

LEAST_SECONDS, MOST_SECONDS = 5.0, 900.0
"""A run of the timers may take longer than their period; and longer than this SQS can delay nothing."""


def horizon_variable(timers_every_seconds: float | None) -> dict[str, str]:
    """The sooner timers come again, the less is pushed ahead of time, and the sooner a changed rate is felt."""
    if timers_every_seconds is None:
        return {}
    seconds = min(MOST_SECONDS, max(LEAST_SECONDS, 2 * timers_every_seconds))
    return {"RINGFENCE_PACE_HORIZON_SECONDS": f"{seconds:g}"}
