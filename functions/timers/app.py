"""The timers: each minute, what is due gets its ticket."""

from __future__ import annotations

from typing import Any

from ringfence import runtime


def handler(event: dict[str, Any], context: Any) -> dict[str, int]:
    """Release due jobs and drain the last resort; returns how many of each."""
    return runtime.current().timers.run(lambda: context.get_remaining_time_in_millis() / 1000, linger=True)
