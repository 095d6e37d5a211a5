"""A port as one process reaches it: over a wire that may lose, delay or repeat each call, or be the last its caller did."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from ringfence.errors import RingfenceError, Unavailable
from ringfence.job import Job
from ringfence.testing.port_faults import Crash

from .history import Entry, Landed
from .scheduler import Process

if TYPE_CHECKING:
    from .world import World

KINDS = ("crash before", "crash after", "lost request", "lost reply", "late", "twice", "freeze", "slow", "partial")
"""What may happen to a call. ``late``: it takes effect long after its caller has given up. ``twice``: it is
delivered again. ``partial``: half of a batch is taken, and of one none; or half of what there is to read comes."""

TAKEN_IN_HALF = frozenset({"append", "push", "write_many", "acknowledge", "extend", "release", "lease", "due", "line"})
"""The calls of which there is a half. Of the other reads a part would be no answer: the adapter asks again, or has none."""

REQUEST_SECONDS, REPLY_SECONDS = (0.001, 0.05), (0.001, 0.02)
"""The shortest and the longest that each is under way."""

LATE_SECONDS = 60.0
SLOW_SECONDS = 25.0
FREEZE_SECONDS = 40.0
AGAIN_SECONDS = 30.0
"""The longest of each; leases are of 10 s."""

NEVER_OVER = float("inf")
"""A claim that lands when nobody waits for it any more makes its worker look busy with a job that it does not know of."""


@dataclass(slots=True)
class Call:
    """One call, on its way."""

    method: str
    what: str
    real: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    sent_at: float
    strike: tuple[int, str] = (0, "")
    """Its number, and what happens to it."""

    @property
    def has_half(self) -> bool:
        """Whether it can be taken in half."""
        if self.method == "lease":
            return self.args[0] > 1
        return self.method in TAKEN_IN_HALF


class Wire:
    """A port as one process reaches it."""

    def __init__(self, world: World, process: Process, name: str, port: Any) -> None:
        self._world, self._process, self._name, self._port = world, process, name, port

    def __getattr__(self, attribute: str) -> Any:
        real = getattr(self._port, attribute)
        if not callable(real):
            return real
        what = f"{self._name}.{attribute}"

        def call(*args: Any, **kwargs: Any) -> Any:
            return self._call(attribute, what, real, args, kwargs)

        setattr(self, attribute, call)  # found without this the next time
        return call

    def _call(self, method: str, what: str, real: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        world, scheduler = self._world, self._world.scheduler
        self._ensure_alive()
        call = Call(method, what, real, args, kwargs, scheduler.now)
        kind = world.strike(call, self._process)
        scheduler.sleep(world.between(*REQUEST_SECONDS))
        if kind is None:
            reply = self._effect_of(call)
            scheduler.sleep(world.between(*REPLY_SECONDS))
            return reply
        match kind:
            case "crash before":
                world.die(self._process)
            case "freeze":
                self._freeze()
            case "slow":
                scheduler.sleep(world.between(1, SLOW_SECONDS))
            case "late":
                scheduler.spawn(world.stores, lambda: self._quietly(call), world.between(1, LATE_SECONDS))
        self._ensure_alive()
        if kind in ("lost request", "late"):
            return self._no_answer(method, args)
        if kind == "partial":
            reply = self._half_of(call)
        else:
            reply = self._effect_of(call, heard=kind not in ("lost reply", "crash after"))
        if kind == "twice":
            scheduler.spawn(world.stores, lambda: self._quietly(call), world.between(0, AGAIN_SECONDS))
        scheduler.sleep(world.between(*REPLY_SECONDS))
        if kind == "crash after":
            world.die(self._process)
        self._ensure_alive()
        return self._no_answer(method, args) if kind == "lost reply" else reply

    def _effect_of(self, call: Call, *, heard: bool = True) -> Any:
        if call.method == "lease":
            return self._lease(call, heard)
        return self._take_effect(call, heard)

    def _ensure_alive(self) -> None:
        if not self._process.alive:
            raise Crash

    def _freeze(self) -> None:
        world = self._world
        self._process.frozen_until = world.scheduler.now + world.between(5, FREEZE_SECONDS)
        self._process.struck["freeze"] = world.scheduler.now  # its call may have been made in an earlier invocation
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

    def _half_of(self, call: Call) -> Any:
        """As the port's contract says that half was taken, or that there may be more."""
        method, args = call.method, call.args
        if method in ("due", "line"):
            marks = self._take_effect(call)
            if len(marks) > 1:
                self._world.struck(call, self._process)
            return marks[: -(-len(marks) // 2)]
        if method == "lease":
            leases = self._lease(replace(call, args=(args[0] // 2, *args[1:])))
            if len(leases) == args[0] // 2:
                self._world.struck(call, self._process)
            return leases
        self._world.struck(call, self._process)
        batch = args[0]
        half = len(batch) // 2
        more = args[1:] if method != "push" else [each[:half] if isinstance(each, list) else each for each in args[1:]]
        reply = self._take_effect(replace(call, args=(batch[:half], *more))) if half else None
        match method:
            case "append" | "write_many":
                return [*(reply or ()), *[None] * (len(batch) - half)]
            case "push":
                return list(batch[half:])
        raise Unavailable(f"{len(batch) - half} of {len(batch)} were not taken", retry_after_seconds=0.1)

    def _lease(self, call: Call, heard: bool = True) -> Any:
        """A lease that waits looks twice: at the beginning of its wait and at its end."""
        *others, wait_seconds = call.args
        look = replace(call, args=(*others, 0.0))
        leases = self._take_effect(look, heard)
        if leases or not wait_seconds:
            return leases
        self._world.pollers[self._port.name].wait(min(wait_seconds, self._process.wait_at_most_seconds))
        self._ensure_alive()
        return self._take_effect(look, heard)

    def _quietly(self, call: Call) -> None:
        """Take effect with nobody there to hear of it."""
        if call.method == "lease":
            call = replace(call, args=(*call.args[:2], 0.0))
        elif call.method == "write":
            self._process.struck["late"] = NEVER_OVER
        with suppress(RingfenceError):
            self._take_effect(call, heard=False)

    def _take_effect(self, call: Call, heard: bool = True) -> Any:
        world, method = self._world, call.method
        reply: Any = None
        raised: BaseException | None = None
        world.landing.clear()
        try:
            reply = call.real(*call.args, **call.kwargs)
        except BaseException as fault:
            raised = fault
            raise
        finally:
            if method in ("push", "release"):
                world.pollers[self._port.name].ring()
            elif method == "append":
                world.records_came()
            history = world.history
            entry = Entry(
                world.scheduler.now, self._process.name, call.what, call.args, call.kwargs, reply, raised, call.sent_at, heard
            )
            history.entries.append(entry)
            for before, after in world.landing:
                history.landed.append(Landed(len(history.entries) - 1, entry, before, after))
                if after.due_id is not None:
                    world.marked()
        return reply


class Rows(dict[str, Job]):
    """The ledger's rows, which tell of every write in the order in which they happen."""

    def __init__(self, landing: list[tuple[Job | None, Job]]) -> None:
        super().__init__()
        self._landing = landing

    def __setitem__(self, job_id: str, after: Job) -> None:
        self._landing.append((self.get(job_id), after))
        super().__setitem__(job_id, after)
