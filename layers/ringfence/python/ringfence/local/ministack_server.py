"""MiniStack on a listening socket that it inherits, without full garbage collections: ``ministack_server.py FILE-DESCRIPTOR``.

Everything it keeps is Python objects, and it is one thread: with ten thousand rows a full collection stops all of AWS for a
tenth of a second, again and again. It runs in MiniStack's own environment, so it imports nothing but the standard library.
"""

from __future__ import annotations

import gc
import runpy
import sys
from pathlib import Path

YOUNG_OBJECTS, YOUNG_COLLECTIONS = 700, 10
"""Python's own: what a request leaves behind is found while it is young."""

NEVER = 1_000_000_000
"""Collections of the middle generation before one of everything, which has found nothing worth its time."""


def main() -> None:
    runpy.run_path(str(Path(__file__).with_name("tether.py")))["tether"]()
    gc.set_threshold(YOUNG_OBJECTS, YOUNG_COLLECTIONS, NEVER)
    # No workers: hypercorn then serves in its own process, and MiniStack's state is in the process that serves.
    sys.argv = ["hypercorn", "--workers", "0", "--bind", f"fd://{sys.argv[1]}", "ministack.app:app"]
    runpy.run_module("hypercorn", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
