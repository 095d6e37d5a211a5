"""What this program was called as, for the lines that it tells people to type."""

from __future__ import annotations

import shlex
import sys
from pathlib import PurePath


def program() -> str:
    """The command as it was typed, such as ``.venv/bin/ringfence``; its plain name where it runs as a module."""
    typed = sys.argv[0]
    return shlex.quote(typed) if PurePath(typed).name == "ringfence" else "ringfence"
