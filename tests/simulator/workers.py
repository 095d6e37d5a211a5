"""The two kinds of worker: processes that serve queues until they are told to stop, and functions that batches are brought to.

Around the real `Worker` of either stands what runs it: a supervisor with its SIGTERM and its grace; an event source mapping
with the environments that it invokes, each frozen between two invocations and gone when its time is over.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from ringfence.attempt import Taker
from ringfence.company import Company
from ringfence.crew import Crew, Streak
from ringfence.errors import Poisoned, Unavailable
from ringfence.memory.queue import MemoryQueue
from ringfence.ports import Lease
from ringfence.process.feed import QueueFeed, Stop
from ringfence.process.supervisor import MARGIN_SECONDS
from ringfence.wire import Ticket

from .scheduler import FROZEN, Process, Thread
from .wire import LATE_SECONDS, Wire

if TYPE_CHECKING:
    from .world import World

LEASE_SECONDS = 10.0

WAIT_SECONDS = 300.0
"""How long a lease blocks for a first message."""

WAIT_WHILE_STOPPING_SECONDS = 1.0
"""What is left of that for a process that is told to stop."""

LOOK_SECONDS, BUSY_SECONDS = 6.0, 12.0
"""A crew looks after what it has so often, for so long after it has got some; what else there is to see it is told of."""

LOOK_WHILE_STOPPING_SECONDS = 0.5

GRACE_SECONDS = 12.0

FUNCTION_SECONDS = 25.0
"""The time limit of a function."""

VISIBILITY_SECONDS = 2 * FUNCTION_SECONDS
"""Of a function's queue: SQS refuses one below the function's time limit."""

BATCH = 4
POLLERS = 2
"""Of one event source mapping: as many invocations at a time."""

COLD_SHARE = 0.2
"""Invocations for which a new environment is started although one is idle."""


class TellingTaker(Taker):
    """Tells which messages were started."""

    def take(self, queue: Any, lease: Lease, ticket: Ticket | Poisoned, *more: Any) -> Any:
        told: Any = self.services.telemetry
        told.took(lease)
        return super().take(queue, lease, ticket, *more)


class TellingCrew(Crew):
    """Tells when a thread leaves all messages to another."""

    def _stand_by(self, leading: Streak) -> None:
        self._telemetry.event("stood by")
        super()._stand_by(leading)


# --- processes -----------------------------------------------------------------------------------------------------------


class WorkerProcess:
    """One process of `ringfence worker`."""

    def __init__(self, world: World, number: int, queues: Sequence[str]) -> None:
        self._world, self._number = world, number
        self.process = world.process("worker", number, lambda: world.start_worker(number))
        self._stop = Stop(world.clock_of(self.process), GRACE_SECONDS)
        self._company = Company(world.clock_of(self.process))
        self._feeds: list[Feed] = []
        self._serving = len(queues)
        self._asked_at = 0.0
        for queue in queues:
            world.scheduler.spawn(self.process, partial(self._serve, queue), number * 0.1)

    def _serve(self, queue_name: str) -> None:
        world = self._world
        services, queues, _ = world.wired(self.process)
        feed = Feed(world, queues[queue_name], self._stop, can_ask=self._number % 2 == 1)
        self._feeds.append(feed)
        world.worker(self.process, services, self._company).serve(queues[queue_name], feed)
        self._serving -= 1
        if not self._serving:
            self._leave()

    def terminate(self) -> None:
        """SIGTERM; and SIGKILL, if it is still there when the grace is over. Called by a task of somebody else's."""
        world = self._world
        world.scheduler.spawn(self.process, self._ask)
        began = world.scheduler.now
        world.scheduler.sleep(GRACE_SECONDS + MARGIN_SECONDS)
        if self.process.alive:
            world.note("cut off", self.process.struck_since(began - LATE_SECONDS), process=self.process.name)
            world.die(self.process)

    def _leave(self) -> None:
        world, process = self._world, self.process
        struck = process.struck_since(self._asked_at - LATE_SECONDS)
        world.note("left", list(_hidden(self._messages())), _struck_lately(world, process), struck)
        world.end(process)

    def _ask(self) -> None:
        world = self._world
        self._asked_at = world.scheduler.now
        world.note("asked to stop")
        self._stop.ask()
        self.process.wait_at_most_seconds = WAIT_WHILE_STOPPING_SECONDS
        for pollers in world.pollers.values():
            pollers.give_up(self.process, world.scheduler.now + world.between(0, WAIT_WHILE_STOPPING_SECONDS))
        for feed in self._feeds:
            feed.call_watch()

    def _messages(self) -> Iterable[tuple[MemoryQueue, str]]:
        for feed in self._feeds:
            for receipt in feed.fetched:
                yield self._world.queues[feed.name], receipt


class Feed(QueueFeed):
    """A queue's messages. Its crew looks around when it has got some, and not while it has nothing to see."""

    can_ask: bool = False

    def __init__(self, world: World, queue: Any, stop: Stop, *, can_ask: bool) -> None:
        """Made by the task that will be the crew's watch."""
        super().__init__(queue, stop, lambda _: None, wait_seconds=WAIT_SECONDS)
        self.can_ask, self._messages = can_ask, queue
        self.name: str = queue.name
        self.fetched: list[str] = []
        """The receipts of all messages so far."""
        self._world = world
        self._busy_until = 0.0
        self._watch = world.scheduler.me()
        self._watch.next_look = self._next_look

    def exchange(self, done: Sequence[Lease], room: int, lease_seconds: float) -> list[Lease]:
        return self._got(super().exchange(done, room, lease_seconds))

    def ask(self, done: Sequence[Lease], room: int, lease_seconds: float) -> Callable[[], list[Lease]]:
        """On its way as a task of its own, until somebody waits for it."""
        ended: list[list[Lease] | Unavailable] = []

        def carry_out() -> None:
            try:
                if done:
                    self._messages.acknowledge(done)
                ended.append(self._messages.lease(room, lease_seconds, 0.0))
            except Unavailable as fault:
                ended.append(fault)

        def receive() -> list[Lease]:
            task.join()
            (how,) = ended
            if isinstance(how, Unavailable):
                raise how
            return self._got(how)

        self._world.note("asked ahead")
        self.call_watch()
        task = Thread(carry_out)
        task.start()
        return receive

    def _got(self, leases: list[Lease]) -> list[Lease]:
        if leases:
            self.fetched.extend(lease.receipt for lease in leases)
            self._busy_until = self._world.scheduler.now + BUSY_SECONDS
            self.call_watch()
        return leases

    def call_watch(self) -> None:
        """The crew's watch looks now."""
        if self._watch.looks_in is not None:
            self._watch.looks_in.call(self._watch)

    def _next_look(self) -> float | None:
        if self.stopping:
            return LOOK_WHILE_STOPPING_SECONDS
        return LOOK_SECONDS if self._world.scheduler.now < self._busy_until else None


# --- functions -----------------------------------------------------------------------------------------------------------


class Function:
    """The worker function of one queue: its event source mapping, and its environments."""

    def __init__(self, world: World, number: int, queue: str) -> None:
        self._world, self._number, self._queue = world, number, queue
        self._environments: list[Environment] = []
        self._numbers = itertools.count()
        for _ in range(POLLERS):
            self._start_poller()

    def _start_poller(self) -> None:
        process = self._world.process("mapping", self._number, self._start_poller)
        self._world.scheduler.spawn(process, partial(self._poll, process), self._number * 0.1)

    def _poll(self, process: Process) -> None:
        queue: Any = Wire(self._world, process, f"queue:{self._queue}", self._world.queues[self._queue])
        while True:
            with suppress(Unavailable):
                if leases := queue.lease(BATCH, VISIBILITY_SECONDS, WAIT_SECONDS):
                    finished = self._environment().invoke(leases)
                    done = [lease for lease in leases if lease.message_id in finished]
                    if done:
                        queue.acknowledge(done)

    def _environment(self) -> Environment:
        idle = [each for each in self._environments if each.idle]
        if idle and self._world.between(0, 1) > COLD_SHARE:
            return idle[0]
        self._environments.append(Environment(self._world, 100 * self._number + next(self._numbers), self._queue))
        return self._environments[-1]


@dataclass(slots=True)
class Invocation:
    finished: set[str] = field(default_factory=set)
    """Messages that are not among its batch item failures."""
    over: bool = False


class Environment:
    """An execution environment of a function: one invocation at a time, and frozen between two.

    https://docs.aws.amazon.com/lambda/latest/dg/lambda-runtime-environment.html
    """

    def __init__(self, world: World, number: int, queue: str) -> None:
        self._world = world
        self._process = world.process("function", number)
        services, queues, _ = world.wired(self._process)
        self._queue, self._messages = queues[queue], world.queues[queue]
        self._worker = world.worker(self._process, services, Company(world.clock_of(self._process)))
        self._invocation: Invocation | None = None

    @property
    def idle(self) -> bool:
        return self._invocation is None and self._process.alive

    def invoke(self, leases: Sequence[Lease]) -> set[str]:
        """The messages that are finished; none if it crashes, or is cut off."""
        world, process, scheduler = self._world, self._process, self._world.scheduler
        caller = scheduler.me()
        self._invocation = invocation = Invocation()
        scheduler.thaw(process)
        receipts = [lease.receipt for lease in leases]
        world.note("invoked", receipts, "extend" in process.struck, process=process.name)
        began, ends = scheduler.now, scheduler.now + FUNCTION_SECONDS

        def handle() -> None:
            done = self._worker.handle(self._queue, leases, lambda: ends - scheduler.now)
            hidden = list(_hidden((self._messages, receipt) for receipt in receipts))
            world.note("left", hidden, _struck_lately(world, process), process.struck_since(began))
            invocation.finished = {lease.message_id for lease in done}
            self._invocation = None
            process.frozen_until = FROZEN
            end()

        def end() -> None:
            if not invocation.over:
                invocation.over = True
                scheduler.wake(caller)

        def cut_off() -> None:
            if not invocation.over and process.alive:
                world.note("cut off", process.struck_since(began), process=process.name)
                world.die(process)

        process.on_death = end
        scheduler.spawn(process, handle)
        scheduler.spawn(world.stores, cut_off, FUNCTION_SECONDS)
        scheduler.suspend()
        return invocation.finished


# --- what they leave -----------------------------------------------------------------------------------------------------


def _hidden(messages: Iterable[tuple[MemoryQueue, str]]) -> Iterable[tuple[str, float]]:
    """Each message that is still under this receipt, with the time at which it is visible again."""
    for queue, receipt in messages:
        if (message := queue._by_receipt.get(receipt)) is not None:
            yield receipt, message.visible_at


def _struck_lately(world: World, process: Process) -> bool:
    """Whether a call that gives back or extends a lease did not do so, or does so still."""
    since = world.scheduler.now - LATE_SECONDS - FUNCTION_SECONDS
    return any(process.struck.get(method, since) > since for method in ("release", "extend"))
