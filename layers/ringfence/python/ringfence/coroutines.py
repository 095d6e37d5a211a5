"""``async def`` jobs: one event loop for all of a process, so that what is bound to a loop (a client, a pool) outlives a job.

A job's thread waits for its coroutine; how many run at once is how many threads there are.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_pid: int | None = None


Ending = tuple[Any, BaseException | None]


def start(coroutine: Coroutine[Any, Any, Any]) -> Future[Ending]:
    """Begin to run it in the loop of this process. Cancelling the future cancels the coroutine where it waits."""
    return asyncio.run_coroutine_threadsafe(_ended(coroutine), _running_loop())


def result_of(running: Future[Ending]) -> Any:
    """Wait for what the coroutine returns or raises."""
    returned, raised = running.result()
    if raised is not None:
        raise raised
    return returned


async def _ended(coroutine: Coroutine[Any, Any, Any]) -> Ending:
    """A value, never an exception: ``SystemExit`` and its like would end the loop, and every other job's with it."""
    try:
        return await coroutine, None
    except asyncio.CancelledError as cancelled:
        return None, CancelledError(*cancelled.args)  # for a thread, an exception like any other
    except BaseException as raised:  # noqa: BLE001 - raised again where the job is
        return None, raised


def _running_loop() -> asyncio.AbstractEventLoop:
    """Begun with the first job that needs it; a forked process has its own."""
    global _loop, _pid
    with _lock:
        if _loop is None or _pid != os.getpid():
            _loop, _pid = asyncio.new_event_loop(), os.getpid()
            threading.Thread(target=_loop.run_forever, name="ringfence-event-loop", daemon=True).start()
        return _loop
