"""The jobs of the simulation. Each leaves one effect if it succeeds, and the history knows when each attempt began."""

from __future__ import annotations

import weakref
from functools import cache
from typing import TYPE_CHECKING

from ringfence import App, Context, Put, Retry
from ringfence.ownership import Ownership
from ringfence.retry import Backoff

if TYPE_CHECKING:
    from .world import World

TABLES = {"Effects": ("job",), "Once": ("job",), "Tried": ("job", "token")}
"""``Effects``: how often each job's effect landed. ``Once``: put-if-absent by job. ``Tried``: the same by attempt."""


class _Stage:
    """Where the jobs run at the time."""

    world: World


def app(world: World) -> App:
    """The one app, in this world from now on: one life is over before the next begins, and to make an app takes long."""
    _Stage.world = weakref.proxy(world)
    return _app()


@cache
def _app() -> App:
    made, here = App(), _Stage

    def start(ctx: Context) -> None:
        has_row = isinstance(ctx._hold, Ownership)
        here.world.note("started", ctx.job_id, ctx.token if has_row else 0, ctx.attempt)

    def later(ctx: Context, *seconds: float) -> Exception:
        """To be tried again after one of these times; without any, as soon as its backoff says. The history has the least
        delay, and the longest."""
        after_seconds = here.world.random.choice(seconds) if seconds else 0.0
        longest_seconds = after_seconds + made.jobs[ctx.name].backoff.ceiling(ctx.attempt)
        here.world.note("asked for later", ctx.job_id, ctx.attempt, after_seconds, longest_seconds)
        return Retry("later", after_seconds=after_seconds) if seconds else ConnectionError("the service is down")

    def begin(ctx: Context) -> None:
        start(ctx)
        ctx.effects.update("Effects", {"job": ctx.job_id}, add={"n": 1})

    @made.job("count")
    def count(ctx: Context, n: int) -> int:
        begin(ctx)
        return n

    @made.job("long", timeout="300s")
    def long(ctx: Context, n: int) -> int:
        """Three leases long, with a checkpoint between."""
        begin(ctx)
        for part in range(ctx.last_checkpoint or 0, 3):
            here.world.scheduler.sleep(here.world.random.uniform(2, 12))
            ctx.checkpoint(part + 1)
        return n

    @made.job("stubborn", timeout="60s", lease="6s")
    def stubborn(ctx: Context, n: int) -> int:
        """Often longer than a function or a process that stops may take, without a checkpoint, and with a lease of its own."""
        begin(ctx)
        here.world.scheduler.sleep(here.world.random.uniform(8, 30))
        return n

    @made.job("flaky", timeout="60s", backoff=Backoff(base_seconds=2.0, cap_seconds=60.0))
    def flaky(ctx: Context, n: int) -> int:
        """Fails at first, in all the ways there are."""
        begin(ctx)
        if ctx.attempt == 1:
            raise later(ctx)
        if ctx.attempt == 2:
            raise later(ctx, 1.0, 1_000.0)
        return n

    @made.job("two", timeout="60s")
    def two(ctx: Context, n: int) -> bool:
        """Guarded writes in between, and the effect at the end."""
        begin(ctx)
        first = ctx.write(Put(table="Once", item={"job": ctx.job_id, "token": ctx.token}, unless_exists=True))
        here.world.scheduler.sleep(here.world.random.uniform(0, 6))
        ctx.write(Put(table="Tried", item={"job": ctx.job_id, "token": ctx.token}, unless_exists=True))
        return first

    @made.job("doomed", backoff=Backoff(base_seconds=1.0, cap_seconds=5.0))
    def doomed(ctx: Context, n: int) -> None:
        begin(ctx)
        raise later(ctx)

    @made.job("plain", timeout="60s", backoff=Backoff(base_seconds=1.0, cap_seconds=5.0))
    def plain(ctx: Context, n: int) -> int:
        """For at-least-once: no row, and so no effect but what the history tells."""
        start(ctx)
        if ctx.attempt == 1 and n % 2:
            raise later(ctx, *(5.0, 30.0)[: n % 3])
        here.world.scheduler.sleep(here.world.random.uniform(0, 6))
        here.world.note("ran", ctx.job_id)
        return n

    return made
