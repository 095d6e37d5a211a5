"""Jobs for the fault tests, whose effect shows when it happens twice."""

from __future__ import annotations

from typing import Literal

from ringfence import App, Context, Dead
from ringfence.testing.gate import wait_until_open

app = App()

TABLE = "PackageTotals"


@app.job("count", timeout="20s")
def count(ctx: Context, gate: str | None = None, waits: Literal["first", "later"] = "first") -> dict[str, int]:
    """Adds one to the job's own counter. If there is a gate, the first attempt waits at it, or all later ones do."""
    if gate is not None and waits == ("first" if ctx.token == 1 else "later"):
        wait_until_open(gate)
    _count_one(ctx)
    return {"token": ctx.token}


@app.job("count_when_redriven")
def count_when_redriven(ctx: Context, gate: str | None = None) -> dict[str, int]:
    """Dead at once; counts when it was redriven with a gate."""
    if gate is None:
        raise Dead("there is no gate")
    wait_until_open(gate)
    _count_one(ctx)
    return {"token": ctx.token}


def _count_one(ctx: Context) -> None:
    """Nothing here guards against a second run: only the transaction that carries it does."""
    ctx.effects.update(TABLE, {"package": ctx.job_id}, add={"runs": 1})
