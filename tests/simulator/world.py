"""Gateway, log, relays, queues, timers and workers over the memory engines, in processes that crash, freeze and run late.

Between any process and any engine stands a `wire.Wire`: it delays each call, and may lose it, lose its reply, deliver it late
or twice, or let the caller's process die or freeze before or after. Which of it happens to which call is a function of the
seed.
"""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from ringfence import crew, worker
from ringfence.acceptance import Accepted, Refusal, Submission
from ringfence.attempt import Taker
from ringfence.clock import SystemClock
from ringfence.company import Company
from ringfence.crew import Crew
from ringfence.errors import Rejected, Unavailable
from ringfence.gateway import Gateway
from ringfence.inhand import InHand
from ringfence.job import Job, Millis, State
from ringfence.lease import Heartbeat
from ringfence.memory.ledger import MemoryLedger
from ringfence.memory.limiter import MemoryLimiter
from ringfence.memory.log import MemoryLog
from ringfence.memory.quarantine import MemoryQuarantine
from ringfence.memory.queue import MemoryQueue
from ringfence.memory.queue_settings import MemorySettings
from ringfence.memory.sweeps import MemorySweeps
from ringfence.pace import Pacer
from ringfence.ports import Lease, Services
from ringfence.reconcile import Reconciler
from ringfence.relay import Relay
from ringfence.testing.port_faults import Crash
from ringfence.timers import Timers
from ringfence.worker import Worker

from .clients import NAMES, QUEUES, TENANTS, asked_by
from .history import Entry, History
from .jobs import TABLES, app
from .mishaps import lose_memory, put_what_nobody_can_read
from .pollers import Pollers
from .scheduler import Process, Scheduler, Task
from .wire import KINDS, Call, Rows, Wire
from .workers import LEASE_SECONDS, Function, TellingCrew, TellingTaker, WorkerProcess

EPOCH_MS: Millis = 1_700_000_000_000
QUEUES_OF_WORKERS = (QUEUES, QUEUES[:1], QUEUES[1:])
RUN_SECONDS = 60.0
"""Between two runs of the timers."""


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
    pause_share: float = 0.0
    """How often a task is paused where it takes or leaves a lock."""
    quiet_after_seconds: float = 180.0
    functions: frozenset[int] = frozenset()
    """The workers, by number, that are functions and no processes; the first is none, for it has two queues."""
    stops: int = 0
    """How often a worker process is told to stop."""
    names: tuple[str, ...] = NAMES
    """Of the jobs that are asked for, as far as they have rows."""
    strangers: int = 0
    """Messages and records that nobody can read."""
    losses: int = 0
    """How often a queue loses its memory."""
    rate_per_second: float | None = 0.5
    burst: int = 2
    high_water_mark: int | None = 2
    """Of the paced queue."""
    drain_seconds: float = 3 * 3600.0
    """So much time everything has to end in once the faults have stopped: the longest delay that is asked for is 1,000 s."""


@dataclass(slots=True)
class Parts:
    """The pieces of the product, so that a test can put a broken one in the place of any."""

    gateway: Callable[..., Gateway] = Gateway
    relay: Callable[..., Relay] = Relay
    timers: Callable[..., Timers] = Timers
    crew: Callable[..., Crew] = TellingCrew
    in_hand: Callable[..., InHand] = InHand
    taker: Callable[..., Taker] = TellingTaker
    heartbeat: type[Heartbeat] = Heartbeat
    ledger: Callable[..., MemoryLedger] = MemoryLedger
    queue: Callable[..., MemoryQueue] = MemoryQueue
    limiter: Callable[..., Any] = MemoryLimiter


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
        self._chance = self.random.random
        self._fate = random.Random(~plan.seed).random
        """A number for each call, whoever makes it: a life without some of its strikes goes on as it was until the next."""
        self.scheduler = Scheduler(plan.pause_share, random.Random(plan.seed ^ 0x10C5))
        self.history = History()
        self.calls = 0
        self._whole_kinds = tuple(kind for kind in plan.kinds if kind != "partial")
        self.stores = Process("stores")
        """Its clock is the true one."""
        self.true_clock = SimulatedClock(self.scheduler, self.stores)
        self.ids = SeededIds(self.random)
        self.app = app(self)
        self.landing: list[tuple[Job | None, Job]] = []
        self.ledger = self.parts.ledger(self.true_clock, tables=TABLES)
        self.ledger._rows = Rows(self.landing)
        self.queues = {name: self.parts.queue(name, self.true_clock) for name in QUEUES}
        self.pollers = {name: Pollers(queue, self.scheduler, self.stores, self.random) for name, queue in self.queues.items()}
        self.last_resort = MemoryQueue("last-resort", self.true_clock)
        self.log = MemoryLog()
        self.quarantine = MemoryQuarantine()
        self.settings = MemorySettings()
        self.sweeps = MemorySweeps()
        self.limiter = self.parts.limiter(self.true_clock)
        pace = {"rate_per_second": plan.rate_per_second, "burst": plan.burst, "high_water_mark": plan.high_water_mark}
        self.settings.change("paced", pace)
        self.faults_on = True
        self.relayed: str | None = None
        self._started: Counter[str] = Counter()
        self.skews: dict[str, float] = {}
        """By how many seconds the clock of each process is fast."""
        self._worker_processes: dict[int, WorkerProcess] = {}
        self.told: Counter[str] = Counter()
        """How often each event was told, by its name, and each thing noted that is no call."""
        self._readers: list[Task] = []
        """Of the log: who waits for more."""
        self._passing_over: tuple[Task, float, float] | None = None
        """The timers, since when they pass runs over, and until when."""
        self._ended_clients = 0

    # --- the run -------------------------------------------------------------------------------------------------

    def run(self) -> History:
        """Everybody at work under faults; then healed, until everything has ended."""
        scheduler = self.scheduler
        worker.Crew, worker.Taker = self.parts.crew, self.parts.taker  # type: ignore[assignment, misc]
        crew.InHand = self.parts.in_hand  # type: ignore[assignment, misc]
        for number in range(self.plan.jobs):
            scheduler.spawn(Process(f"client-{number}"), lambda number=number: self._client(number))  # type: ignore[misc]
        scheduler.spawn(Process("operator"), self._operator)
        for number in range(2):
            self._start("relay", number, self._relays, number * 0.3)
        self._start("timers", 0, self._run_timers, 1.0)
        for number in range(self.plan.workers):
            self.start_worker(number)
        scheduler.spawn(Process("deployer"), self._deployer)
        scheduler.spawn(Process("strangers"), partial(put_what_nobody_can_read, self))
        scheduler.spawn(Process("losses"), partial(lose_memory, self))
        scheduler.run(self.plan.quiet_after_seconds)
        self.faults_on = False
        while not self._drained() and scheduler.now < self.plan.quiet_after_seconds + self.plan.drain_seconds:
            scheduler.run(scheduler.now + 60.0)
        self.history.finished = self._drained()
        scheduler.end()
        self.told["paused at a lock"] += scheduler.pauses
        return self.history

    def note(self, what: str, *args: Any, process: str = "") -> None:
        """Something that is no call of an engine."""
        entry = Entry(self.scheduler.now, process or self._who(), what, args)
        self.history.entries.append(entry)
        self.told[what] += 1
        if what == "accepted":
            self.history.first_accepted.setdefault(args[0], entry)

    def event(self, name: str, **_: object) -> None:
        """See `ports.Telemetry.event`."""
        self.told[name] += 1

    def took(self, lease: Lease) -> None:
        """A worker has started a message."""
        self.note("took", lease.receipt, "extend" in self._me().struck)

    def _drained(self) -> bool:
        if self._ended_clients < self.plan.jobs or self.faults_on:
            return False
        if any(queue.bodies() for queue in self.queues.values()) or self.log.read(after=self.relayed):
            return False
        return all(job.state.terminal for job in self.ledger.all_jobs() if job.job_id in self.history.first_accepted)

    def _who(self) -> str:
        return self.scheduler.running.process.name if self.scheduler.running else ""

    def strike(self, call: Call, process: Process) -> str | None:
        """What happens to this call, if anything."""
        self.calls += 1
        plan = self.plan
        if not self.faults_on or self._fate() >= plan.fault_share:
            return None
        if plan.strikes is not None and self.calls not in plan.strikes:
            return None
        kinds = plan.kinds if call.has_half else self._whole_kinds
        if not kinds:
            return None
        kind = random.Random(plan.seed << 32 | self.calls).choice(kinds)
        call.strike = self.calls, f"{kind} {call.what} of {process.name}"
        if kind != "partial":  # whether there is a half of what it reads is not known yet
            self.struck(call, process)
        return kind

    def struck(self, call: Call, process: Process) -> None:
        """It has happened to this call."""
        process.struck[call.method] = self.scheduler.now
        self.history.strikes.append(call.strike)

    def between(self, least: float, most: float) -> float:
        """By chance."""
        return least + (most - least) * self._chance()

    def _wait_for_records(self, seconds: float) -> None:
        task = self.scheduler.me()
        self._readers.append(task)
        self.scheduler.suspend(self.scheduler.now + seconds)
        if task in self._readers:
            self._readers.remove(task)

    def records_came(self) -> None:
        """Something came into the log: whoever waits for it reads again."""
        while self._readers:
            self.scheduler.wake(self._readers.pop())

    # --- processes -----------------------------------------------------------------------------------------------

    def process(self, kind: str, number: int, on_death: Callable[[], object] | None = None) -> Process:
        """Named by its kind and number; the second of them as well by which it is, for it is not the first."""
        name = f"{kind}-{number}"
        self._started[name] += 1
        if self._started[name] > 1:
            name = f"{name}.{self._started[name]}"
        self.skews[name] = skew_seconds = self.random.uniform(-1, 1) * self.plan.skew_seconds
        return Process(name, skew_seconds, on_death)

    def clock_error_seconds(self, *kinds: str) -> float:
        """By how much the clocks of these kinds of processes differ at the most."""
        skews = [skew for name, skew in self.skews.items() if name.startswith(kinds)]
        return max(skews) - min(skews)

    def _start(self, kind: str, number: int, code: Callable[[], object], after_seconds: float = 0.0) -> None:
        """A process that is started again whenever it has died."""
        process = self.process(kind, number, lambda: self._start(kind, number, code))
        self.scheduler.spawn(process, code, after_seconds)

    def clock_of(self, process: Process) -> SimulatedClock:
        return SimulatedClock(self.scheduler, process)

    def _services(self, process: Process) -> Services:
        def wired(name: str, port: Any) -> Any:
            return Wire(self, process, name, port)

        return Services(
            ledger=wired("ledger", self.ledger),
            quarantine=wired("quarantine", self.quarantine),
            clock=self.clock_of(process),
            ids=self.ids,
            telemetry=self,
            random_source=random.Random(self.random.getrandbits(32)),
            retention_seconds=7 * 86_400.0,
            holds_retries=lambda queue: queue == "paced" and self.plan.rate_per_second is not None,
        )

    def wired(self, process: Process) -> tuple[Services, dict[str, Any], Pacer]:
        services = self._services(process)
        queues = {name: Wire(self, process, f"queue:{name}", queue) for name, queue in self.queues.items()}
        limiters = dict.fromkeys(queues, Wire(self, process, "limiter", self.limiter))
        settings: Any = Wire(self, process, "settings", self.settings)
        pacer = Pacer(settings, limiters, queues, services.clock, services.telemetry)  # type: ignore[arg-type]
        return services, queues, pacer

    def _client(self, number: int) -> None:
        """Submits what it is to ask for, again and again until it is told that it was accepted, or refused for good; every
        request is a gateway of its own."""
        asked = asked_by(number, self.plan.seed, self.plan.names)
        rng = random.Random(f"client {number} of {self.plan.seed}")
        self.scheduler.sleep(rng.uniform(0, 60))
        self.note("asked", asked.tenant, asked.submission)
        times = asked.times
        while times:
            match self._request(asked.tenant, asked.submission):
                case Accepted(job):
                    self.note("accepted", job.job_id, asked.tenant, asked.submission, number)
                    times -= 1
                case Refusal(retry_after_seconds=None):
                    break
            self.scheduler.sleep(rng.uniform(0.1, 20))
        self._ended_clients += 1

    def _request(self, tenant: str, submission: Submission) -> Any:
        """What the client gets: an answer, or None when the gateway died on it or its answer was lost."""
        caller = self.scheduler.me()
        gateway_process = self.process("gateway", self.calls)
        answers: list[Any] = []

        def serve() -> None:
            services, queues, _ = self.wired(gateway_process)
            log: Any = Wire(self, gateway_process, "log", self.log)
            (answer,) = self.parts.gateway(services, log, queues).submit(tenant, [submission])
            if isinstance(answer, Refusal):
                self.note("refused", tenant, submission, answer, bool(gateway_process.struck))
            answers.append(answer)
            self.scheduler.wake(caller)

        self.scheduler.spawn(gateway_process, serve)
        self.scheduler.suspend(self.scheduler.now + 30.0)
        return answers[0] if answers else None

    def _operator(self) -> None:
        """Cancels some jobs, redrives some dead ones; now and then one of another tenant's, which is no job of its own."""
        rng = random.Random(f"operator of {self.plan.seed}")
        while self.faults_on:
            self.scheduler.sleep(rng.uniform(5, 45))
            act = rng.choice(["cancel", "redrive", "redrive", "redrive"])
            dead = act == "redrive"
            jobs = [job for job in self.ledger.all_jobs() if (job.state is State.DEAD) == dead and job.state.terminal == dead]
            if not jobs:
                continue
            job = rng.choice(jobs)
            tenant = rng.choice([job.tenant, job.tenant, *TENANTS])
            process = self.process("gateway", self.calls)
            self.scheduler.spawn(process, partial(self._act, process, act, tenant, job.job_id))

    def _act(self, process: Process, act: str, tenant: str, job_id: str) -> None:
        services, queues, _ = self.wired(process)
        gateway = self.parts.gateway(services, Wire(self, process, "log", self.log), queues)
        with suppress(Rejected, Unavailable):
            getattr(gateway, act)(tenant, job_id)
            self.note("acted", job_id, tenant)

    def _relays(self) -> None:
        """One invocation after another, each from the checkpoint that the last one left; an event source does not run two at
        once, but it does start one again whose end it has missed."""
        process = self._me()
        services, queues, pacer = self.wired(process)
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
                if sent and (self.relayed is None or int(sent[-1].sequence) > int(self.relayed)):
                    self.relayed = sent[-1].sequence
                    self.note("checkpointed", self.relayed)
            if self.log.read(after=self.relayed):
                self.scheduler.sleep(0.5)
            else:
                self._wait_for_records(60.0)

    def _run_timers(self) -> None:
        process = self._me()
        services, queues, pacer = self.wired(process)
        settings: Any = Wire(self, process, "settings", self.settings)
        sweeps: Any = Wire(self, process, "sweeps", self.sweeps)
        reconciler = Reconciler(services, queues, pacer, sweeps)
        timers = self.parts.timers(services, queues, self.last_resort, settings, pacer, reconciler)
        while True:
            with suppress(Unavailable):
                timers.run(lambda: 60.0)
            if self.faults_on:
                self.scheduler.sleep(self.between(5, 25))
            else:
                self._pass_runs_over(self._until_due(services.clock.now()))

    def _pass_runs_over(self, seconds: float) -> None:
        """Nothing is to be done for so long, unless a mark comes meanwhile: then the next run is not passed over."""
        scheduler = self.scheduler
        self._passing_over = scheduler.me(), scheduler.now, scheduler.now + seconds
        scheduler.sleep(seconds)
        self._passing_over = None

    def marked(self) -> None:
        """Timers owe a job a ticket."""
        if self._passing_over is not None:
            timers, since, until = self._passing_over
            next_run = since + RUN_SECONDS * max(1, math.ceil((self.scheduler.now - since) / RUN_SECONDS))
            if next_run < until:
                self._passing_over = None
                self.scheduler.wake(timers, next_run)

    def _until_due(self, now: Millis) -> float:
        """Timers run each minute. Where nothing but waiting for a far time is left to do, the runs before it are left out."""
        marked = [job for job in self.ledger.all_jobs() if job.due_id is not None]
        if any(job.in_line for job in marked) or self._is_unrepaired():
            return RUN_SECONDS
        ahead = [(job.run_at or 0) - now for job in marked]
        return max(RUN_SECONDS, min(ahead, default=4_000 * RUN_SECONDS) / 1000)

    def _is_unrepaired(self) -> bool:
        """Whether a queue has lost its memory, and not all that was in it has come back."""
        notes = self.sweeps.read()
        return bool(notes.repairs) or any(notes.marks.get(name) != queue.memory_mark() for name, queue in self.queues.items())

    def start_worker(self, number: int) -> None:
        """Another of this number: the last one, if there was one, has ended."""
        queues = QUEUES_OF_WORKERS[number % len(QUEUES_OF_WORKERS)]
        if number in self.plan.functions:
            Function(self, number, *queues)
        else:
            self._worker_processes[number] = WorkerProcess(self, number, queues)

    def worker(self, process: Process, services: Services, company: Company) -> Worker:
        """What a process or function runs."""
        return Worker(
            self.app,
            services,
            name=process.name,
            threads=self.plan.threads,
            lease_seconds=LEASE_SECONDS,
            heartbeat=self.parts.heartbeat,
            company=company,
        )

    def _deployer(self) -> None:
        """Stops worker processes in good order, to start others."""
        rng = random.Random(self.plan.seed ^ 0x57)
        for _ in range(self.plan.stops):
            self.scheduler.sleep(rng.uniform(5, 90))
            rng.choice(list(self._worker_processes.values())).terminate()

    def _me(self) -> Process:
        return self.scheduler.me().process

    def die(self, process: Process) -> None:
        """This process is gone, unawares."""
        if process.alive:
            self.note("crashed", process=process.name)
            self.end(process)

    def end(self, process: Process) -> None:
        """This process is gone; what keeps such processes running starts another."""
        process.alive = False
        if process.on_death is not None:
            self.scheduler.spawn(self.stores, process.on_death, self.between(0.5, 10))

    def fell(self) -> list[tuple[Task, BaseException]]:
        """The tasks that ended with an exception that is no injected death: each is a fault of the product, or of this."""
        return [(task, raised) for task, raised in self.scheduler.fallen if not isinstance(raised, Crash)]
