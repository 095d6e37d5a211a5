"""What must hold of a queue with a pace: how many tickets become visible in it, and how many are in it at a time."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ringfence.pace import DEPTH_SECONDS, LONGEST_PUSH_MS
from ringfence.ports import Depth

from .history import pushed_in
from .wire import REPLY_SECONDS, REQUEST_SECONDS

if TYPE_CHECKING:
    from .world import World

LONGEST_PUSH_SECONDS = LONGEST_PUSH_MS / 1_000


def the_pace_is_kept(world: World) -> Iterator[str]:
    """In no window of w seconds become more tickets visible in the paced queue than rate · (w + slack) + burst.

    The slack is the time of a push and of two replies, for a wait is drawn out by so much that no ticket overtakes the push
    before it; by a second, where such a push was slow; and the error of the relays' and timers' clocks. What is put back into
    the queue is no new ticket: a message released or handed over. A delay begins when its push arrives: one that the wire holds
    up is reckoned from when it was sent, and what it delivers twice is one.
    """
    plan = world.plan
    if plan.rate_per_second is None:
        return
    visible: dict[str, float] = {}
    push_seconds = REQUEST_SECONDS[1]
    for entry in world.history.of("queue:paced.push"):
        if entry.heard and entry.at > entry.sent_at + REQUEST_SECONDS[1]:
            push_seconds = LONGEST_PUSH_SECONDS
        for ticket, delay in pushed_in(entry):
            visible.setdefault(ticket.ticket_id, entry.sent_at + delay)
    moments = sorted(visible.values())
    slack = push_seconds + 2 * REPLY_SECONDS[1] + world.clock_error_seconds("relay", "timers")
    for first, last in itertools.combinations(range(len(moments)), 2):
        span = moments[last] - moments[first]
        if last - first + 1 > plan.rate_per_second * (span + slack) + plan.burst + 0.01:
            yield f"{last - first + 1} tickets became visible in {span:.3f} s from {moments[first]:.3f} on"
            return


def the_high_water_mark_holds(world: World) -> Iterator[str]:
    """No push brings more tickets into the paced queue than there was room for below the mark when its process looked last.

    It must have looked less than `DEPTH_SECONDS` before it asked for their releases. What others have pushed since then it
    cannot know, nor what of its own was taken without its hearing of it. The next attempt of an at-least-once job takes the
    place of the ticket that its worker acknowledges.
    """
    mark = world.plan.high_water_mark
    if mark is None:
        return
    looks: dict[str, _Look] = {}
    for entry in world.history.of("queue:paced.depth", "limiter.reserve", "queue:paced.push"):
        look = looks.get(entry.process)
        if not entry.heard or entry.raised is not None:
            continue
        if entry.what == "queue:paced.depth":
            depth: Depth = entry.reply
            looks[entry.process] = _Look(entry.at, depth.ready + depth.leased + depth.delayed)
        elif entry.what == "limiter.reserve":
            if look is not None:
                look.relied_on_at = entry.sent_at
        elif not all(ticket.attempts for ticket in entry.args[0]):
            if look is None:
                yield f"{entry.process} pushed at {entry.at:.3f}, and had not looked how many there were"
                return
            look.pushed += len(entry.args[0]) - len(entry.reply)
            relied_on_at = entry.sent_at if world.plan.rate_per_second is None else look.relied_on_at
            if relied_on_at > look.at + DEPTH_SECONDS + REPLY_SECONDS[1]:
                yield f"{entry.process} pushed at {entry.at:.3f}, and had looked at {look.at:.3f} how many there were"
                return
            if look.pushed > max(0, mark - look.tickets):
                yield (
                    f"{entry.process} has pushed {look.pushed} tickets until {entry.at:.3f} since it saw {look.tickets} at "
                    f"{look.at:.3f}, and there may be {mark}"
                )
                return


@dataclass(slots=True)
class _Look:
    """What a process knows of how many tickets are in the queue."""

    at: float
    tickets: int
    pushed: int = 0
    """By the process itself since then, as far as it has heard."""
    relied_on_at: float = 0.0
    """When it asked for the releases of those that it pushed next."""


PACE_CHECKERS = (the_pace_is_kept, the_high_water_mark_holds)
