"""A job lived from its submission to its end, in memory, with at most one fault on the way."""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from ringfence.app import App, JobSpec
from ringfence.effects import Item
from ringfence.errors import Unavailable
from ringfence.job import Guarantee, Job
from ringfence.testing.moments import Moment, Moments
from ringfence.testing.observed import Held, Row, rows_of
from ringfence.testing.port_faults import Crash
from ringfence.testing.receiver import Receiver
from ringfence.testing.system import MemorySystem, payload_text
from ringfence.worker import Worker

LEASE_SECONDS = 10.0
"""On the clock of the simulated system, which nobody waits for."""

TENANT = "default"
QUEUE = "default"
KEY = "the one request"

FROZEN, OTHER = "the worker under watch", "another worker"
ROUNDS_WHILE_FROZEN = 40
"""So many passes another worker has for a job that may be waiting for the frozen one."""

Fault = Literal["crash", "freeze", "lost-reply", "duplicate", "redelivery", "replay"]

AFTER_THE_END: tuple[Fault, ...] = ("redelivery", "replay")


@dataclass(frozen=True, slots=True)
class Struck:
    """What happens in one life, and when: a moment's number, None for after the end."""

    fault: Fault
    at: int | None = None

    def __str__(self) -> str:
        return self.fault if self.at is None else f"{self.fault}-{self.at}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """What is lived again and again."""

    app: App
    name: str
    payload: Any
    tables: Mapping[str, Sequence[str]]
    items: Mapping[str, Sequence[Item]]
    receivers: Sequence[Receiver]
    arrange: Callable[[MemorySystem], object] | None
    observe: Callable[[MemorySystem], Any] | None
    guarantee: Guarantee
    lines: bool


@dataclass(frozen=True, slots=True)
class Lived:
    """How a life ended."""

    before: Held
    """What was there before the job."""
    held: Held
    job: Job | None
    """Its row at the end; None for a job without one."""
    finished: bool
    """Whether everything came to its end: the job, and every ticket of it."""
    moments: Sequence[Moment] = field(repr=False)
    struck: bool = True


class Life:
    """One life. ``struck`` None: nothing happens to it."""

    def __init__(self, scenario: Scenario, struck: Struck | None = None) -> None:
        self._scenario, self._struck = scenario, struck
        self._moments = Moments(None if struck is None else struck.at, self._strike)
        self._app = _AppOf({name: self._watched(spec) for name, spec in scenario.app.jobs.items()})
        self._system = _System(self._app, self._moments, scenario)
        self._job_id, self._ticket = "", ""

    def lived(self) -> Lived:
        """Live it to its end."""
        before = self._begin()
        finished = self._settled()
        if self._struck is not None and self._struck.fault in AFTER_THE_END:
            self._deliver_again(self._struck.fault)
            finished = finished and self._settled()
        struck = self._struck is None or self._struck.at is None or self._moments.struck
        return Lived(before, self._held(), self._row(), finished, self._moments.passed, struck)

    def redriven(self) -> Lived:
        """The same job after workers that do not know its code have used up its attempts, and somebody has redriven it.

        The code runs once, as in an undisturbed life, but later and with another token: what differs then is no sign of
        a second effect. (A job without a row is only lived once more.)
        """
        before = self._begin()
        if self._scenario.guarantee is Guarantee.ONCE:
            self._system.app = App()
            self._system.drain()
            self._system.app = self._app
            self._system.gateway.redrive(TENANT, self._job_id)
        finished = self._drained(OTHER)
        return Lived(before, self._held(), self._row(), finished, ())

    def _row(self) -> Job | None:
        return self._system.memory_ledger.get(self._job_id)

    def _begin(self) -> Held:
        scenario, system = self._scenario, self._system
        for receiver in scenario.receivers:
            receiver.forget(self._moments.call)
        for table, items in scenario.items.items():
            system.put(table, *items)
        if scenario.arrange is not None:
            scenario.arrange(system)
        before = self._held()
        self._submit()
        system.run_relay()
        self._ticket = system.memory_queues[QUEUE].bodies()[-1]
        return before

    def _submit(self) -> None:
        scenario = self._scenario
        key = KEY if scenario.guarantee is Guarantee.ONCE else None
        payload = payload_text(scenario.payload)
        submitted = self._system.submit(scenario.name, payload, guarantee=scenario.guarantee, idempotency_key=key)
        self._job_id = submitted.job_id

    def _settled(self) -> bool:
        """The worker under watch goes on as long as it lives, then another one does."""
        try:
            self._drained(FROZEN)
        except Crash:
            self._moments.dead = False
            self._system.build()
        except Unavailable:  # of the queue: the process that met it tries again
            pass
        return self._drained(OTHER)

    def _drained(self, worker: str, **more: Any) -> bool:
        try:
            self._system.drain(self._system.worker(worker), **more)
        except TimeoutError:
            return False
        return True

    def _held(self) -> Held:
        """What the tables hold, what landed at the receivers, and what the user observes."""
        scenario = self._scenario
        held: Held = {f"table {table}": list[Row](self._system.items(table)) for table in scenario.tables}
        for receiver in scenario.receivers:
            calls = [({"arguments": call.args} if call.args else {}) | dict(call.kwargs) for call in receiver.landed]
            held[f"receiver {receiver.name}"] = list[Row](calls)
        if scenario.observe is not None:
            held["observed"] = rows_of(scenario.observe(self._system))
        return held

    # --- faults ------------------------------------------------------------------------------------------------------

    def _strike(self, moment: Moment) -> None:
        match self._struck:
            case Struck("crash"):
                self._moments.dead = True
                raise Crash(f"at {moment.told}")
            case Struck("lost-reply"):
                raise self._lost_reply(moment)
            case Struck("freeze"):
                with self._moments.watching(False):
                    self._drained(OTHER, most_rounds=ROUNDS_WHILE_FROZEN)  # time passes, and the lease with it
            case Struck("duplicate"):
                with self._moments.watching(False):
                    self._system.memory_queues[QUEUE].put(self._ticket)
                    with suppress(Unavailable):
                        self._system.run_worker(self._system.worker(OTHER))

    def _lost_reply(self, moment: Moment) -> Exception:
        lost = "the reply was lost"
        if moment.kind != "receiver":
            return Unavailable(lost, retry_after_seconds=0.01)
        name = moment.told.removeprefix("the call of ")
        return next(receiver.unreachable(lost) for receiver in self._scenario.receivers if receiver.name == name)

    def _deliver_again(self, fault: Fault) -> None:
        if fault == "redelivery":
            self._system.memory_queues[QUEUE].put(self._ticket)
        else:
            if self._scenario.guarantee is Guarantee.ONCE:  # without a key, a repeated request is another job
                self._submit()
            self._system.relay.handle(self._system.memory_log.read())

    # --- the job's code ----------------------------------------------------------------------------------------------

    def _watched(self, spec: JobSpec) -> JobSpec:
        def run(*args: Any, **kwargs: Any) -> Any:
            with self._moments.lines() if self._scenario.lines else nullcontext():
                result = spec.function(*args, **kwargs)
                # Two workers are two processes: if they shared a loop, the frozen one would stop the other.
                result = asyncio.run(result) if inspect.iscoroutine(result) else result
            self._moments.returned()
            return result

        return dataclasses.replace(spec, function=run)


class _AppOf(App):
    """An app of jobs that are registered elsewhere."""

    def __init__(self, jobs: Mapping[str, JobSpec]) -> None:
        super().__init__()
        self._jobs = dict(jobs)


class _System(MemorySystem):
    """Watches what one of its workers does."""

    def __init__(self, app: App, moments: Moments, scenario: Scenario) -> None:
        super().__init__(app, tables=scenario.tables, queues=[QUEUE], wrap=moments.wrap, lease_seconds=LEASE_SECONDS)
        self._moments = moments

    def run_worker(self, worker: Worker | None = None, *, queue: str = QUEUE, most: int = 10) -> int:
        with self._moments.watching(worker is not None and worker.name == FROZEN):
            return super().run_worker(worker, queue=queue, most=most)


def in_time(live: Callable[[], Lived], seconds: float, life: str) -> Lived:
    """What ``live`` returns. `TimeoutError` after so many seconds of real time: its thread is then left behind."""
    ended: list[Lived | BaseException] = []

    def run() -> None:
        try:
            ended.append(live())
        except BaseException as raised:  # noqa: BLE001 - raised again in the caller's thread
            ended.append(raised)

    thread = threading.Thread(target=run, name=f"ringfence life {life}", daemon=True)
    thread.start()
    thread.join(seconds)
    match ended:
        case []:
            raise TimeoutError(
                f"life {life} was not over after {seconds:g} s; does the job hold a lock while it is frozen, or wait for "
                "something that only comes with real time?"
            )
        case [BaseException() as raised, *_]:
            raise raised
        case [Lived() as lived, *_]:
            return lived
    raise AssertionError(ended)
