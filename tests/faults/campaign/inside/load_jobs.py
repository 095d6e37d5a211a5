"""The jobs of a campaign. Each adds one to a counter of its own and puts an item, so that a second time shows."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

from orders import ORDERS_VARIABLE
from traces import COUNTERS, LAST, RUNS_VARIABLE, shared_counter

from ringfence import App, Context, Dead
from ringfence.retry import Backoff

SLICE_SECONDS = 0.05
SOON = Backoff(base_seconds=0.3, cap_seconds=2.0)
"""Faults cost attempts, and a drain is not to wait for backoffs."""

if "instrumented" not in sys.modules and ORDERS_VARIABLE in os.environ:
    # In a `ringfence worker`: nothing is imported there before the app.
    import instruments

    instruments.install()
    instruments.make_clock_wrong()


def tally(ctx: Context, key: str, seconds: float = 0.0, fails: int = 0, blunt: bool = False) -> dict[str, int]:
    """Counts after some time; its first attempts may fail. A blunt one never looks whether it is still wanted."""
    if blunt:
        time.sleep(seconds)
    else:
        _work(ctx, seconds)
    if ctx.attempt <= fails:
        raise RuntimeError("not yet")
    _count(ctx, key)
    return {"token": ctx.token}


def steps(ctx: Context, key: str, steps: int) -> dict[str, int]:
    """Counts at the end of some steps; goes on after the last that was saved."""
    return _steps(ctx, key, steps)


def haul(ctx: Context, key: str, steps: int) -> dict[str, int]:
    """The same, and longer than an invocation."""
    return _steps(ctx, key, steps)


def doomed(ctx: Context, key: str, mended: bool = False) -> dict[str, int]:
    """Dead at once, until it is redriven with another payload."""
    if not mended:
        raise Dead("it was never meant to be")
    _count(ctx, key)
    return {"token": ctx.token}


def pill(ctx: Context, key: str) -> None:
    """Kills its worker."""
    ctx.effects.update(COUNTERS, {"package": key}, add={"runs": 1})
    os.kill(os.getpid(), signal.SIGKILL)


def carry(ctx: Context, key: str) -> None:
    """Without a row: notes that it ran, as often as it does."""
    with (Path(os.environ[RUNS_VARIABLE]) / f"{os.getpid()}").open("ab", buffering=0) as noted:
        noted.write(f"{key}\n".encode())


def _steps(ctx: Context, key: str, steps: int) -> dict[str, int]:
    for step in range(ctx.last_checkpoint or 0, steps):
        _work(ctx, 0.2)
        ctx.checkpoint(step + 1)
    _count(ctx, key)
    return {"token": ctx.token}


def _work(ctx: Context, seconds: float) -> None:
    """In slices that are counted: a process that was frozen has as much left as before, and its heartbeat beats first."""
    for _ in range(round(seconds / SLICE_SECONDS)):
        time.sleep(SLICE_SECONDS)
        ctx.stop_if_asked()


def _count(ctx: Context, key: str) -> None:
    """Nothing here guards against a second run: only the transaction that carries it does."""
    ctx.effects.update(COUNTERS, {"package": key}, add={"runs": 1})
    ctx.effects.update(COUNTERS, {"package": shared_counter(key)}, add={"runs": 1})
    ctx.effects.put(LAST, {"module": key, "token": ctx.token})


def register(app: App) -> App:
    """These jobs beside those it has."""
    for job, timeout in ((tally, "15s"), (steps, "15s"), (haul, "70s"), (doomed, "15s"), (pill, "15s"), (carry, "15s")):
        app.job(job.__name__, timeout=timeout, backoff=SOON)(job)
    return app


app = register(App())
