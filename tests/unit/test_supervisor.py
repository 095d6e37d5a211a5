"""The parent of worker processes, as a real process with real children."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress

PROGRAM = """
import os, time
from ringfence.process.supervisor import Supervisor

def tell(event, pid):
    os.write(1, f"{event} {pid}\\n".encode())  # in one piece: three processes write here

def child():
    tell("ready", os.getpid())
    time.sleep(600)
    return 0

Supervisor(child, 2, 1.0, lambda event, pid, detail: tell(event, pid)).run()
"""


def test_no_child_outlives_a_killed_supervisor_not_even_a_frozen_one() -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as supervisor:
        assert supervisor.stdout is not None
        started: list[int] = []
        try:
            # A child is tied to its supervisor once it runs, not by the time the supervisor has told of it.
            while len(started) < 2:
                event, pid = supervisor.stdout.readline().split()
                if event == "ready":
                    started.append(int(pid))
            os.kill(started[0], signal.SIGSTOP)
            supervisor.kill()
            # The children hold the other end: it closes when the last of them is gone.
            supervisor.communicate(timeout=30)
        except BaseException:
            supervisor.kill()
            for child in started:
                with suppress(ProcessLookupError):
                    os.kill(child, signal.SIGKILL)
            raise
