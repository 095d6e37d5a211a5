"""Jobs for the campaigns: what they take and what they leave behind is counted by the campaigns themselves."""

from __future__ import annotations

from ringfence import App, Context

app = App()


@app.job("noop")
def noop(ctx: Context) -> None:
    """Nothing: what is measured is the way there."""
