"""``async def`` jobs: one event loop for all of a process, so that what is bound to a loop (a client, a pool) outlives a job.

A job's thread waits for its coroutine; how many run at once is how many threads there are. A loop that a job's code keeps from
coming round is given up when another job's coroutine has waited too long to be begun: it is begun in a new one.
"""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any

BLOCKED_SECONDS = 5.0
"""A loop that does not come round to a new coroutine within so long is given up. Those that it has begun stay with it."""

_Ending = tuple[Any, BaseException | None]

_lock = threading.Lock()
_loop: _Loop | None = None
_given_up: list[_Loop] = []


class _Loop:
    """An event loop in a thread of its own, in the process that made it."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.pid = os.getpid()
        self.asked_at: float | None = None
        """Since when it has not answered whether it comes round."""
        self._given_up = False
        self.thread = threading.Thread(target=self._run, name="ringfence-event-loop", daemon=True)
        self.thread.start()

    def _run(self) -> None:
        while not (self.loop.is_closed() or (self._given_up and not asyncio.all_tasks(self.loop))):
            # Code of a job may stop it, or exit from a task of its own.
            with suppress(SystemExit, KeyboardInterrupt):
                self.loop.run_forever()
        self.loop.close()

    def give_up(self) -> None:
        """End, if it ever comes round again, with the last coroutine that it has begun."""
        self._given_up = True
        self.loop.call_soon_threadsafe(self._stop_when_done)

    def _stop_when_done(self) -> None:
        if asyncio.all_tasks(self.loop):
            self.loop.call_later(BLOCKED_SECONDS / 10, self._stop_when_done)
        else:
            self.loop.stop()

    def silent_seconds(self) -> float:
        now = time.monotonic()
        asked_at = self.asked_at  # it may answer at any moment
        if asked_at is None:
            asked_at = self.asked_at = now
            self.loop.call_soon_threadsafe(self._answer)
        return now - asked_at

    def _answer(self) -> None:
        self.asked_at = None


class Running:
    """A coroutine on its way, begun at most once in whichever loop comes round to it."""

    def __init__(self, coroutine: Coroutine[Any, Any, Any], timeout_seconds: float) -> None:
        """The loop has a quarter of the timeout to come round to it, at least a second and at most `BLOCKED_SECONDS`."""
        self._coroutine, self._begin_seconds = coroutine, min(max(1.0, timeout_seconds / 4), BLOCKED_SECONDS)
        self._turn = 0
        """Of the loop that may begin it: an earlier one that comes round after all may not."""
        self._begun = False
        self._cancelled = False
        self._submit()

    def cancel(self) -> None:
        """Cancel it where it waits. Whoever waits for its result goes on at once, even if it does not end."""
        with _lock:
            self._cancelled = True
        self._future.cancel()

    def result(self) -> Any:
        """Wait for what it returns, or raise what it raises."""
        while True:
            try:
                returned, raised = self._future.result(None if self._begun else self._begin_seconds)
            except TimeoutError:
                if self._takes_turn_away():
                    _give_up(self._on)
                    self._submit()
            else:
                if raised is not None:
                    raise raised
                return returned

    def _submit(self) -> None:
        with _lock:  # so that it is not given up, and closed, meanwhile
            self._on = _running_loop()
            self._future: Future[_Ending] = asyncio.run_coroutine_threadsafe(self._ending(self._turn), self._on.loop)
        if self._cancelled:
            self._future.cancel()

    def _takes_turn_away(self) -> bool:
        """Whether it was not begun yet: then it never is, where it waits now."""
        with _lock:
            self._turn += not self._begun
            return not self._begun

    def _begins(self, turn: int) -> bool:
        with _lock:
            if turn != self._turn or self._cancelled:
                return False
            self._begun = True
            return True

    async def _ending(self, turn: int) -> _Ending:
        """A value, never an exception: ``SystemExit`` and its like would end the loop, and every other job's with it."""
        if not self._begins(turn):
            return None, None
        try:
            return await self._coroutine, None
        except asyncio.CancelledError as cancelled:
            return None, CancelledError(*cancelled.args)  # for a thread, an exception like any other
        except BaseException as raised:  # noqa: BLE001 - raised again where the job is
            return None, raised


def silent_seconds() -> float:
    """For how long the loop has been asked, each time this is called, and has not come round to answer: code of a job keeps it
    from doing anything else. 0 where there is no loop."""
    with _lock:
        return 0.0 if _loop is None or not _is_usable(_loop) else _loop.silent_seconds()


def given_up() -> int:
    """How many loops were given up and are still blocked, or have coroutines that go on. Nothing may ever end their threads but
    the end of the process."""
    with _lock:
        _given_up[:] = [loop for loop in _given_up if _is_usable(loop)]
        return len(_given_up)


def _running_loop() -> _Loop:
    """Under the lock: begun with the first job that needs it; a forked process has its own."""
    global _loop
    if _loop is None or not _is_usable(_loop):
        _loop = _Loop()
    return _loop


def _is_usable(loop: _Loop) -> bool:
    return loop.pid == os.getpid() and loop.thread.is_alive() and not loop.loop.is_closed()


def _give_up(loop: _Loop) -> None:
    global _loop
    with _lock:
        if _loop is loop:
            _loop = None
            _given_up.append(loop)
            loop.give_up()
