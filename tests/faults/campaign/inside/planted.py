"""Bugs for a campaign to find: pieces of the product as respected queues have them, put in its place in every process.

A campaign that does not find each of them has not shown anything by finding none. Never in the product, only here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

PLANTED_VARIABLE = "CAMPAIGN_PLANTED"


def complete_by_id() -> None:
    """A success is written whoever owns the job by now: its effects land a second time."""
    from ringfence import transitions
    from ringfence.change import all_of

    succeed = transitions.succeed

    def succeed_anyway(*args: Any, **kwargs: Any) -> Any:
        return dataclasses.replace(succeed(*args, **kwargs), condition=all_of())

    transitions.succeed = succeed_anyway


def acknowledge_first() -> None:
    """The message is gone when the job begins: a worker that dies takes it along."""
    from ringfence.attempt import Taker

    take = Taker.take

    def take_and_acknowledge(self: Taker, queue: Any, lease: Any, *more: Any) -> Any:
        taken = take(self, queue, lease, *more)
        queue.acknowledge([lease])
        return taken

    Taker.take = take_and_acknowledge  # type: ignore[method-assign,assignment]


def checkpoint_past_push() -> None:
    """The relay goes on behind records whose tickets no queue has taken."""
    from ringfence.relay import Relay

    handle = Relay.handle

    def handle_and_go_on(self: Relay, records: Sequence[Any], *args: Any) -> None:
        handle(self, records, *args)

    Relay.handle = handle_and_go_on  # type: ignore[method-assign,assignment]


def trust_redis() -> None:
    """The timers do not ask whether a Redis has lost anything."""
    from ringfence.reconcile import Reconciler

    Reconciler.notice = lambda self: 0  # type: ignore[method-assign]


PLANTS: Mapping[str, Callable[[], None]] = {
    "complete-by-id": complete_by_id,
    "acknowledge-first": acknowledge_first,
    "checkpoint-past-push": checkpoint_past_push,
    "trust-redis": trust_redis,
}
