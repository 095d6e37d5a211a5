"""The very same call, again and again until it is decided: against conflicts, throttles, lost replies; bounded."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ringfence.errors import Unavailable
from ringfence.ports import Services
from ringfence.retry import Backoff

PATIENCE_SECONDS = 20.0
"""How long an owner repeats a call while its heartbeat keeps the lease."""

PAUSES = Backoff(base_seconds=0.05, cap_seconds=2.0)

Result = TypeVar("Result")


def patiently(call: Callable[[], Result], services: Services) -> Result:
    """What ``call`` returns, as soon as it does not raise `Unavailable`. Raises the last one when the patience is spent.

    Only for calls that may be sent twice: a `Change` recognises its own write, a read does nothing.
    """
    clock = services.clock
    give_up_at = clock.monotonic() + PATIENCE_SECONDS
    tries = 0
    while True:
        tries += 1
        try:
            return call()
        except Unavailable:
            pause_seconds = PAUSES.delay(tries, services.random_source)
            if clock.monotonic() + pause_seconds >= give_up_at:
                raise
            clock.sleep(pause_seconds)
