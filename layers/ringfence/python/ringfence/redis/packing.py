"""Commands as bytes for the wire. redis-py's own packers look at every argument twice.

https://redis.io/docs/latest/develop/reference/protocol-spec/
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

_pack: Callable[[tuple[Any, ...]], bytes] | None
try:
    from hiredis import pack_command as _pack
except ImportError:
    _pack = None

ERRORS = "surrogateescape"
"""How bytes that are not UTF-8 become text and bytes again."""


def pack(command: tuple[str | int, ...]) -> bytes:
    """The command in RESP."""
    if _pack is not None:
        try:
            return _pack(command)
        except UnicodeEncodeError:  # a stranger's message that was not UTF-8
            pass
    parts = [b"*%d\r\n" % len(command)]
    parts += [b"$%d\r\n%b\r\n" % (len(raw), raw) for raw in as_bytes(command)]
    return b"".join(parts)


def as_bytes(arguments: Iterable[str | int]) -> list[bytes]:
    """The arguments as Redis gave or wants them, whatever bytes they were."""
    return [str(argument).encode("utf-8", ERRORS) for argument in arguments]
