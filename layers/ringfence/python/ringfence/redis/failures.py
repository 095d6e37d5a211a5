"""What went wrong in a call to Redis: its short name, and whether a fresh connection may help."""

from __future__ import annotations

import re

from redis.exceptions import (
    AuthenticationError,
    AuthorizationError,
    BusyLoadingError,
    ConnectionError,
    RedisClusterException,
    RedisError,
)

from ringfence.errors import Unavailable

FAILURES = (RedisError, RedisClusterException)
"""What a call raises for reasons outside this program."""

RETRY_SECONDS = 1.0

_CODES = re.compile(
    r"\b(ASK|BUSY|CLUSTERDOWN|CROSSSLOT|LOADING|MASTERDOWN|MISCONF|MOVED|NOAUTH|NOPERM|NOREPLICAS|NOSCRIPT|OOM|READONLY"
    r"|TRYAGAIN|WRONGPASS|WRONGTYPE)\b"
)
_SERVER_ANSWERED = (AuthenticationError, AuthorizationError, BusyLoadingError)
"""These are `ConnectionError` in redis-py, though the connection is well."""


def code_of(failure: Exception) -> str:
    """Redis' error code, wherever the reply has it (6.2 wraps those of commands in scripts), or the name of the error."""
    found = _CODES.search(f"{getattr(failure, 'status_code', None) or ''} {failure}")
    return found[1] if found else type(failure).__name__


def wants_fresh_connection(failure: Exception) -> bool:
    """The connection broke, or leads to a server that is a replica now: the name may lead to its successor."""
    broke = isinstance(failure, ConnectionError) and not isinstance(failure, _SERVER_ANSWERED)
    return broke or code_of(failure) == "READONLY"


def unavailable(failure: Exception, doing: str) -> Unavailable:
    """The core's word for a failed call; ``doing`` says which, as in ``lease from queue default``.

    Redis' own words are left out: they may quote what was sent.
    """
    return Unavailable(f"cannot {doing}: {code_of(failure)}", retry_after_seconds=RETRY_SECONDS)
