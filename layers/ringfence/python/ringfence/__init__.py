"""Ringfence: a serverless distributed job queue on AWS whose late writes cannot land.

What a user imports: `App`, `Context`, the effects, the errors, and `Client`. Everything is loaded on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ringfence.app import App as App
    from ringfence.client import Client as Client
    from ringfence.context import Context as Context
    from ringfence.effects import Check as Check
    from ringfence.effects import Delete as Delete
    from ringfence.effects import Put as Put
    from ringfence.effects import Update as Update
    from ringfence.errors import Dead as Dead
    from ringfence.errors import LeaseLost as LeaseLost
    from ringfence.errors import Retry as Retry
    from ringfence.errors import RingfenceError as RingfenceError
    from ringfence.errors import Stopping as Stopping
    from ringfence.retry import Backoff as Backoff

_HOME = {
    "App": "app",
    "Backoff": "retry",
    "Check": "effects",
    "Client": "client",
    "Context": "context",
    "Dead": "errors",
    "Delete": "effects",
    "LeaseLost": "errors",
    "Put": "effects",
    "Retry": "errors",
    "RingfenceError": "errors",
    "Stopping": "errors",
    "Update": "effects",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"ringfence.{_HOME[name]}"), name)
    raise AttributeError(f"module 'ringfence' has no attribute {name!r}")
