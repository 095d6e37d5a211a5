"""What may be sent to ``PATCH /v1/queues/{name}``."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, UnsetType

from ringfence.http import json_body
from ringfence.queue_settings import (
    MAX_BURST,
    MAX_HIGH_WATER_MARK,
    MAX_RATE_PER_SECOND,
    MIN_RATE_PER_SECOND,
    refuse_zero_limits,
)

Rate = Annotated[
    float,
    Meta(
        ge=MIN_RATE_PER_SECOND, le=MAX_RATE_PER_SECOND, description="Tickets a second on average; 0.2 is one in five seconds."
    ),
]
Burst = Annotated[
    int, Meta(ge=1, le=MAX_BURST, description="Tickets that may come at once after a pause, where there is a rate.")
]
HighWaterMark = Annotated[
    int, Meta(ge=1, le=MAX_HIGH_WATER_MARK, description="Tickets in the queue above which no more are pushed.")
]


class QueueChange(msgspec.Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """The settings to change; those left out stay as they are, and null takes a limit away.

    A rate or mark holds back newcomers, retries and jobs that fall due: they wait in line and are released in its order. What
    is in the queue already is not called back."""

    rate_per_second: Rate | UnsetType | None = UNSET
    burst: Burst | UnsetType = UNSET
    paused: bool | UnsetType = UNSET
    high_water_mark: HighWaterMark | UnsetType | None = UNSET


def read_changes(text: str) -> dict[str, Any]:
    """The settings that a body names, and their new values. Raises `Rejected` with a pointer for the first fault."""
    json_body.parse(text)
    body = json_body.decode(text, object)
    if isinstance(body, dict):
        refuse_zero_limits(body)
    change = json_body.decode(text, QueueChange)
    return {name: value for name in change.__struct_fields__ if (value := getattr(change, name)) is not UNSET}
