"""Jobs that take their process with them, and some that do nobody any harm. Linux only."""

from __future__ import annotations

import ctypes
import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ringfence import App, Backoff, Context

app = App()

TOO_MUCH_BYTES = 8 << 30
ROOM_BYTES = 1 << 30
"""Left to the others in the process."""


@contextmanager
def memory_limited() -> Iterator[None]:
    """For a moment there is less than a job asks for."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + ROOM_BYTES, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)


@app.job("killed")
def killed(ctx: Context) -> None:
    """As by the kernel, when a machine or a control group has no memory left, or by an operator."""
    os.kill(os.getpid(), signal.SIGKILL)


@app.job("starved")
def starved(ctx: Context) -> None:
    """By its memory: a library in C that does not look whether it got what it asked for."""
    libc = ctypes.CDLL(None)
    libc.malloc.argtypes, libc.malloc.restype = [ctypes.c_size_t], ctypes.c_void_p
    libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with memory_limited():
        libc.memset(libc.malloc(TOO_MUCH_BYTES), 0, TOO_MUCH_BYTES)


@app.job("hungry", backoff=Backoff(base_seconds=0.1, cap_seconds=0.1))
def hungry(ctx: Context) -> None:
    """Python does look, and its process lives."""
    with memory_limited():
        bytearray(TOO_MUCH_BYTES)


@app.job("innocent")
def innocent(ctx: Context) -> int:
    return os.getpid()
