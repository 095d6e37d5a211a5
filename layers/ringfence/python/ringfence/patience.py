"""The very same call, again and again until it is decided: against conflicts, throttles, lost replies; bounded."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ringfence.errors import Unavailable
from ringfence.ports import Services
from ringfence.retry import Backoff, Pauses

PATIENCE_SECONDS = 20.0
"""How long an owner repeats a call while its heartbeat keeps the lease."""

REST_SECONDS = 5.0
"""How long a ticket then rests. Whoever takes it next comes with fresh patience."""

BACKOFF = Backoff(base_seconds=0.05, cap_seconds=2.0)

Result = TypeVar("Result")


def patiently(call: Callable[[], Result], services: Services, seconds: float = PATIENCE_SECONDS) -> Result:
    """What ``call`` returns, as soon as it does not raise `Unavailable`. Raises the last one when the patience is spent.

    Only for calls that may be sent twice: a `Change` recognises its own write, a read does nothing.
    """
    pauses = Pauses(BACKOFF, services.clock, services.random_source, seconds=seconds)
    while True:
        try:
            return call()
        except Unavailable:
            if not pauses.another_try():
                raise
