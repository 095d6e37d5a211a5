"""The fault tests' jobs and those of campaigns: one running system serves both."""

from __future__ import annotations

from fault_jobs import app
from load_jobs import register

register(app)

__all__ = ["app"]
