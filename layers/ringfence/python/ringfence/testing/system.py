"""The whole queue in memory, in one process: the real core over the memory engines, for tests of jobs and of the core."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from ringfence.acceptance import Accepted, Submission
from ringfence.app import App
from ringfence.effects import Item
from ringfence.gateway import Gateway
from ringfence.ids import RandomIds
from ringfence.job import Job, State
from ringfence.lease import Heartbeat
from ringfence.memory.clock import ManualClock
from ringfence.memory.ledger import MemoryLedger
from ringfence.memory.limiter import MemoryLimiter
from ringfence.memory.log import MemoryLog
from ringfence.memory.quarantine import MemoryQuarantine
from ringfence.memory.queue import MemoryQueue
from ringfence.memory.queue_settings import MemorySettings
from ringfence.memory.sweeps import MemorySweeps
from ringfence.memory.telemetry import MemoryTelemetry
from ringfence.pace import Pacer
from ringfence.ports import MAX_DELAY_SECONDS, Clock, Limiter, Services, SettingsStore, SweepStore
from ringfence.reconcile import Reconciler
from ringfence.relay import Relay
from ringfence.timers import Timers
from ringfence.worker import Worker

DAY_SECONDS = 24 * 3600.0

MOST_ROUNDS = 200
"""So many passes of every hop are enough for any job that ends at all: the attempts of one, each with its backoff."""

LONGEST_PAUSE_SECONDS = MAX_DELAY_SECONDS
"""Between two passes: as long as a ticket can hide in a queue."""


class NoHeartbeat(Heartbeat):
    """Keeps nothing: for jobs whose leases are to run out."""

    def start(self) -> None: ...


class MemorySystem:
    """Gateway, log, relay, queues, workers, timers and ledger, driven by hand.

    ``tables`` names the user's tables and their key attributes: ``{"Users": ["email"]}``. ``wrap(name, port)`` may put
    something between the core and any engine, as `runtime.Runtime` allows.
    """

    def __init__(
        self,
        app: App,
        *,
        tables: Mapping[str, Sequence[str]] | None = None,
        queues: Sequence[str] = ("default", "priority"),
        clock: Clock | None = None,
        wrap: Callable[[str, Any], Any] | None = None,
        lease_seconds: float = 30.0,
        threads: int = 1,
    ) -> None:
        wrapped = wrap or (lambda _name, port: port)
        self.app, self.lease_seconds, self.threads = app, lease_seconds, threads
        self.clock: Clock = clock or ManualClock()
        self.ids, self.telemetry, self.memory_log = RandomIds(), MemoryTelemetry(), MemoryLog()
        self.memory_ledger = MemoryLedger(self.clock, tables={name: tuple(key) for name, key in (tables or {}).items()})
        self.memory_queues = {name: MemoryQueue(name, self.clock) for name in queues}
        self.last_resort = MemoryQueue("last-resort", self.clock)
        self.quarantine = MemoryQuarantine()
        self.ledger = wrapped("ledger", self.memory_ledger)
        self.log = wrapped("log", self.memory_log)
        self.queue_settings: SettingsStore = wrapped("settings", MemorySettings())
        self.sweeps: SweepStore = wrapped("sweeps", MemorySweeps())
        self.limiter: Limiter = wrapped("limiter", MemoryLimiter(self.clock))
        self.queues = {name: wrapped(f"queue:{name}", queue) for name, queue in self.memory_queues.items()}
        self._relayed: str | None = None
        self.build()

    def build(self) -> None:
        """Fresh processes over the same stores, as after a crash."""
        self.services = Services(
            ledger=self.ledger,
            quarantine=self.quarantine,
            clock=self.clock,
            ids=self.ids,
            telemetry=self.telemetry,
            random_source=random.Random(1),
            retention_seconds=7 * DAY_SECONDS,
            holds_retries=lambda queue: self.pacer.holds_retries(queue),
        )
        limiters = dict.fromkeys(self.queues, self.limiter)
        self.pacer = Pacer(self.queue_settings, limiters, self.queues, self.clock, self.telemetry)
        self.gateway = Gateway(self.services, self.log, self.queues)
        self.relay = Relay(self.services, self.queues, self.pacer)
        self.reconciler = Reconciler(self.services, self.queues, self.pacer, self.sweeps)
        self.timers = Timers(self.services, self.queues, self.last_resort, self.queue_settings, self.pacer, self.reconciler)

    def worker(self, name: str = "worker-a", *, heartbeats: bool = False, clock: Clock | None = None) -> Worker:
        """A worker process of its own name, and with a clock of its own if one is given."""
        return Worker(
            self.app,
            self.services if clock is None else dataclasses.replace(self.services, clock=clock),
            name=name,
            threads=self.threads,
            lease_seconds=self.lease_seconds,
            heartbeat=Heartbeat if heartbeats else NoHeartbeat,
        )

    def submit(self, name: str, payload: str = "{}", **more: Any) -> Job:
        """Submit one job that must be accepted."""
        (answer,) = self.gateway.submit("default", [Submission(name=name, payload=payload, **more)])
        if not isinstance(answer, Accepted):
            raise AssertionError(f"not accepted: {answer}")
        return answer.job

    def run_relay(self) -> str | None:
        """Relay what is new in the log, keeping the checkpoint as the event-source mapping would."""
        records = self.memory_log.read(after=self._relayed)
        unsent = self.relay.handle(records)
        sent = [record for record in records if unsent is None or int(record.sequence) < int(unsent)]
        if sent:
            self._relayed = sent[-1].sequence
        return unsent

    def run_worker(self, worker: Worker | None = None, *, queue: str = "default", most: int = 10) -> int:
        """Lease one batch, work on it, acknowledge what is finished. Returns how many messages there were."""
        leases = self.queues[queue].lease(most, self.lease_seconds)
        if leases:
            done = (worker or self.worker()).handle(self.queues[queue], leases)
            self.queues[queue].acknowledge(done)
        return len(leases)

    def run_job(self, name: str, payload: Any = None, **more: Any) -> Job:
        """Submit a job (``payload`` is any value that JSON has; None is ``{}``) and let it live to its end. Returns its row
        then, or, for the guarantee at-least-once, what its row would have been when it was accepted.

        ``more`` is what a `Submission` may say. `TimeoutError` when it does not end.
        """
        job = self.submit(name, payload_text(payload), **more)
        self.drain()
        return self.memory_ledger.get(job.job_id) or job

    def drain(self, worker: Worker | None = None, *, most_rounds: int = MOST_ROUNDS) -> None:
        """Let every hop run, and time pass, until no ticket is left and every job with a row has ended.

        `TimeoutError` when that is not so after ``most_rounds`` passes.
        """
        pause_seconds = 1.0
        for _ in range(most_rounds):
            self.run_relay()
            self.timers.run()
            if sum(self.run_worker(worker, queue=queue) for queue in self.queues):
                pause_seconds = 1.0
            waiting = [job for job in self.memory_ledger.all_jobs() if not job.state.terminal]
            if not waiting and not any(queue.bodies() for queue in self.memory_queues.values()):
                return
            due = [(job.run_at - self.clock.now()) / 1000 for job in waiting if job.state is State.SCHEDULED and job.run_at]
            self.clock.sleep(max(pause_seconds, min(due, default=0.0)))
            pause_seconds = min(2 * pause_seconds, LONGEST_PAUSE_SECONDS)
        raise TimeoutError(f"not all has ended after {most_rounds} passes of every hop: {waiting or 'a ticket is left'}")

    def put(self, table: str, *items: Item) -> None:
        """Write items of the user's, as they are to be before a job runs."""
        for item in items:
            self.memory_ledger.put_item(table, item)

    def items(self, table: str) -> list[dict[str, Any]]:
        """What one of the user's tables holds; numbers are int or Decimal."""
        return self.memory_ledger.items(table)

    def job(self, job_id: str) -> Job:
        """The row, which must be there."""
        job = self.memory_ledger.get(job_id)
        if job is None:
            raise AssertionError(f"no such job: {job_id}")
        return job


def payload_text(payload: Any) -> str:
    """A payload as JSON text; None is ``{}``."""
    return "{}" if payload is None else msgspec.json.encode(payload).decode()
