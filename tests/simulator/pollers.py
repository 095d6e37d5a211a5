"""Who waits for a message of a queue, and who is called when there is one."""

from __future__ import annotations

import heapq
import random

from ringfence.memory.queue import MemoryQueue

from .scheduler import Process, Scheduler, Task


class Pollers:
    """The waiting leases of one queue. For each message that is visible one of them is called, by chance, as a service answers
    the polls that it holds; nobody looks in vain. One whose process is frozen or dead is passed over."""

    def __init__(self, queue: MemoryQueue, scheduler: Scheduler, process: Process, source: random.Random) -> None:
        """``process`` is the service's own."""
        self._queue, self._scheduler, self._random = queue, scheduler, source
        self._waiting: list[Task] = []
        self._bell = scheduler.spawn(process, self._call)

    def wait(self, seconds: float) -> None:
        """The running task goes on when it is called, or after so long."""
        task = self._scheduler.me()
        self._waiting.append(task)
        self.ring()
        self._scheduler.suspend(self._scheduler.now + seconds)
        if task in self._waiting:
            self._waiting.remove(task)

    def ring(self) -> None:
        """There may be a message, or somebody who waits for one."""
        self._scheduler.wake(self._bell)

    def give_up(self, process: Process, at: float) -> None:
        """The polls of this process end then without a message."""
        for task in self._waiting:
            if task.process is process:
                self._scheduler.wake(task, at)

    def _call(self) -> None:
        scheduler = self._scheduler
        while True:
            at = self._next_visible()
            ready = [task for task in self._waiting if task.process.alive and task.process.frozen_until <= scheduler.now]
            if at is None or not self._waiting:
                scheduler.suspend()
            elif at > scheduler.now:
                scheduler.suspend(at)
            elif ready:
                called = self._random.choice(ready)
                self._waiting.remove(called)
                scheduler.wake(called)
                scheduler.sleep(0)  # he takes it first
            else:
                thawing = [task.process.frozen_until for task in self._waiting if task.process.alive]
                scheduler.suspend(min(thawing, default=None))

    def _next_visible(self) -> float | None:
        """When a message is visible next, or since when; what the queue would skip is left out."""
        heap, messages = self._queue._by_visibility, self._queue._messages
        while heap:
            at, _, message_id = heap[0]
            message = messages.get(message_id)
            if message is not None and message.visible_at == at:
                return at
            heapq.heappop(heap)
        return None
