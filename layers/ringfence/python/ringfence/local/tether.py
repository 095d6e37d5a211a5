"""End this process when the one that started it ends, even if that one was killed with SIGKILL.

Also a script, for programs that are not ours: ``python -P tether.py --program PATH ARGUMENTS…`` ties itself to its parent and
then becomes that program. It therefore imports nothing but the standard library (``-P``: nor its own folder).
"""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time

PARENT_VARIABLE = "RINGFENCE_DEV_PARENT"
"""Process id of the parent, as the parent knows it: it may be gone before the child looks."""

_PR_SET_PDEATHSIG = 1
"""https://man7.org/linux/man-pages/man2/PR_SET_PDEATHSIG.2const.html"""
_LOOK_SECONDS = 0.5
"""How often a child looks for its parent where the kernel does not tell."""


def tether(parent: int | None = None) -> None:
    """Ask the kernel (Linux) or a thread (elsewhere) to kill this process once its parent is gone.

    ``parent`` is its process id, for a process that was forked; others find it in `PARENT_VARIABLE`.

    Linux sends the signal when the *thread* that started the process ends, so a parent starts its children from a thread that
    lives as long as they may.
    """
    parent = parent or int(os.environ.get(PARENT_VARIABLE) or os.getppid())
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    else:
        threading.Thread(target=_watch, args=(parent,), name="tether", daemon=True).start()
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_SECONDS)
    os.kill(os.getpid(), signal.SIGKILL)


def _become(command: list[str]) -> None:
    """Linux keeps the tie through the exec; elsewhere this process stays and looks, and killing its group ends both."""
    if sys.platform == "linux":
        tether()
        os.execv(command[0], command)
    else:
        parent = int(os.environ.get(PARENT_VARIABLE) or os.getppid())
        program = subprocess.Popen(command)
        while os.getppid() == parent and program.poll() is None:
            time.sleep(_LOOK_SECONDS)
        program.kill()
        sys.exit(program.wait())


if __name__ == "__main__":
    _become(sys.argv[sys.argv.index("--program") + 1 :])
