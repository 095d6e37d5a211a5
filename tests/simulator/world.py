"""Gateway, log, relays, queues, timers and workers over the memory engines, in processes that crash, freeze and run late.

Between any process and any engine stands a `Wire`: it delays each call, and may lose it, lose its reply, deliver it late or
twice, or let the caller's process die or freeze before or after. Which of it happens to which call is a function of the seed.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from ringfence import crew
from ringfence.acceptance import Accepted, Submission
from ringfence.attempt import Taker
from ringfence.clock import SystemClock
from ringfence.company import Company
from ringfence.crew import Crew
from ringfence.errors import Rejected, RingfenceError, Unavailable
from ringfence.gateway import Gateway
from ringfence.job import Guarantee, Job, Millis, State
from ringfence.lease import Heartbeat
from ringfence.memory.ledger import MemoryLedger
from ringfence.memory.limiter import MemoryLimiter
from ringfence.memory.log import MemoryLog
from ringfence.memory.quarantine import MemoryQuarantine
from ringfence.memory.queue import MemoryQueue
from ringfence.memory.queue_settings import MemorySettings
from ringfence.memory.sweeps import MemorySweeps
from ringfence.pace import Pacer
from ringfence.ports import Services
from ringfence.process.feed import QueueFeed, Stop
from ringfence.reconcile import Reconciler
from ringfence.relay import Relay
from ringfence.testing.port_faults import Crash
from ringfence.timers import Timers

from .history import Entry, History, Landed
from .jobs import TABLES, app
from .scheduler import Process, Scheduler, Task

EPOCH_MS: Millis = 1_700_000_000_000
LEASE_SECONDS = 10.0
QUEUES = ("free", "paced")
RATE_PER_SECOND, BURST, HIGH_WATER_MARK = 0.5, 2, 2
TENANTS = ("acme", "umbrella")

WAIT_SECONDS = 120.0
"""How long a lease blocks for a first message."""

KINDS = ("crash before", "crash after", "lost request", "lost reply", "late", "twice", "freeze", "slow", "partial")
"""What may happen to a call. ``late``: it takes effect long after its caller has given up. ``twice``: it is
delivered again. ``partial``: some of a batch are not taken."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One simulation, wholly determined. ``strikes``: only these calls are struck, as long as it is not None."""

    seed: int
    jobs: int = 6
    workers: int = 3
    threads: int = 2
    """Of each worker, for each queue."""
    fault_share: float = 0.04
    skew_seconds: float = 0.0
    strikes: frozenset[int] | None = None
    kinds: tuple[str, ...] = KINDS
    quiet_after_seconds: float = 180.0
    drain_seconds: float = 3 * 3600.0
    """So much time everything has to end in once the faults have stopped: the longest delay that is asked for is 1,000 s."""


@dataclass(slots=True)
class Parts:
    """The pieces of the product, so that a test can put a broken one in the place of any."""

    gateway: Callable[..., Gateway] = Gateway
    relay: Callable[..., Relay] = Relay
    timers: Callable[..., Timers] = Timers
    crew: Callable[..., Crew] = Crew
    taker: Callable[..., Taker] = Taker
    ledger: Callable[..., MemoryLedger] = MemoryLedger
    queue: Callable[..., MemoryQueue] = MemoryQueue
    limiter: Callable[..., Any] = MemoryLimiter
    advance: Callable[[World, str | None, Sequence[Any]], str | None] = field(default=lambda *args: next_checkpoint(*args))


class SimulatedClock(SystemClock):
    """A process's clock: wrong by its skew on the wall, right about how long things take."""

    def __init__(self, scheduler: Scheduler, process: Process) -> None:
        self._scheduler, self._process = scheduler, process

    def now(self) -> Millis:
        return EPOCH_MS + int((self._scheduler.now + self._process.skew_seconds) * 1000)

    def monotonic(self) -> float:
        return self._scheduler.now

    def sleep(self, seconds: float) -> None:
        self._scheduler.sleep(seconds)

    def wait_until(self, condition: Any, monotonic: float) -> None:
        condition.wait(max(0.0, monotonic - self._scheduler.now))


class SeededIds:
    """Ids of the seed: short, for they are read by people."""

    def __init__(self, source: random.Random) -> None:
        self._source = source

    def job(self) -> str:
        return f"j{self._source.getrandbits(64):016x}"

    def mark(self) -> str:
        return f"{self._source.getrandbits(64):016x}"


class World:
    """One run: build, `run`, then look at ``history``."""

    def __init__(self, plan: Plan, parts: Parts | None = None) -> None:
        self.plan, self.parts = plan, parts or Parts()
        self.random = random.Random(plan.seed)
        self.scheduler = Scheduler()
        self.history = History()
        self.calls = 0
        self.stores = Process("stores")
        """Its clock is the true one."""
        self.true_clock = SimulatedClock(self.scheduler, self.stores)
        self.ids = SeededIds(self.random)
        self.app = app(self)
        self.landing: list[tuple[Job | None, Job]] = []
        self.ledger = self.parts.ledger(self.true_clock, tables=TABLES)
        self.ledger._rows = Rows(self.landing)
        self.queues = {name: self.parts.queue(name, self.true_clock) for name in QUEUES}
        self.last_resort = MemoryQueue("last-resort", self.true_clock)
        self.log = MemoryLog()
        self.quarantine = MemoryQuarantine()
        self.settings = MemorySettings()
        self.sweeps = MemorySweeps()
        self.limiter = self.parts.limiter(self.true_clock)
        self.settings.change("paced", {"rate_per_second": RATE_PER_SECOND, "burst": BURST, "high_water_mark": HIGH_WATER_MARK})
        self.faults_on = True
        self.relayed: str | None = None
        self._companies: dict[Process, Company] = {}
        self.told: Counter[str] = Counter()
        """How often each event was told, by its name."""
        self._waiting: dict[str, list[Task]] = {}
        self._ended_clients = 0

    # --- the run -------------------------------------------------------------------------------------------------

    def run(self) -> History:
        """Everybody at work under faults; then healed, until everything has ended."""
        scheduler = self.scheduler
        crew.LOOK_SECONDS = 6.0
        for number in range(self.plan.jobs):
            scheduler.spawn(Process(f"client-{number}"), lambda number=number: self._client(number))  # type: ignore[misc]
        scheduler.spawn(Process("operator"), self._operator)
        for number in range(2):
            scheduler.spawn(self._process("relay", number), self._relays, number * 0.3)
        scheduler.spawn(self._process("timers", 0), self._run_timers, 1.0)
        for number in range(self.plan.workers):
            self._start_worker(number)
        scheduler.run(self.plan.quiet_after_seconds)
        self.faults_on = False
        crew.LOOK_SECONDS = 60.0
        while not self._drained() and scheduler.now < self.plan.quiet_after_seconds + self.plan.drain_seconds:
            scheduler.run(scheduler.now + 60.0)
        self.history.finished = self._drained()
        return self.history

    def note(self, what: str, *args: Any, process: str = "") -> None:
        """Something that is no call of an engine."""
        entry = Entry(self.scheduler.now, process or self._who(), what, args)
        self.history.entries.append(entry)
        if what == "accepted":
            self.history.first_accepted.setdefault(args[0], entry)

    def event(self, name: str, **_: object) -> None:
        """See `ports.Telemetry.event`."""
        self.told[name] += 1

    def _drained(self) -> bool:
        if self._ended_clients < self.plan.jobs or self.faults_on:
            return False
        if any(queue.bodies() for queue in self.queues.values()) or self.log.read(after=self.relayed):
            return False
        return all(job.state.terminal for job in self.ledger.all_jobs() if job.job_id in self.history.first_accepted)

    def _who(self) -> str:
        return self.scheduler.running.process.name if self.scheduler.running else ""

    def strike(self, call: str, process: Process) -> str | None:
        """What happens to this call, if anything."""
        self.calls += 1
        plan = self.plan
        if not self.faults_on or mixed(plan.seed, self.calls) >= plan.fault_share:
            return None
        if plan.strikes is not None and self.calls not in plan.strikes:
            return None
        kind = plan.kinds[int(mixed(plan.seed, self.calls, 1) * len(plan.kinds))]
        self.history.strikes.append((self.calls, f"{kind} {call} of {process.name}"))
        return kind

    def wait_for_message(self, queue: MemoryQueue, seconds: float) -> None:
        """Until a message may be visible, as a lease that blocks is woken."""
        ahead = queue._by_visibility[0][0] - self.scheduler.now if queue._by_visibility else seconds
        self._wait_for(queue.name, min(seconds, max(0.0, ahead)))

    def _wait_for(self, what: str, seconds: float) -> None:
        task = self.scheduler.running
        assert task is not None
        waiting = self._waiting.setdefault(what, [])
        waiting.append(task)
        self.scheduler.suspend(self.scheduler.now + seconds)
        if task in waiting:
            waiting.remove(task)

    def came(self, what: str) -> None:
        """Something came into a queue, or into the log: whoever waits for it looks again."""
        waiting = self._waiting.get(what, [])
        while waiting:
            self.scheduler.wake(waiting.pop())

    # --- processes -----------------------------------------------------------------------------------------------

    def _process(self, kind: str, number: int) -> Process:
        return Process(f"{kind}-{number}", self.random.uniform(-1, 1) * self.plan.skew_seconds)

    def _services(self, process: Process) -> Services:
        def wired(name: str, port: Any) -> Any:
            return Wire(self, process, name, port)

        return Services(
            ledger=wired("ledger", self.ledger),
            quarantine=wired("quarantine", self.quarantine),
            clock=SimulatedClock(self.scheduler, process),
            ids=self.ids,
            telemetry=self,
            random_source=random.Random(self.random.getrandbits(32)),
            retention_seconds=7 * 86_400.0,
            holds_retries=lambda queue: queue == "paced",
        )

    def _wired(self, process: Process) -> tuple[Services, dict[str, Any], Pacer]:
        services = self._services(process)
        queues = {name: Wire(self, process, f"queue:{name}", queue) for name, queue in self.queues.items()}
        limiters = dict.fromkeys(queues, Wire(self, process, "limiter", self.limiter))
        settings: Any = Wire(self, process, "settings", self.settings)
        pacer = Pacer(settings, limiters, queues, services.clock, services.telemetry)  # type: ignore[arg-type]
        return services, queues, pacer

    def _client(self, number: int) -> None:
        """Submits one job, again and again until it is told that it was accepted; every request is a gateway of its own."""
        rng = random.Random(self.plan.seed * 1_000 + number)
        self.scheduler.sleep(rng.uniform(0, 60))
        keyed = rng.random() < 0.6
        delay = rng.choice([None, None, None, 5.0, 30.0, 1_000.0])
        carried = not keyed and rng.random() < 0.5
        submission = Submission(
            name="plain" if carried else rng.choice(["count", "count", "long", "flaky", "two", "doomed"]),
            payload=f'{{"n":{number}}}',
            queue=rng.choice(QUEUES),
            idempotency_key=f"key-{number}" if keyed else None,
            delay_seconds=delay,
            max_attempts=rng.choice([2, 5, 8]),
            guarantee=Guarantee.AT_LEAST_ONCE if carried else Guarantee.ONCE,
        )
        tenant = rng.choice(TENANTS)
        times = rng.choice([1, 1, 2]) if keyed else 1
        while times:
            answer = self._request(tenant, submission)
            if isinstance(answer, Accepted):
                self.note("accepted", answer.job.job_id, tenant, submission)
                times -= 1
            self.scheduler.sleep(rng.uniform(0.1, 20))
        self._ended_clients += 1

    def _request(self, tenant: str, submission: Submission) -> Any:
        """What the client gets: an answer, or None when the gateway died on it or its answer was lost."""
        caller = self.scheduler.running
        assert caller is not None
        gateway_process = self._process("gateway", self.calls)
        answers: list[Any] = []

        def serve() -> None:
            services, queues, _ = self._wired(gateway_process)
            log: Any = Wire(self, gateway_process, "log", self.log)
            answers.extend(self.parts.gateway(services, log, queues).submit(tenant, [submission]))
            self.scheduler.wake(caller)

        self.scheduler.spawn(gateway_process, serve)
        self.scheduler.suspend(self.scheduler.now + 30.0)
        return answers[0] if answers else None

    def _operator(self) -> None:
        """Cancels some jobs, redrives some dead ones."""
        rng = random.Random(~self.plan.seed)
        while self.faults_on:
            self.scheduler.sleep(rng.uniform(5, 60))
            act = rng.choice(["cancel", "redrive", "redrive"])
            dead = act == "redrive"
            jobs = [job for job in self.ledger.all_jobs() if (job.state is State.DEAD) == dead and job.state.terminal == dead]
            if not jobs:
                continue
            job = rng.choice(jobs)
            process = self._process("gateway", self.calls)
            self.scheduler.spawn(process, lambda job=job, act=act, process=process: self._act(process, act, job))  # type: ignore[misc]

    def _act(self, process: Process, act: str, job: Job) -> None:
        services, queues, _ = self._wired(process)
        gateway = self.parts.gateway(services, Wire(self, process, "log", self.log), queues)
        try:
            getattr(gateway, act)(job.tenant, job.job_id)
        except (Rejected, Unavailable):
            return

    def _relays(self) -> None:
        """One invocation after another, each from the checkpoint that the last one left; an event source does not run two at
        once, but it does start one again whose end it has missed."""
        process = self._me()
        services, queues, pacer = self._wired(process)
        relay = self.parts.relay(services, queues, pacer)
        rewinds = random.Random(self.plan.seed ^ 0xBEEF)
        while True:
            after = self.relayed
            if self.faults_on and rewinds.random() < 0.02:
                after = None  # a log that is read again from its beginning
            records = self.log.read(after=after, limit=5)
            if records:
                unsent = relay.handle(records)
                sent = [record for record in records if unsent is None or int(record.sequence) < int(unsent)]
                checkpoint = self.parts.advance(self, sent[-1].sequence if sent else None, records)
                if checkpoint is not None and (self.relayed is None or int(checkpoint) > int(self.relayed)):
                    self.relayed = checkpoint
                    self.note("checkpointed", checkpoint)
            if self.log.read(after=self.relayed):
                self.scheduler.sleep(0.5)
            else:
                self._wait_for("log", 60.0)

    def _run_timers(self) -> None:
        process = self._me()
        services, queues, pacer = self._wired(process)
        settings: Any = Wire(self, process, "settings", self.settings)
        sweeps: Any = Wire(self, process, "sweeps", self.sweeps)
        reconciler = Reconciler(services, queues, pacer, sweeps)
        timers = self.parts.timers(services, queues, self.last_resort, settings, pacer, reconciler)
        while True:
            with suppress(Unavailable):
                timers.run(lambda: 60.0)
            self.scheduler.sleep(5.0 if self.faults_on else 60.0)

    def _start_worker(self, number: int) -> None:
        process = self._process("worker", number)
        for queue in QUEUES:
            self.scheduler.spawn(process, lambda queue=queue: self._work(queue), number * 0.1)  # type: ignore[misc]

    def _work(self, queue_name: str) -> None:
        process = self._me()
        services, queues, _ = self._wired(process)
        taker = self.parts.taker(process.name, self.app.jobs, LEASE_SECONDS, services)
        feed = QueueFeed(queues[queue_name], Stop(services.clock, 60.0), lambda _: None, wait_seconds=WAIT_SECONDS)
        company = self._company_of(process)
        crew_of_queue = self.parts.crew(
            taker,
            queues[queue_name],
            self.plan.threads,
            Heartbeat,
            company,
            remaining_seconds=feed.remaining_seconds,
            feed=feed,
        )
        crew_of_queue.run()

    def _company_of(self, process: Process) -> Company:
        if process not in self._companies:
            self._companies[process] = Company()
        return self._companies[process]

    def _me(self) -> Process:
        assert self.scheduler.running is not None
        return self.scheduler.running.process

    def die(self, process: Process) -> None:
        """This process is gone; what keeps such processes running starts another."""
        if not process.alive:
            return
        process.alive = False
        self.note("crashed", process=process.name)
        kind, _, number = process.name.partition("-")
        after_seconds = self.random.uniform(0.5, 10)
        match kind:
            case "relay":
                self.scheduler.spawn(self._process(kind, int(number)), self._relays, after_seconds)
            case "timers":
                self.scheduler.spawn(self._process(kind, int(number)), self._run_timers, after_seconds)
            case "worker":
                self.scheduler.spawn(self.stores, lambda: self._start_worker(int(number)), after_seconds)

    def fell(self) -> list[tuple[Task, BaseException]]:
        """The tasks that ended with an exception that is no injected death: each is a fault of the product, or of this."""
        return [(task, raised) for task, raised in self.scheduler.fallen if not isinstance(raised, Crash)]


class Wire:
    """A port as one process reaches it."""

    def __init__(self, world: World, process: Process, name: str, port: Any) -> None:
        self._world, self._process, self._name, self._port = world, process, name, port

    def __getattr__(self, attribute: str) -> Any:
        real = getattr(self._port, attribute)
        if not callable(real):
            return real
        return lambda *args, **kwargs: self._call(attribute, real, args, kwargs)

    def _call(self, method: str, real: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        world, scheduler = self._world, self._world.scheduler
        self._ensure_alive()
        kind = world.strike(f"{self._name}.{method}", self._process)
        scheduler.sleep(world.random.uniform(0.001, 0.05))
        match kind:
            case "crash before":
                world.die(self._process)
            case "freeze":
                self._freeze()
            case "slow":
                scheduler.sleep(world.random.uniform(1, 2.5 * LEASE_SECONDS))
            case "late":
                later = world.random.uniform(1, 60)
                scheduler.spawn(world.stores, lambda: self._quietly(method, real, args, kwargs), later)
        self._ensure_alive()
        if kind in ("lost request", "late"):
            return self._no_answer(method, args)
        if kind == "partial" and method == "push":
            return self._push_half(real, *args, **kwargs)
        if method in ("lease", "acknowledge_and_lease"):
            reply = self._lease(method, real, args)
        else:
            reply = self._take_effect(method, real, args, kwargs)
        if kind == "twice":
            scheduler.spawn(
                world.stores, lambda: self._quietly(method, real, args, kwargs), world.random.uniform(0, 3 * LEASE_SECONDS)
            )
        scheduler.sleep(world.random.uniform(0.001, 0.02))
        if kind == "crash after":
            world.die(self._process)
        self._ensure_alive()
        return self._no_answer(method, args) if kind == "lost reply" else reply

    def _ensure_alive(self) -> None:
        if not self._process.alive:
            raise Crash

    def _freeze(self) -> None:
        world = self._world
        self._process.frozen_until = world.scheduler.now + world.random.uniform(0.5, 4) * LEASE_SECONDS
        world.note("frozen", self._process.frozen_until)
        world.scheduler.sleep(0)

    def _no_answer(self, method: str, args: tuple[Any, ...]) -> Any:
        """As the port's contract says it."""
        match method:
            case "append" | "write_many":
                return [None] * len(args[0])
            case "push":
                return list(args[0])
        raise Unavailable("no answer came", retry_after_seconds=0.1)

    def _push_half(self, real: Callable[..., Any], tickets: Sequence[Any], delay_seconds: Any = 0.0) -> Any:
        half = len(tickets) // 2
        delays = delay_seconds if isinstance(delay_seconds, int | float) else delay_seconds[:half]
        self._take_effect("push", real, (tickets[:half], delays), {})
        return list(tickets[half:])

    def _lease(self, method: str, real: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        """A lease that waits looks twice: at the beginning of its wait and at its end."""
        *others, wait_seconds = args
        leases = self._take_effect(method, real, (*others, 0.0), {})
        if leases or not wait_seconds:
            return leases
        self._world.wait_for_message(self._port, wait_seconds)
        self._ensure_alive()
        return self._take_effect(method, real, (*others, 0.0), {})

    def _quietly(self, method: str, real: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Take effect with nobody there to hear of it."""
        if method == "lease":
            args = (*args[:2], 0.0)
        with suppress(RingfenceError):
            self._take_effect(method, real, args, kwargs)

    def _take_effect(self, method: str, real: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        world = self._world
        reply: Any = None
        raised: BaseException | None = None
        world.landing.clear()
        try:
            reply = real(*args, **kwargs)
        except BaseException as fault:
            raised = fault
            raise
        finally:
            if method in ("push", "release"):
                world.came(self._port.name)
            elif method == "append":
                world.came("log")
            entry = Entry(world.scheduler.now, self._process.name, f"{self._name}.{method}", args, kwargs, reply, raised)
            world.history.entries.append(entry)
            for before, after in world.landing:
                world.history.landed.append(Landed(len(world.history.entries) - 1, entry, before, after))
        return reply


class Rows(dict[str, Job]):
    """The ledger's rows, which tell of every write in the order in which they happen."""

    def __init__(self, landing: list[tuple[Job | None, Job]]) -> None:
        super().__init__()
        self._landing = landing

    def __setitem__(self, job_id: str, after: Job) -> None:
        self._landing.append((self.get(job_id), after))
        super().__setitem__(job_id, after)


def next_checkpoint(_world: World, sent: str | None, _records: Sequence[Any]) -> str | None:
    """The event source goes on behind the last record of the prefix that was sent."""
    return sent


def mixed(*numbers: int) -> float:
    """A number in [0, 1) that depends on these alone."""
    state = 0x9E3779B97F4A7C15
    for number in numbers:
        state = (state ^ (number & (2**64 - 1))) * 0xBF58476D1CE4E5B9 & (2**64 - 1)
        state ^= state >> 31
        state = state * 0x94D049BB133111EB & (2**64 - 1)
        state ^= state >> 29
    return state / 2**64
