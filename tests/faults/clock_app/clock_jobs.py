"""Jobs of worker processes whose wall clocks are wrong: that of the first is ten minutes fast, of the second ten minutes slow,
and of the third another one at each look. What Python tells the jobs themselves is true."""

from __future__ import annotations

import json
import os
import random
import time
from pathlib import Path

from ringfence import App, Context
from ringfence.aws.clock import AwsClock
from ringfence.clock import SystemClock

TEN_MINUTES = 600_000
KINDS = ("fast", "slow", "jumping")

FOLDER = Path(os.environ["CLOCK_APP_FOLDER"])
app = App()


@app.job("note")
def note(ctx: Context) -> None:
    line = json.dumps({"job": ctx.job_id, "at": time.time(), "pid": os.getpid()}) + "\n"
    with (FOLDER / "started").open("a") as started:
        started.write(line)


def _kind() -> str:
    """Which of the processes this is. The command itself loads this module once more, in a process that ends then."""
    for kind in ("looked", *KINDS):
        try:
            (FOLDER / kind).touch(exist_ok=False)
        except FileExistsError:
            continue
        return kind
    return KINDS[-1]


def _go_wrong(kind: str) -> None:
    right = SystemClock.now
    shift = {"fast": lambda: TEN_MINUTES, "slow": lambda: -TEN_MINUTES}.get(
        kind, lambda: random.choice((TEN_MINUTES, 0, -TEN_MINUTES))
    )
    SystemClock.now = lambda self: right(self) + shift()  # type: ignore[method-assign]
    if os.environ.get("CLOCK_APP_NEVER_CORRECTED"):
        AwsClock.hear = lambda *_arguments: None  # type: ignore[method-assign]
    os.write(1, json.dumps({"event": "clock_shifted", "kind": kind, "pid": os.getpid()}).encode() + b"\n")


if (kind := _kind()) in KINDS:
    _go_wrong(kind)
