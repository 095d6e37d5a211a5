"""A walk through the model, taken by the real core: claim, settle, relay, sender and gateway, one outside call at a time.

Whoever acts in the model has a thread here, which stops before every call that the model counts as a step. The harness lets it
go on when its turn comes, and says what becomes of the call.
"""

from __future__ import annotations

import itertools
import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from queue import SimpleQueue
from typing import Any, Literal

from ringfence import App, Context, Dead, Put, Retry
from ringfence.acceptance import Accepted, Refusal, Submission
from ringfence.attempt import Taker, run_code
from ringfence.errors import Rejected, Stopping, Unavailable
from ringfence.gateway import Gateway
from ringfence.job import Job
from ringfence.memory.ledger import MemoryLedger
from ringfence.memory.log import MemoryLog
from ringfence.memory.quarantine import MemoryQuarantine
from ringfence.memory.telemetry import MemoryTelemetry
from ringfence.outcome import Acknowledge, Disposition, Release
from ringfence.ownership import Ownership
from ringfence.ports import Lease, Services
from ringfence.relay import Relay
from ringfence.sender import Sender
from ringfence.settle import settle
from ringfence.testing.port_faults import Crash
from ringfence.verdict import CLOCK_SKEW_MS
from ringfence.wire import Ticket, encode_ticket

from .explorer import Step
from .protocol import NAMES, Scope
from .rules import DUE, FUTURE, NONE, STATES
from .world import ACKS, AGAIN, ENDS_AGAIN, HALF, IDLE, LEASED, LETS_GO, RUNS, SEEN, Worker, World

QUEUE = "default"
START = 1_700_000_000_000
A_LONG_TIME_MS = 2 * 3_600_000
LEASE_SECONDS = 30.0
PATIENCE = 60.0
"""Seconds of real time until a thread that does not come to its next call is a fault of the test."""

Verb = Literal["do", "lose", "fail", "die", "do and die"]
"""What becomes of a call: done; done, and its reply lost; not done; the process dies before it, or after it."""


class SetClock:
    """The wall clock stands where it is put; only sleepers move the other."""

    def __init__(self) -> None:
        self.wall, self._monotonic = START, 0.0

    def now(self) -> int:
        return self.wall

    def monotonic(self) -> float:
        return self._monotonic

    def sleep(self, seconds: float) -> None:
        self._monotonic += seconds

    def wait_until(self, condition: threading.Condition, monotonic: float) -> None:
        raise AssertionError("nobody waits here")


class CountedIds:
    """Ids that tell in which order they were made."""

    def __init__(self) -> None:
        self._numbers = itertools.count(1)

    def job(self) -> str:
        return f"j{next(self._numbers)}"

    def mark(self) -> str:
        return f"m{next(self._numbers)}"


class Actor:
    """A thread of the core's that stops at every gate."""

    _here = threading.local()

    def __init__(self, work: Callable[[], Any]) -> None:
        self._orders: SimpleQueue[Any] = SimpleQueue()
        self._news: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        self._work = work
        self.at: str | None = None
        """The gate it stands at; None when it has ended."""
        self.call: Any = None
        """The arguments of the call it is about to make."""
        self.result: Any = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._wait()

    def go(self, order: Any = "do") -> None:
        """Let it make its call, and go on to its next gate or its end."""
        self._orders.put(order)
        self._wait()

    def stands_at(self, gate: str | None) -> None:
        """`AssertionError` if it stands elsewhere; None: if it has not ended."""
        assert self.at == gate, f"{self.at} instead of {gate}"

    def goes_from(self, gate: str, order: Any = "do") -> None:
        self.stands_at(gate)
        self.go(order)

    def _wait(self) -> None:
        news, what = self._news.get(timeout=PATIENCE)
        if news == "raised":
            raise what
        self.at, self.call, self.result = (what[0], what[1], None) if news == "gate" else (None, None, what)

    def _run(self) -> None:
        Actor._here.actor = self
        try:
            self._news.put(("ended", self._work()))
        except Crash:
            self._news.put(("ended", "died"))
        except BaseException as fault:  # noqa: BLE001 - raised again in the harness
            self._news.put(("raised", fault))

    @staticmethod
    def ask(gate: str, call: Any = None) -> Any:
        """Stand at a gate until told what to do; the harness itself passes."""
        actor: Actor | None = getattr(Actor._here, "actor", None)
        if actor is None:
            return "do"
        actor._news.put(("gate", (gate, call)))
        return actor._orders.get()


class Gated:
    """A port whose named methods are gates."""

    def __init__(self, port: Any, *gates: str) -> None:
        self._port, self._gates = port, gates

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._port, name)
        if name not in self._gates:
            return real

        def call(*args: Any, **kwargs: Any) -> Any:
            order: Verb = Actor.ask(name, args)
            if order == "die":
                raise Crash(name)
            if order == "fail":
                raise Unavailable(f"{name}: out of reach")
            reply = real(*args, **kwargs)
            if order == "do and die":
                raise Crash(name)
            if order == "lose":
                raise Unavailable(f"{name}: reply lost")
            return reply

        return call


@dataclass
class PushedTickets:
    """The queue's end for pushes; what lies in it is for the harness to hand out."""

    tickets: list[Ticket]
    name: str = QUEUE
    max_delay_seconds: float = 900.0
    max_lease_seconds: float = 43_200.0

    def push(self, tickets: Sequence[Ticket], delay_seconds: float | Sequence[float] = 0.0) -> list[Ticket]:
        self.tickets.extend(tickets)
        return []


@dataclass
class Pace:
    """A queue's pace that lets everybody through, or nobody."""

    clock: SetClock
    parks: bool = False

    def is_free(self, queue: str) -> bool:
        return not self.parks

    def admit(self, queue: str, count: int) -> list[int]:
        return []

    def join_line(self, queue: str, count: int) -> list[int]:
        return [self.clock.now()] * count

    def pushed(self, queue: str, count: int, last_wait: int) -> None:
        pass


@dataclass
class Taken:
    """What a worker has in hand."""

    lease: Lease
    ticket: Ticket
    clock: SetClock
    actor: Actor | None = None
    ownership: Ownership | None = None


STANDS_AT = {
    SEEN: "write",
    AGAIN: "write",
    RUNS: "effect",
    HALF: "outcome",
    ENDS_AGAIN: "write",
    LETS_GO: "write",
}
"""Before which call a worker stands, by what it is about to do."""


class RealCore:
    """The real core over the memory ledger, with one job."""

    def __init__(self, scope: Scope) -> None:
        self._scope, self._clock, self._ids = scope, SetClock(), CountedIds()
        self._pace = Pace(self._clock)
        self._memory = MemoryLedger(self._clock, {"Once": ("job",), "Counts": ("job",)})
        self._memory_log = MemoryLog()
        self._passed = 0
        self._queue = PushedTickets([])
        self._services = Services(
            ledger=Gated(self._memory, "register", "write", "write_many"),
            quarantine=MemoryQuarantine(),
            clock=self._clock,
            ids=self._ids,
            telemetry=MemoryTelemetry(),
            random_source=random.Random(1),
            retention_seconds=7 * 24 * 3600.0,
        )
        queues: Any = {QUEUE: Gated(self._queue, "push")}
        pace: Any = self._pace
        self._gateway = Gateway(self._services, Gated(self._memory_log, "append"), queues)
        self._relay = Relay(self._services, queues, pace)
        self._sender = Sender(self._services, queues, pace)
        self._job_id: str | None = None
        self._taken: dict[int, Taken] = {}
        self._client: Actor | None = None
        self._relaying: Actor | None = None
        self._timing: Actor | None = None
        self._operating: Actor | None = None
        if not scope.from_the_gateway:
            assert isinstance(self._submit(), Accepted)

    def close(self) -> None:
        """End every thread."""
        workers = [taken.actor for taken in self._taken.values()]
        for actor in [*workers, self._client, self._relaying, self._timing, self._operating]:
            _end(actor)

    # --- following a walk --------------------------------------------------------------------------------------------

    def follow(self, step: Step, before: World, ahead: Sequence[Step]) -> None:
        """Take this step of the model's; ``ahead`` are those that come after it. `AssertionError` where the core does not."""
        text, names = step.told[0], step.told[1:]
        if text.startswith("time passes"):
            self._clock.wall += A_LONG_TIME_MS
        elif "the gateway" in text:
            self._take_in(text)
        elif text.startswith("the relay"):
            self._relay_goes_on(text, names, ahead)
        elif text.startswith("the timers"):
            self._timers_go_on(text)
        elif "worker" in text:
            self._worker(NAMES.index(next(name for name in names if name in tuple(NAMES))), step, before)
        elif not text.startswith("the queue fails over"):
            self._operator(text, step.state)
        self._compare(step.state)

    def _compare(self, world: World) -> None:
        model = world.jobs[0]
        real = None if self._job_id is None else self._memory.get(self._job_id)
        assert (real is None) == (model.row is None)
        if real is None or model.row is None:
            return
        row = model.row
        run_at = NONE if real.run_at is None else FUTURE if real.run_at > self._clock.wall else DUE
        expected = (STATES[row.state], row.token, row.attempts, row.hand_overs, row.cancel, row.run_at, row.due > 0)
        assert (
            real.state,
            real.token,
            real.attempts,
            real.hand_overs,
            real.cancel_requested,
            run_at,
            real.due_id is not None,
        ) == expected
        assert real.version == model.version
        assert (real.attempt_id is not None) == (row.attempt > 0)
        assert len(self._queue.tickets) == model.pushed
        key = {"job": real.job_id}
        counts = self._memory.read_item("Counts", key) or {"runs": 0}
        assert counts["runs"] == model.committed
        assert (self._memory.read_item("Once", key) is not None) == (model.written > 0)

    # --- gateway, relay, timers, operators ---------------------------------------------------------------------------

    def _submit(self) -> Accepted | Refusal:
        submission = Submission(
            name="work",
            payload="{}",
            max_attempts=self._scope.max_attempts,
            delay_seconds={"now": None, "soon": 60.0, "far": 3_600.0}[self._scope.kinds[0]],
            idempotency_key="key" if self._scope.keyed else None,
        )
        (answer,) = self._gateway.submit("default", [submission])
        if isinstance(answer, Accepted):
            self._job_id = answer.job.job_id
        return answer

    def _take_in(self, text: str) -> None:
        if self._client is None:
            self._client = Actor(self._submit)
            self._client.stands_at("register")
            self._job_id = self._client.call[0].job_id
            if "out of reach" in text:
                self._client.go("fail")
                self._client.go()
            else:
                self._client.go()
        elif "dies before it appends" in text:
            self._client.go("die")
        elif "dies before it answers" in text:
            self._client.go("do and die")
        else:
            self._client.go()
        if "answers 202" in text:
            assert isinstance(self._client.result, Accepted)
        if "answers" in text or "dies" in text:
            self._client.stands_at(None)
            self._client = None
        else:
            self._client.stands_at("append")

    def _relay_goes_on(self, text: str, names: Sequence[Any], ahead: Sequence[Step]) -> None:
        if "reads" in text:
            records = self._memory_log.read()[self._passed :][: names[0]]
            self._pace.parks = _parks(ahead)
            self._relaying = Actor(lambda: self._relay.handle(records))
            return
        actor = self._relaying
        assert actor is not None
        if "dies" in text:
            _end(actor)
        elif "checkpoint" in text:
            actor.stands_at(None)
            assert (actor.result is None) == (names[0] == 1)
            self._passed += names[0]
        elif "cannot push" in text:
            actor.goes_from("push", "fail")
        elif "leaves" not in text:
            actor.goes_from("register" if "registers" in text else "push" if "pushes" in text else "write_many")
        if "dies" in text or "checkpoint" in text:
            self._relaying = None

    def _timers_go_on(self, text: str) -> None:
        if "find" in text:
            job = self._real_job()
            self._timing = Actor(lambda: self._sender.release(QUEUE, [job], [0]))
            return
        assert self._timing is not None
        if "die" in text:
            _end(self._timing)
            self._timing = None
            return
        pushes = "push" in text
        self._timing.goes_from("push" if pushes else "write")
        self._timing.stands_at("write" if pushes else None)
        if not pushes:
            self._timing = None

    def _operator(self, text: str, after: World) -> None:
        if "wants" in text:
            change = self._gateway.cancel if "cancelled" in text else self._gateway.redrive
            self._operating = Actor(lambda: _answered(lambda: change("default", self._real_job().job_id)))
        else:
            assert self._operating is not None
            self._operating.go()
        self._operating.stands_at(None if after.operator is None else "write")

    def _real_job(self) -> Job:
        assert self._job_id is not None
        job = self._memory.get(self._job_id)
        assert job is not None
        return job

    # --- workers -----------------------------------------------------------------------------------------------------

    def _worker(self, at: int, step: Step, before: World) -> None:
        text, was, now = step.told[0], before.workers[at], step.state.workers[at]
        if was.stage == IDLE:
            self._taken[at] = self._lease(now)
            return
        taken = self._taken[at]
        if "beats for" in text:
            assert taken.ownership is not None
            taken.ownership.renew()
        elif now.stage == IDLE and ("dies;" in text or "kills" in text):
            _end(taken.actor)
        elif was.stage != ACKS and "is frozen" not in text:
            self._set_clock(taken, was, before, lapsed="its clock" in text)
            self._goes_on(taken, was, now, step)
            self._compare_worker(taken, now)
        if now.stage == IDLE:
            del self._taken[at]

    def _lease(self, worker: Worker) -> Taken:
        ticket = self._queue.tickets[worker.ticket - 1]
        lease = Lease(encode_ticket(ticket), f"{worker.ticket}:{worker.deliveries}", worker.deliveries, "message", QUEUE)
        return Taken(lease, ticket, SetClock())

    def _set_clock(self, taken: Taken, was: Worker, before: World, *, lapsed: bool) -> None:
        """A claim's clock shows what the model says that it shows; an owner's shows the time."""
        job = self._real_job()
        taken.clock.wall = self._clock.wall
        if was.stage in (LEASED, SEEN, AGAIN) and job.lease_until is not None:
            taken.clock.wall = job.lease_until + (CLOCK_SKEW_MS + 1 if lapsed else 0)

    def _goes_on(self, taken: Taken, was: Worker, now: Worker, step: Step) -> None:
        if taken.actor is None:
            taken.actor = Actor(lambda: self._attempt(taken))
        actor = taken.actor
        if was.stage == HALF:
            actor.go("succeed" if now.stage == LETS_GO else step.told[2])
            if now.stage == LETS_GO:
                _lose_patience(actor)
                return
        if "loses its patience" in step.told[0]:
            _lose_patience(actor)
        else:
            actor.go("lose" if now.stage in (AGAIN, ENDS_AGAIN) else "do")

    def _attempt(self, taken: Taken) -> Disposition:
        """What a worker does with one message."""
        services = replace(self._services, clock=taken.clock)
        app = App()
        max_attempts = self._scope.max_attempts

        @app.job("work", max_attempts=max_attempts)
        def work(ctx: Context) -> dict[str, int]:
            _at_a_gate("effect")
            ctx.write(Put(table="Once", item={"job": ctx.job_id}, unless_exists=True))
            outcome = _at_a_gate("outcome")
            if outcome == "succeed":
                ctx.effects.update("Counts", {"job": ctx.job_id}, add={"runs": 1})
                return {}
            if outcome == "retry soon" or (outcome == "give up" and ctx.attempt >= max_attempts):
                raise Retry(after_seconds=60.0)
            if outcome == "retry later":
                raise Retry(after_seconds=1_000.0)
            if outcome == "give up":
                raise Dead("hopeless")
            raise Stopping()  # hand over, or cancel

        queue: Any = self._queue
        hold = Taker("w", app.jobs, LEASE_SECONDS, services).take(queue, taken.lease, taken.ticket)
        if not isinstance(hold, Ownership):
            assert isinstance(hold, Acknowledge | Release)
            return hold
        taken.ownership = hold
        outcome, effects = run_code(hold)
        return settle(hold, outcome, effects, services)

    def _compare_worker(self, taken: Taken, now: Worker) -> None:
        assert taken.actor is not None
        taken.actor.stands_at(STANDS_AT.get(now.stage))
        if now.stage in (IDLE, ACKS):
            assert isinstance(taken.actor.result, Acknowledge) == (now.stage == ACKS)


def _at_a_gate(name: str) -> Any:
    """The job's own code stops here, with no write of the worker's under way: heartbeats go on."""
    order = Actor.ask(name)
    if order == "die":
        raise Crash(name)
    return order


def _lose_patience(actor: Actor) -> None:
    """Fail the very same call until it is not made any more."""
    same = actor.call[0].write_id
    while actor.at == "write" and actor.call[0].write_id == same:
        actor.go("fail")


def _end(actor: Actor | None) -> None:
    if actor is not None and actor.at is not None:
        actor.go("die")


def _parks(ahead: Sequence[Step]) -> bool:
    """Whether the relay is going to park what it has just read."""
    for step in ahead:
        if step.told[0].startswith("the relay") and "registers" not in step.told[0]:
            return "parks" in step.told[0] or "not park" in step.told[0]
    return False


def _answered(ask: Callable[[], Job]) -> Job | Rejected:
    try:
        return ask()
    except Rejected as refusal:
        return refusal
