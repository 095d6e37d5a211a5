"""Bugs for a campaign to find: pieces of the product as respected queues have them, put in its place in every process.

A campaign that does not find each of them has not shown anything by finding none. Never in the product, only here. Each takes
the way to put a piece in another's place: `setattr` in a process that is planted for good, a test's own that takes it out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

PLANTED_VARIABLE = "CAMPAIGN_PLANTED"

Put = Callable[[Any, str, Any], None]
"""Whose, its name, and what to put there."""


def complete_by_id(put: Put) -> None:
    """A success is written whoever owns the job by now: its effects land a second time."""
    from ringfence import transitions
    from ringfence.change import all_of

    succeed = transitions.succeed

    def succeed_anyway(*args: Any, **kwargs: Any) -> Any:
        return dataclasses.replace(succeed(*args, **kwargs), condition=all_of())

    put(transitions, "succeed", succeed_anyway)


def two_writes(put: Put) -> None:
    """The effects land first, then the commit, each fenced by itself: what comes between the two repeats the effects."""
    from ringfence import settle

    succeed = settle._succeed

    def succeed_in_two_steps(ownership: Any, result: str, effects: Any, services: Any) -> Any:
        if effects:
            ownership.write_effects(effects)
        return succeed(ownership, result, (), services)

    put(settle, "_succeed", succeed_in_two_steps)


def acknowledge_first(put: Put) -> None:
    """The message is gone when the job begins: a worker that dies takes it along."""
    from ringfence.attempt import Taker

    take = Taker.take

    def take_and_acknowledge(self: Taker, queue: Any, lease: Any, *more: Any) -> Any:
        taken = take(self, queue, lease, *more)
        queue.acknowledge([lease])
        return taken

    put(Taker, "take", take_and_acknowledge)


def checkpoint_past_push(put: Put) -> None:
    """The relay goes on behind records whose tickets no queue has taken."""
    from ringfence.relay import Relay

    handle = Relay.handle

    def handle_and_go_on(self: Relay, records: Sequence[Any], *args: Any) -> None:
        handle(self, records, *args)

    put(Relay, "handle", handle_and_go_on)


def trust_redis(put: Put) -> None:
    """The timers do not ask whether a Redis has lost anything."""
    from ringfence.reconcile import Reconciler

    put(Reconciler, "notice", lambda self: 0)


PLANTS: Mapping[str, Callable[[Put], None]] = {
    "complete-by-id": complete_by_id,
    "two-writes": two_writes,
    "acknowledge-first": acknowledge_first,
    "checkpoint-past-push": checkpoint_past_push,
    "trust-redis": trust_redis,
}
