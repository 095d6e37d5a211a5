"""The handler of each function of a campaign: the function's own, tried."""

from __future__ import annotations

import os

import instruments

instruments.install()
if os.environ.get("RINGFENCE_APP"):
    instruments.make_clock_wrong()

from app import handler  # noqa: E402 - the function's module finds what is installed

__all__ = ["handler"]
