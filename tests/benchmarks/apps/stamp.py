"""What every job of a benchmark does, in whichever environment it runs: write down that it has begun.

A record of 32 bytes is (start, enqueue, number of the job, worker), the times in nanoseconds of the machine's monotonic clock,
the enqueue's taken just before the call that enqueues. Each process has a file of its own in the folder BENCH_STAMPS, mapped
into its memory: no system call, so a job is as good as empty, and a record is there even if its process is killed.
"""

import itertools
import mmap
import os
import struct
import threading
import time

REDIS_PORT = int(os.environ["BENCH_REDIS_PORT"])

RECORDS = 1_000_000
"""Room in a file; what is not written takes no memory."""

_pack_into = struct.Struct("<qqqq").pack_into
_now = time.monotonic_ns
_worker = int(os.environ.get("BENCH_WORKER", "0"))
_pid, _memory, _offsets = 0, None, None
_opening = threading.Lock()


def stamp(job):
    started = _now()
    if _pid != os.getpid():
        with _opening:
            if _pid != os.getpid():
                _open()
    _pack_into(_memory, next(_offsets), started, job["enq"], job["id"], _worker)


def make(number):
    """The payload of a job: about 100 bytes of JSON."""
    return {"id": number, "enq": _now(), "kind": "email.send", "to": "user@example.com", "tpl": "welcome-42", "n": 7}


def _open():
    """In a forked process that is another file."""
    global _pid, _memory, _offsets
    with open(f"{os.environ['BENCH_STAMPS']}/{_worker}-{os.getpid()}", "a+b") as file:
        file.truncate(32 * RECORDS)
        _memory = mmap.mmap(file.fileno(), 32 * RECORDS)
    _offsets = itertools.count(0, 32)
    _pid = os.getpid()
