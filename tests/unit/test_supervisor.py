"""The parent of worker processes, as a real process with real children."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from contextlib import suppress

PROGRAM = """
import os, time
from ringfence.process.supervisor import Supervisor

def tell(event, pid):
    os.write(1, f"{event} {pid}\\n".encode())  # in one piece: three processes write here

def child(touched):
    tell("ready", os.getpid())
    time.sleep(600)
    return 0

raise SystemExit(Supervisor(child, 2, 1.0, lambda event, pid, detail: tell(event, pid)).run())
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


def test_a_hang_up_stops_it_as_a_sigterm_does() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as running:
        assert running.stdout is not None
        try:
            ready = 0
            while ready < 2:
                ready += running.stdout.readline().startswith("ready")
            os.killpg(running.pid, signal.SIGHUP)  # as a terminal does, to the children too
            told, _ = running.communicate(timeout=30)
        except BaseException:
            os.killpg(running.pid, signal.SIGKILL)
            raise
    assert running.returncode == 0
    assert len(re.findall("^ended", told, re.MULTILINE)) == 2


def test_a_child_that_is_told_to_stop_while_it_is_born_does_so() -> None:
    """Until it has let go of its parent's handlers, one of those would swallow the signal."""
    program = """
import os, signal
from ringfence.process import supervisor
signal.signal(signal.SIGTERM, lambda *_: None)
supervisor.tether = lambda parent: os.kill(os.getpid(), signal.SIGTERM)
print(os.waitstatus_to_exitcode(os.waitpid(supervisor.fork(lambda: 0), 0)[1]))
"""
    assert python(program).stdout == f"{-signal.SIGTERM}\n"


def test_a_child_that_raises_says_why() -> None:
    program = """
import os
from ringfence.process.supervisor import fork
print(os.waitstatus_to_exitcode(os.waitpid(fork(lambda: 1 // 0), 0)[1]))
"""
    ended = python(program)
    assert ended.stdout == "70\n"
    assert "ZeroDivisionError" in ended.stderr


def python(program: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
