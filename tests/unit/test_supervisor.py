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

def child():
    print("ready", os.getpid(), flush=True)
    time.sleep(600)
    return 0

Supervisor(child, 2, 1.0, lambda event, pid, detail: print(event, pid, flush=True)).run()
"""


def test_no_child_outlives_a_killed_supervisor_not_even_a_frozen_one() -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as supervisor:
        assert supervisor.stdout is not None
        # A child is tied to its supervisor once it runs, not by the time the supervisor has told of it.
        told = [supervisor.stdout.readline().split() for _ in range(4)]
        started = [(event, pid) for event, pid in told if event == "ready"]
        try:
            assert len(started) == 2
            os.kill(int(started[0][1]), signal.SIGSTOP)
            supervisor.kill()
            # The children hold the other end: it closes when the last of them is gone.
            out, _ = supervisor.communicate(timeout=30)
        except BaseException:
            supervisor.kill()
            for _, pid in started:
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            raise
        assert out == ""
