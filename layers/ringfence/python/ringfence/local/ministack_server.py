"""MiniStack on a listening socket that it inherits, kept from slowing down: ``ministack_server.py FILE-DESCRIPTOR``.

It is one thread, and everything it keeps is Python objects. With ten thousand rows a full garbage collection stops all of AWS
for a tenth of a second, again and again; and each call to Kinesis looks through the iterators of the last five minutes, of
which each read leaves one. It runs in MiniStack's environment, so it imports the standard library and MiniStack, nothing else.
"""

from __future__ import annotations

import gc
import importlib
import runpy
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

YOUNG_OBJECTS, YOUNG_COLLECTIONS = 700, 10
"""Python's own: what a request leaves behind is found while it is young."""

NEVER = 1_000_000_000
"""Collections of the middle generation before one of everything, which has found nothing worth its time."""

EXPIRE_EVERY_SECONDS = 1.0
"""How often expired iterators are removed. Whoever comes with one is refused in any case."""


def at_intervals(work: Callable[[], None], seconds: float, clock: Callable[[], float] = time.monotonic) -> Callable[[], None]:
    """Does the work if it was last done so long ago."""
    done_at = float("-inf")

    def call() -> None:
        nonlocal done_at
        if clock() - done_at >= seconds:
            work()
            done_at = clock()

    return call


def main() -> None:
    runpy.run_path(str(Path(__file__).with_name("tether.py")))["tether"]()
    gc.set_threshold(YOUNG_OBJECTS, YOUNG_COLLECTIONS, NEVER)
    kinesis: Any = importlib.import_module("ministack.services.kinesis")
    kinesis._expire_iterators = at_intervals(kinesis._expire_iterators, EXPIRE_EVERY_SECONDS)
    # No workers: hypercorn then serves in its own process, and MiniStack's state is in the process that serves.
    sys.argv = ["hypercorn", "--workers", "0", "--bind", f"fd://{sys.argv[1]}", "ministack.app:app"]
    runpy.run_module("hypercorn", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main()
