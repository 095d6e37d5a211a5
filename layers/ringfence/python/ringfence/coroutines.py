"""``async def`` jobs: one event loop for all of a process, so that what is bound to a loop (a client, a pool) outlives a job.

A job's thread waits for its coroutine; how many run at once is how many threads there are.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from typing import Any

_lock = threading.Lock()
_loop: asyncio.AbstractEventLoop | None = None
_pid: int | None = None
_asked_at: float | None = None
"""Since when the loop has not answered whether it comes round."""


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


def silent_seconds() -> float:
    """For how long the loop has been asked, each time this is called, and has not come round to answer: code of a job keeps it
    from doing anything else. 0 where there is no loop."""
    global _asked_at
    with _lock:
        if _loop is None or _pid != os.getpid():
            return 0.0
        now = time.monotonic()
        asked_at = _asked_at  # the loop may answer at any moment
        if asked_at is None:
            asked_at = _asked_at = now
            _loop.call_soon_threadsafe(_answer)
        return now - asked_at


def _answer() -> None:
    global _asked_at
    _asked_at = None


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
    global _loop, _pid, _asked_at
    with _lock:
        if _loop is None or _pid != os.getpid():
            _loop, _pid, _asked_at = asyncio.new_event_loop(), os.getpid(), None
            threading.Thread(target=_loop.run_forever, name="ringfence-event-loop", daemon=True).start()
        return _loop
