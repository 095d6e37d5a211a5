"""The enqueue gateway: HTTP in, 202 out."""

from __future__ import annotations

from typing import Any

from ringfence import runtime
from ringfence.http import api


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Answer one request (payload format 2.0, from an HTTP API or a function URL)."""
    return api.handle(event, context, runtime.current())
