"""Tasks that take turns in one thread, and what stands in for `threading` while the core runs under them.

A task runs until it waits: for time, for a lock, for an event. Which task runs next is decided by virtual time alone, so a run
is a function of the seed that decided the times.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import patch

from greenlet import getcurrent, greenlet

MODULES_WITH_THREADS = (
    "ringfence.company",
    "ringfence.crew",
    "ringfence.lease",
    "ringfence.ownership",
    "ringfence.process.feed",
)
MODULES_WITH_POOLS = ("ringfence.acceptance", "ringfence.sender")


class Process:
    """What dies together: tasks of a dead process never run again, those of a frozen one not before it thaws."""

    def __init__(self, name: str, skew_seconds: float = 0.0) -> None:
        self.name, self.skew_seconds = name, skew_seconds
        self.alive = True
        self.frozen_until = 0.0


class Task:
    """One line of control, in one process."""

    __slots__ = ("ended", "process", "switch_to", "turn")

    def __init__(self, process: Process, code: Callable[[], object], scheduler: Scheduler) -> None:
        self.process = process
        self.ended = False
        self.turn = 0
        """Raised whenever it is woken: an earlier, later alarm is then void."""

        def run() -> None:
            try:
                code()
            except BaseException as raised:  # noqa: BLE001 - judged by whoever runs the simulation
                scheduler.fell(self, raised)
            finally:
                self.ended = True

        self.switch_to = greenlet(run, scheduler.main)


class Scheduler:
    """The tasks, and the time at which each goes on."""

    current: ClassVar[Scheduler]

    def __init__(self) -> None:
        self.now = 0.0
        """Seconds since the simulation began."""
        self.main = getcurrent()
        self.running: Task | None = None
        self.fallen: list[tuple[Task, BaseException]] = []
        self._alarms: list[tuple[float, int, int, Task]] = []
        self._numbers = itertools.count()

    def spawn(self, process: Process, code: Callable[[], object], after_seconds: float = 0.0) -> Task:
        """A new task of this process, which begins after a while."""
        task = Task(process, code, self)
        self._alarm(task, self.now + after_seconds)
        return task

    def sleep(self, seconds: float) -> None:
        """The running task goes on when so much time has passed."""
        task = self._me()
        self._alarm(task, self.now + max(0.0, seconds))
        self.main.switch()

    def suspend(self, until: float | None = None) -> None:
        """The running task goes on when it is woken, or at that time."""
        task = self._me()
        if until is not None:
            self._alarm(task, until)
        self.main.switch()

    def wake(self, task: Task) -> None:
        task.turn += 1
        self._alarm(task, self.now)

    def run(self, until: float) -> None:
        """Let time pass until then."""
        Scheduler.current = self
        while self._alarms and self._alarms[0][0] <= until:
            at, _, turn, task = heapq.heappop(self._alarms)
            if task.ended or turn != task.turn or not task.process.alive:
                continue
            if task.process.frozen_until > at:
                heapq.heappush(self._alarms, (task.process.frozen_until, next(self._numbers), turn, task))
                continue
            self.now = max(self.now, at)
            task.turn += 1
            self.running = task
            task.switch_to.switch()
            self.running = None
        self.now = max(self.now, until)

    def fell(self, task: Task, raised: BaseException) -> None:
        """A task ended with an exception."""
        self.fallen.append((task, raised))

    def _alarm(self, task: Task, at: float) -> None:
        heapq.heappush(self._alarms, (at, next(self._numbers), task.turn, task))

    def _me(self) -> Task:
        if self.running is None:
            raise RuntimeError("nobody waits in the simulation's own thread")
        return self.running


# --- what stands in for threading ----------------------------------------------------------------------------------------


class Lock:
    """`threading.Lock` among tasks."""

    def __init__(self) -> None:
        self._held = False
        self._waiting: deque[Task] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        here = Scheduler.current
        until = None if timeout < 0 else here.now + timeout
        while self._held:
            if not blocking or (until is not None and here.now >= until):
                return False
            task = here.running
            assert task is not None
            self._waiting.append(task)
            here.suspend(until)
        self._held = True
        return True

    def release(self) -> None:
        self._held = False
        while self._waiting:
            task = self._waiting.popleft()
            if not task.ended:
                Scheduler.current.wake(task)
                return

    def locked(self) -> bool:
        return self._held

    def __enter__(self) -> Lock:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()


class Condition:
    """`threading.Condition` among tasks."""

    def __init__(self, lock: Lock | None = None) -> None:
        self._lock = lock or Lock()
        self._waiting: deque[Task] = deque()

    def __enter__(self) -> Condition:
        self._lock.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.release()

    def wait(self, timeout: float | None = None) -> bool:
        here = Scheduler.current
        task = here.running
        assert task is not None
        self._waiting.append(task)
        self._lock.release()
        here.suspend(None if timeout is None else here.now + timeout)
        notified = task not in self._waiting
        if not notified:
            self._waiting.remove(task)
        self._lock.acquire()
        return notified

    def notify(self, count: int = 1) -> None:
        for _ in range(min(count, len(self._waiting))):
            Scheduler.current.wake(self._waiting.popleft())

    def notify_all(self) -> None:
        self.notify(len(self._waiting))


class Event:
    """`threading.Event` among tasks."""

    def __init__(self) -> None:
        self._set = False
        self._condition = Condition()

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        with self._condition:
            self._condition.notify_all()

    def wait(self, timeout: float | None = None) -> bool:
        if not self._set:
            with self._condition:
                self._condition.wait(timeout)
        return self._set


class Thread:
    """`threading.Thread`: a task of the process that starts it."""

    def __init__(self, target: Callable[..., object], args: Sequence[Any] = (), **_: object) -> None:
        self._code = lambda: target(*args)
        self._task: Task | None = None

    def start(self) -> None:
        here = Scheduler.current
        assert here.running is not None
        self._task = here.spawn(here.running.process, self._code)

    def is_alive(self) -> bool:
        return self._task is not None and not self._task.ended

    def join(self) -> None:
        while self.is_alive():
            Scheduler.current.sleep(0.01)


class Pool:
    """`ThreadPoolExecutor` whose calls come one after another: each of them is struck on its own all the same."""

    def __init__(self, *_: object) -> None: ...

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None: ...

    def map(self, function: Callable[..., Any], *items: Any) -> Iterator[Any]:
        return iter([function(*each) for each in zip(*items, strict=True)])


THREADING = SimpleNamespace(Lock=Lock, Condition=Condition, Event=Event, Thread=Thread)


@contextmanager
def taking_turns() -> Iterator[None]:
    """The core's threads are tasks of the simulation for a while."""
    with ExitStack() as stack:
        for module in MODULES_WITH_THREADS:
            stack.enter_context(patch(f"{module}.threading", THREADING))
        stack.enter_context(patch("ringfence.crew.LOOK_SECONDS", 6.0))  # nobody stops a simulated worker in good order
        stack.enter_context(patch("ringfence.timers.DUE_SHARDS", 1))
        stack.enter_context(patch("ringfence.memory.ledger.DUE_SHARDS", 1))
        for module in MODULES_WITH_POOLS:
            stack.enter_context(patch(f"{module}.ThreadPoolExecutor", Pool))
        yield
