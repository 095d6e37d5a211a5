"""The Lua scripts, one file for each verb in ``lua/``, with the parts they share put in."""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files

_INCLUDE = re.compile(r"^-- include: (\w+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Script:
    """What runs in Redis as one step: all of it or, when its first write is refused, nothing."""

    name: str
    source: str
    sha1: str = field(init=False)
    """The name that EVALSHA knows it by."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "sha1", hashlib.sha1(self.source.encode(), usedforsecurity=False).hexdigest())


@cache
def script(name: str) -> Script:
    """The script in ``lua/<name>.lua``; its head documents KEYS, ARGV, what it returns and how it fails."""
    folder = files(__package__) / "lua"
    source = (folder / f"{name}.lua").read_text(encoding="utf-8")
    return Script(name, _INCLUDE.sub(lambda found: (folder / "parts" / f"{found[1]}.lua").read_text(encoding="utf-8"), source))
