"""Tasks that take turns in one thread, and what stands in for `threading` while the core runs under them.

A task runs until it waits: for time, for a lock, for an event; and now and then it is paused where it has left a lock, or is
about to take one, as a thread may be. Which task runs next is decided by virtual time alone, so a run is a function of the seed
that decided the times. A task that waits switches to the next one itself, and to none if it is its own turn again: most of a
life is such waiting.
"""

from __future__ import annotations

import heapq
import itertools
import math
import random
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from types import SimpleNamespace
from typing import Any, ClassVar
from unittest.mock import patch

from greenlet import GreenletExit, getcurrent, greenlet

from ringfence import crew, worker

MODULES_WITH_THREADS = (
    "ringfence.company",
    "ringfence.crew",
    "ringfence.lease",
    "ringfence.ownership",
    "ringfence.process.calls",
)
MODULES_WITH_POOLS = ("ringfence.acceptance", "ringfence.sender")


FROZEN = float("inf")
"""Until it is thawed."""


MOST_TURNS = 50_000

PAUSED_SECONDS = 0.1
"""The longest pause at a lock: longer than a call, so that another task may begin and end one meanwhile."""


class TimeStandsStill(Exception):
    """So many turns were taken at one moment that nobody waits for another."""


class Process:
    """What dies together: tasks of a dead process never run again, those of a frozen one not before it thaws."""

    def __init__(self, name: str, skew_seconds: float = 0.0, on_death: Callable[[], object] | None = None) -> None:
        """``on_death`` is called, by somebody else, a while after it has died."""
        self.name, self.skew_seconds, self.on_death = name, skew_seconds, on_death
        self.alive = True
        self.frozen_until = 0.0
        self.struck: dict[str, float] = {}
        """When a call of its was struck last, by the method; and when it was frozen, or a write of its came late."""
        self.wait_at_most_seconds = float("inf")
        """No lease of its waits longer for a message."""
        self.held: list[tuple[int, Task]] = []
        """Whose turn it would have been while it was frozen, for no known time."""

    def struck_since(self, at: float) -> bool:
        return any(when >= at for when in self.struck.values())


class Task:
    """One line of control, in one process."""

    __slots__ = ("ended", "joined_by", "looks_in", "next_look", "process", "switch", "throw", "turn")

    def __init__(self, process: Process, code: Callable[[], object], scheduler: Scheduler) -> None:
        self.process = process
        self.ended = False
        self.turn = 0
        """Raised whenever it is woken: an earlier, later alarm is then void."""
        self.joined_by: Task | None = None
        """Who waits for its end."""
        self.next_look: Callable[[], float | None] | None = None
        """Of a watch: how many seconds it waits in the place of a `Look`; None: until it is called."""
        self.looks_in: Condition | None = None
        """Where it waits so."""

        def run() -> None:
            try:
                code()
            except GreenletExit:
                pass
            except BaseException as raised:  # noqa: BLE001 - judged by whoever runs the simulation
                scheduler.fell(self, raised)
            self.ended = True
            if self.joined_by is not None:
                scheduler.wake(self.joined_by)

        line = greenlet(run, scheduler.main)
        self.switch, self.throw = line.switch, line.throw


class Scheduler:
    """The tasks, and the time at which each goes on."""

    current: ClassVar[Scheduler]

    def __init__(self, pause_share: float = 0.0, source: random.Random | None = None) -> None:
        """``pause_share`` of the times that a task comes to a lock or leaves one, it is paused there; ``source`` says which."""
        self.now = 0.0
        """Seconds since the simulation began."""
        self._pause_share, self._source = pause_share, source or random.Random(0)
        self._locks_to_pause = self._until_next_pause()
        self.pauses = 0
        self.main = getcurrent()
        self.running: Task | None = None
        self.fallen: list[tuple[Task, BaseException]] = []
        self._alarms: list[tuple[float, int, int, Task]] = []
        self._numbers = itertools.count()
        self.over = False
        """Whether nobody goes on any more."""
        self._until = 0.0
        self._turns = 0
        """At this moment."""
        self._begun: list[Task] = []

    def spawn(self, process: Process, code: Callable[[], object], after_seconds: float = 0.0) -> Task:
        """A new task of this process, which begins after a while."""
        task = Task(process, code, self)
        self._begun.append(task)
        self._alarm(task, self.now + after_seconds)
        return task

    def sleep(self, seconds: float) -> None:
        """The running task goes on when so much time has passed."""
        task = self.running or self.me()
        at = self.now + seconds if seconds > 0.0 else self.now
        alarms = self._alarms
        if (not alarms or at < alarms[0][0]) and at <= self._until:
            process = task.process
            if process.alive and process.frozen_until <= at:
                self.now = at
                task.turn += 1
                return
        heapq.heappush(alarms, (at, next(self._numbers), task.turn, task))
        self._go_on(task)

    def suspend(self, until: float | None = None) -> None:
        """The running task goes on when it is woken, or at that time."""
        task = self.running or self.me()
        if until is not None:
            heapq.heappush(self._alarms, (until, next(self._numbers), task.turn, task))
        self._go_on(task)

    def at_lock(self) -> None:
        """The running task is about to take a lock, or has left one: it may be paused here, and others go on meanwhile."""
        self._locks_to_pause -= 1
        if self._locks_to_pause <= 0:
            self._locks_to_pause = self._until_next_pause()
            if self.running is not None and not self.over:
                self.pauses += 1
                self.sleep(self._source.uniform(0, PAUSED_SECONDS))

    def _until_next_pause(self) -> float:
        """A number of locks: to draw it once costs less than to draw for each lock (the geometric distribution)."""
        if not self._pause_share:
            return math.inf
        return 1 + math.log(1 - self._source.random()) // math.log(1 - self._pause_share)

    def wake(self, task: Task, at: float | None = None) -> None:
        """Let a waiting task go on now, or at another time than it said."""
        task.turn += 1
        self._alarm(task, self.now if at is None else at)

    def thaw(self, process: Process) -> None:
        """Its tasks go on."""
        process.frozen_until = self.now
        for turn, task in process.held:
            heapq.heappush(self._alarms, (self.now, next(self._numbers), turn, task))
        process.held.clear()

    def run(self, until: float) -> None:
        """Let time pass until then."""
        Scheduler.current = self
        self._until = until
        while (task := self._next()) is not None:
            task.switch()
        self.now = max(self.now, until)

    def end(self) -> None:
        """Nobody goes on. Each task is unwound here, where it is known who runs, not whenever its memory is collected."""
        self.over = True
        for task in self._begun:
            if not task.ended:
                self.running = None
                task.throw()
                task.ended = True
        self._begun.clear()
        self._alarms.clear()
        del Scheduler.current

    def fell(self, task: Task, raised: BaseException) -> None:
        """A task ended with an exception."""
        if not self.over:
            self.fallen.append((task, raised))

    def _next(self) -> Task | None:
        """Whose turn it is, the time being his; nobody's when what is left comes later."""
        alarms = self._alarms
        while alarms and alarms[0][0] <= self._until:
            at, _, turn, task = heapq.heappop(alarms)
            process = task.process
            if turn != task.turn or task.ended or not process.alive:
                continue
            if process.frozen_until == FROZEN:
                process.held.append((turn, task))
                continue
            if process.frozen_until > at:
                heapq.heappush(alarms, (process.frozen_until, next(self._numbers), turn, task))
                continue
            if at > self.now:
                self.now, self._turns = at, 0
            self._turns += 1
            if self._turns > MOST_TURNS:
                self._turns = 0
                raise TimeStandsStill(f"{MOST_TURNS} turns at {at}")
            task.turn += 1
            self.running = task
            return task
        self.running = None
        return None

    def _go_on(self, task: Task) -> None:
        """To whoever's turn it is; returns when it is this task's again."""
        following = self._next()
        if following is None:
            self.main.switch()
        elif following is not task:
            following.switch()

    def _alarm(self, task: Task, at: float) -> None:
        heapq.heappush(self._alarms, (at, next(self._numbers), task.turn, task))

    def me(self) -> Task:
        """The running task."""
        if self.running is None:
            raise GreenletExit if self.over else RuntimeError("nobody waits in the simulation's own thread")
        return self.running


# --- what stands in for threading ----------------------------------------------------------------------------------------


class Lock:
    """`threading.Lock` among tasks."""

    def __init__(self) -> None:
        self._held = False
        self._waiting: deque[Task] = deque()

    def acquire(self, blocking: bool = True) -> bool:
        here = Scheduler.current
        here.at_lock()
        while self._held:
            if not blocking:
                return False
            self._waiting.append(here.me())
            here.suspend()
        self._held = True
        return True

    def release(self) -> None:
        self._held = False
        while self._waiting:
            task = self._waiting.popleft()
            if not task.ended:
                Scheduler.current.wake(task)
                break

    def locked(self) -> bool:
        return self._held

    def __enter__(self) -> Lock:
        self.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
        Scheduler.current.at_lock()


class Condition:
    """`threading.Condition` among tasks."""

    def __init__(self, lock: Lock | None = None) -> None:
        self._lock = lock or Lock()
        self._waiting: deque[Task] = deque()

    def __enter__(self) -> Condition:
        self._lock.acquire()
        return self

    def __exit__(self, *_: object) -> None:
        self._lock.__exit__()

    def wait(self, timeout: float | None = None) -> bool:
        here = Scheduler.current
        task = here.me()
        if timeout.__class__ is Look and task.next_look is not None:
            timeout, task.looks_in = task.next_look(), self
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

    def call(self, task: Task) -> None:
        """Notify this one, if it waits here."""
        if task in self._waiting:
            self._waiting.remove(task)
            Scheduler.current.wake(task)


class Look(float):
    """The time between two looks of a watch. With nothing to see, most looks of a life would be in vain."""


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
        self._task = here.spawn(here.me().process, self._code)

    def is_alive(self) -> bool:
        return self._task is not None and not self._task.ended

    def join(self, timeout: float | None = None) -> None:
        here = Scheduler.current
        if self._task is not None and not self._task.ended:
            self._task.joined_by = here.me()
            here.suspend(None if timeout is None else here.now + timeout)
            self._task.joined_by = None


class Pool:
    """`ThreadPoolExecutor` whose calls come one after another: each of them is struck on its own all the same."""

    def __init__(self, *_: object) -> None: ...

    def __enter__(self) -> Pool:
        return self

    def __exit__(self, *_: object) -> None: ...

    def map(self, function: Callable[..., Any], *items: Any) -> Iterator[Any]:
        return iter([function(*each) for each in zip(*items, strict=True)])


def get_ident() -> int:
    """`threading.get_ident`."""
    return id(Scheduler.current.running)


THREADING = SimpleNamespace(Lock=Lock, Condition=Condition, Event=Event, Thread=Thread, get_ident=get_ident)


@contextmanager
def taking_turns() -> Iterator[None]:
    """The core's threads are tasks of the simulation for a while."""
    with ExitStack() as stack:
        for module in MODULES_WITH_THREADS:
            stack.enter_context(patch(f"{module}.threading", THREADING))
        for module, name in ((worker, "Crew"), (worker, "Taker"), (crew, "InHand")):
            stack.enter_context(patch.object(module, name, getattr(module, name)))  # a world puts its own there
        stack.enter_context(patch("ringfence.crew.LOOK_SECONDS", Look(0.5)))
        # Calls take longer here than elsewhere, and jobs are few.
        stack.enter_context(patch.multiple("ringfence.crew", STREAK=1, SHORT_SECONDS=20.0, STUCK_SECONDS=0.3))
        stack.enter_context(patch("ringfence.intake.FETCHED_SECONDS", 3.0))  # calls take longer here than elsewhere
        stack.enter_context(patch("ringfence.timers.DUE_SHARDS", 1))
        stack.enter_context(patch("ringfence.memory.ledger.DUE_SHARDS", 1))
        for module in MODULES_WITH_POOLS:
            stack.enter_context(patch(f"{module}.ThreadPoolExecutor", Pool))
        yield
