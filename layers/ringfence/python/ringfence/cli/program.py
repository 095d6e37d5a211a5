"""What this program was called as, for the lines that it tells people to type."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path, PurePath


def program(*, absolute: bool = False) -> str:
    """The command as it was typed, such as ``.venv/bin/ringfence``, or as any folder finds it; its plain name where it runs as
    a module."""
    typed = sys.argv[0]
    if PurePath(typed).name != "ringfence":
        return "ringfence"
    return shlex.quote(str(Path(typed).absolute()) if absolute and os.sep in typed else typed)
