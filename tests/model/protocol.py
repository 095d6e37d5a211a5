"""The protocol: who may do what next, one call to the outside at a time.

What a row lets through, and what a claim finds in its way, the product itself decides (`rules`). What is written here is the
order of the calls; `test_conformance` replays it on the real core. Anybody may stop between two steps for as long as it takes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from ringfence.verdict import CancelNow, Early, Finished, Free, Held, UsedUp

from .explorer import Step
from .rules import DEAD, DUE, FRESH, FUTURE, NONE, QUEUED, RUNNING, SUCCEEDED, TERMINAL, Given, Make, Owner, Row, Rules
from .world import (
    ACKS,
    AGAIN,
    ANSWERED,
    ASKS,
    ENDS_AGAIN,
    HALF,
    IDLE,
    LATER,
    LEASED,
    LETS_GO,
    NOBODY,
    REGISTERED,
    RUNS,
    SEEN,
    Job,
    Keys,
    Pending,
    Ticket,
    Timers,
    Worker,
    World,
)

LOST = "no accepted job is lost"
ACKNOWLEDGED = "no ticket is acknowledged before its job has ended, bears a due mark or is set aside"
DOUBLED = "no effect happens twice"
MISSING = "a job that succeeded has had its effects"
LATE = "no write of an owner lands after a later claim"
TOKENS = "every claim has a higher token than all before it"
ABSORBED = "an ended job stays as it is, but for a redrive"
EARLY = "no job starts before its time"
CANCELLED = "no attempt starts after a cancel was answered"
PROMISES = (LOST, ACKNOWLEDGED, DOUBLED, MISSING, LATE, TOKENS, ABSORBED, EARLY, CANCELLED)

NAMES = "ABCDEF"


@dataclass(frozen=True, kw_only=True)
class Scope:
    """How much is explored, exhaustively."""

    kinds: tuple[str, ...] = ("now",)
    """One job each, to run ``now``, ``soon`` or ``far`` ahead."""
    workers: int = 3
    faults: int = 2
    """How many faults may happen in one run: crashes, leases that end under a living owner, lost replies, failed pushes, …"""
    only: tuple[str, ...] = ()
    """Words of the only faults that may happen; none: all may."""
    max_attempts: int = 2
    tickets: int = 2
    """How many tickets of a job may lie in the queue at a time."""
    outcomes: frozenset[str] = frozenset({"succeed", "fail"})
    """``succeed``, ``fail``, ``hand over``, ``give up``, and ``kill``: the code takes its process with it."""
    others: frozenset[str] | None = None
    """The same for all jobs but the first, if it is not the same."""
    delays: tuple[str, ...] = ("soon", "later")
    """Where a retry waits: in the queue, on the row."""
    from_the_gateway: bool = False
    """Whether it begins with the client's request; otherwise with a registered job in the log."""
    keyed: bool = True
    failovers: bool = False
    """Whether the queue may go back to an older state, its delivery counts with it."""
    forgets: bool = False
    """Whether the queue may lose all its tickets, as a Redis that loses its memory: they are then renewed."""
    last_resort: bool = False
    """Whether the queue may give a ticket up, as SQS does after many deliveries."""
    parks: bool = False
    cancels: int = 0
    redrives: int = 0


@dataclass(frozen=True, kw_only=True)
class Design:
    """The product's rules and order of steps, or with something wrong in it: changes made otherwise, steps in another order."""

    changes: Mapping[str, Make] = field(default_factory=dict)
    wrong: frozenset[str] = frozenset()


class Protocol:
    """`explorer.Model` of the whole queue."""

    def __init__(self, scope: Scope, design: Design | None = None) -> None:
        self.scope, self.design = scope, design or Design()
        self.rules = Rules(scope.max_attempts, self.design.changes)
        self._wrong = self.design.wrong
        alike = len(set(scope.kinds)) == 1 and scope.others in (None, scope.outcomes)
        self._keys = Keys(self.rules, alike=alike)
        self.highest_token = 0

    # --- explorer.Model ----------------------------------------------------------------------------------------------

    def first(self) -> World:
        scope = self.scope
        jobs = [
            Job(None) if scope.from_the_gateway else Job(self._new_row(kind), 1, marks=1, gate=ANSWERED, accepted=True)
            for kind in scope.kinds
        ]
        log = () if scope.from_the_gateway else tuple([(number, True) for number in range(len(jobs))])
        return World(
            tuple(jobs),
            log,
            workers=(Worker(),) * scope.workers,
            faults=scope.faults,
            cancels=scope.cancels,
            redrives=scope.redrives,
        )

    def key(self, state: World) -> Hashable:
        return self._keys.of(state)

    def broken(self, state: World) -> str | None:
        for number, job in enumerate(state.jobs):
            if any(worker.stage != IDLE and worker.job == number for worker in state.workers):
                continue
            row = job.row
            if row is not None and row.state == SUCCEEDED and not (job.committed and job.written):
                return MISSING
            if job.accepted and not self._is_carried(state, number, job):
                return LOST
        return None

    def _is_carried(self, world: World, number: int, job: Job) -> bool:
        """Whether it has ended, or something will bring it to a worker."""
        row = job.row
        if (
            job.tickets
            or job.given_up
            or (job.forgotten and "memory not repaired" not in self._wrong)
            or (row is not None and (row.due or row.state in TERMINAL))
        ):
            return True
        return any(record[0] == number for record in world.log) or (world.timers is not None and world.timers[0] == number)

    def is_over(self, state: World) -> bool:
        """Every job was accepted and has ended, every ticket is acknowledged, every record is passed."""
        return not state.log and all(
            job.accepted and job.row is not None and job.row.state in TERMINAL and not job.tickets and not job.given_up
            for job in state.jobs
        )

    def steps(self, state: World) -> Iterator[Step]:
        return self._only(self._all_steps(state)) if self.scope.only else self._all_steps(state)

    def _only(self, steps: Iterator[Step]) -> Iterator[Step]:
        return (step for step in steps if not step.is_fault or any(words in step.told[0] for words in self.scope.only))

    def _all_steps(self, state: World) -> Iterator[Step]:
        for number, job in enumerate(state.jobs):
            if job.gate != ANSWERED:
                yield from self._gateway(state, number, job)
            if job.row is not None and (job.row.run_at == FUTURE or job.not_yet):
                yield self._time_passes(state, number, job)
        yield from self._relay(state)
        yield from self._timers(state)
        yield from self._operator(state)
        took = False
        for at, worker in enumerate(state.workers):
            if worker.stage != IDLE:
                yield from self._worker(state, at, worker)
            elif not took:  # idle workers are alike
                took = True
                yield from self._take(state, at)
        if self.scope.failovers and state.faults:
            yield from self._failover(state)
        if self.scope.forgets:
            yield from self._forget_and_repair(state)
        if self.scope.last_resort and state.faults:
            yield from self._give_up_tickets(state)

    # --- pieces of a step --------------------------------------------------------------------------------------------

    def _new_row(self, kind: str) -> Row:
        row = self.rules.accepted(kind)
        return row._replace(due=1) if row.due else row

    def _write(
        self, job: Job, name: str, seen: Row, version: int, given: Given, owner: Owner | None = None
    ) -> tuple[Job, str | None] | None:
        """The job after a change, and the promise it broke; None if the row refused it."""
        assert job.row is not None
        before = job.row
        if owner is not None:
            after = self.rules.owner_landed(name, owner, given, before)
        else:
            after = self.rules.landed(name, seen, version == job.version, given, before)
        if after is None:
            return None
        claims, marks = job.claims, job.marks
        claimed = after.attempt == FRESH
        if after.due == FRESH:
            marks += 1
            after = after._replace(due=marks)
        if claimed:
            claims += 1
            after = after._replace(attempt=claims)
            self.highest_token = max(self.highest_token, after.token)
        changed = job._replace(row=after, version=job.version + 1, claims=claims, marks=marks)
        if name == "succeed" and not self._wrong & {"effect before", "effect after"}:
            changed = changed._replace(committed=job.committed + 1)
        if name == "redrive":
            changed = changed._replace(cancelled=False)
        if given.later and name in ("retry soon", "retry later"):
            changed = changed._replace(not_yet=True)
        return changed, self._broken_by(name, job, changed, claimed, owner)

    def _broken_by(self, name: str, before: Job, after: Job, claimed: bool, owner: Owner | None) -> str | None:
        old, new = before.row, after.row
        assert old is not None
        assert new is not None
        if after.committed > 1 or after.written > 1:
            return DOUBLED
        if owner is not None and owner.attempt != before.claims:
            return LATE
        if old.state in TERMINAL and name not in ("redrive", "clear mark"):
            return ABSORBED
        if new.token < old.token or (claimed and new.token <= old.token):
            return TOKENS
        if claimed and (old.run_at == FUTURE or before.not_yet):
            return EARLY
        if claimed and before.cancelled:
            return CANCELLED
        return None

    def _push(self, job: Job) -> Job | None:
        """The job with one more ticket; None if there is no room for it in this scope."""
        if len(job.tickets) >= self.scope.tickets:
            return None
        return job._replace(tickets=(*job.tickets, Ticket(job.pushed + 1)), pushed=job.pushed + 1)

    def _time_passes(self, world: World, number: int, job: Job) -> Step:
        assert job.row is not None
        row = job.row._replace(run_at=DUE) if job.row.run_at == FUTURE else job.row
        return Step(("time passes: job {} is due", number + 1), _with(world, number, job._replace(row=row, not_yet=False)))

    # --- gateway -----------------------------------------------------------------------------------------------------

    def _gateway(self, world: World, number: int, job: Job) -> Iterator[Step]:
        scope, name = self.scope, number + 1
        if job.gate == ASKS:
            if job.row is None:
                row = self._new_row(scope.kinds[number])
                registered = job._replace(row=row, version=1, marks=1, gate=REGISTERED)
                yield Step(("the gateway registers job {}", name), _with(world, number, registered))
                if world.faults and not scope.keyed:
                    yield Step(
                        ("the ledger is out of reach: the gateway appends job {} unregistered and answers 202", name),
                        _with(world, number, job._replace(gate=ANSWERED, accepted=True))._replace(
                            log=(*world.log, (number, False)), faults=world.faults - 1
                        ),
                        True,
                    )
            elif job.row.state == QUEUED and job.row.token == 0 and "repeat not appended" not in self._wrong:
                yield Step(
                    ("the client repeats its request; the gateway finds job {} queued and unclaimed", name),
                    _with(world, number, job._replace(gate=REGISTERED)),
                )
            else:
                yield Step(
                    ("the client repeats its request; the gateway finds job {} on its way and answers 202", name),
                    _with(world, number, job._replace(gate=ANSWERED, accepted=True)),
                )
            return
        answered = job._replace(gate=ANSWERED, accepted=True)
        appended = world._replace(log=(*world.log, (number, True)))
        yield Step(("the gateway appends job {} to the log and answers 202", name), _with(appended, number, answered))
        if world.faults and scope.keyed:
            asks = job._replace(gate=ASKS)
            yield Step(("the gateway dies before it appends job {}", name), _with(_struck(world), number, asks), True)
            yield Step(
                ("the gateway appends job {} to the log and dies before it answers", name),
                _with(_struck(appended), number, asks),
                True,
            )

    # --- relay -------------------------------------------------------------------------------------------------------

    def _relay(self, world: World) -> Iterator[Step]:
        if world.relay is None:
            if world.log:
                count = len(world.log)
                yield Step(("the relay reads {} record(s)", count), world._replace(relay=(count, 0, count, world.log[0][1])))
            return
        yield from self._relay_goes_on(world, *world.relay)
        if world.faults:
            yield Step(("the relay dies",), _struck(world)._replace(relay=None), True)

    def _relay_goes_on(self, world: World, count: int, at: int, unsent: int, registered: bool) -> Iterator[Step]:
        if at == count:
            passed = count if "checkpoint passes failed push" in self._wrong else unsent
            yield Step(
                ("the relay's checkpoint passes {} record(s)", passed), world._replace(log=world.log[passed:], relay=None)
            )
            return
        number = world.log[at][0]
        job, name = world.jobs[number], number + 1

        def on(world: World, sent: bool = True) -> World:
            ahead = at + 1
            row_is_there = ahead < count and world.log[ahead][1]
            return world._replace(relay=(count, ahead, unsent if sent else min(unsent, at), row_is_there))

        if not registered and "unregistered pushed" not in self._wrong:
            if job.row is None:
                row = self._new_row(self.scope.kinds[number])
                there = _with(world, number, job._replace(row=row, version=1, marks=1))
            elif "registered over" in self._wrong:
                there = _with(world, number, job._replace(row=self._new_row(self.scope.kinds[number]), version=job.version + 1))
            else:
                there = world
            yield Step(("the relay registers job {}", name), there._replace(relay=(count, at, unsent, True)))
            return
        if self.scope.kinds[number] == "far":
            yield Step(("the relay leaves job {} to the timers", name), on(world))
            return
        pushed = self._push(job)
        if pushed is not None:
            told = ("the relay pushes ticket {} of job {}", pushed.pushed, name)
            yield Step(told, on(_with(world, number, pushed)))
        if world.faults:
            yield Step(("the relay cannot push a ticket of job {}", name), on(_struck(world), sent=False), True)
        if self.scope.parks and job.row is not None:
            given = Given(later=job.row.run_at == FUTURE)
            written = self._write(job, "park", job.row, job.version, given)
            if written is None:
                yield Step(("the relay finds job {} on its way already, and does not park it", name), on(world))
            else:
                yield Step(("the relay parks job {}", name), on(_with(world, number, written[0])), broken=written[1])

    # --- timers ------------------------------------------------------------------------------------------------------

    def _timers(self, world: World) -> Iterator[Step]:
        if world.timers is None:
            for number, job in enumerate(world.jobs):
                if job.row is not None and job.row.due:
                    yield Step(
                        ("the timers find the mark of job {}", number + 1),
                        world._replace(timers=Timers(number, job.row.state, job.row.due, job.row.run_at)),
                    )
                if job.row is not None and job.given_up:
                    has_ended = job.row.state in TERMINAL
                    told = ("the timers find a ticket of job {}, which is {}, in the last resort", number + 1, _state(job.row))
                    yield Step(told, world._replace(timers=Timers(number, job.row.state, 0, NONE, has_ended)))
            return
        yield from self._timers_go_on(world, world.timers)
        if world.faults:
            yield Step(("the timers die",), _struck(world)._replace(timers=None), True)

    def _timers_go_on(self, world: World, timers: Timers) -> Iterator[Step]:
        """First the push, then the mark, or the ticket in the last resort. A wrong design has it the other way round."""
        number, state, due, run_at, is_second = timers
        job, name = world.jobs[number], number + 1
        turned = ("mark cleared first" if due else "last resort emptied first") in self._wrong
        then = world._replace(timers=None if is_second else timers._replace(first_done=True))
        if is_second == turned:
            pushed = self._push(job)
            if pushed is not None:
                yield Step(("the timers push ticket {} of job {}", pushed.pushed, name), _with(then, number, pushed))
        elif due:
            left = ("the timers leave the mark of job {}: its row has changed", name)
            cleared = ("the timers clear the mark of job {}", name)
            yield self._timers_write(then, number, "clear mark", Row(state, due=due), cleared, left)
        else:
            told = ("the timers take the ticket of job {} out of the last resort", name)
            yield Step(told, _with(then, number, job._replace(given_up=False)))
        if due and run_at != FUTURE and not is_second and self.scope.parks:
            left = ("the timers find that the row of job {} has changed, and let it join no line", name)
            joined = ("the timers let job {} join the line of its queue", name)
            yield self._timers_write(
                world._replace(timers=None), number, "join line", Row(state, run_at=run_at, due=due), joined, left
            )

    def _timers_write(
        self, world: World, number: int, name: str, seen: Row, done: tuple[Any, ...], left: tuple[Any, ...]
    ) -> Step:
        written = self._write(world.jobs[number], name, seen, 0, Given())
        if written is None:
            return Step(left, world)
        return Step(done, _with(world, number, written[0]), broken=written[1])

    # --- operators ---------------------------------------------------------------------------------------------------

    def _operator(self, world: World) -> Iterator[Step]:
        if world.operator is None:
            for number, job in enumerate(world.jobs):
                row = job.row
                if row is None:
                    continue
                if world.cancels and row.state not in TERMINAL and not row.cancel:
                    found = world._replace(operator=("cancel", number, row, job.version), cancels=world.cancels - 1)
                    yield Step(("an operator wants job {} cancelled, which is {}", number + 1, _state(row)), found)
                if world.redrives and row.state == DEAD:
                    found = world._replace(operator=("redrive", number, row, job.version), redrives=world.redrives - 1)
                    yield Step(("an operator wants job {} redriven", number + 1), found)
            return
        what, number, seen, version = world.operator
        job = world.jobs[number]
        assert job.row is not None
        if what == "mark again":
            yield self._mark_again(world, number, seen, version)
            return
        name = "ask to stop" if what == "cancel" and seen.state == RUNNING else what
        if name == "ask to stop" and "cancel not written" in self._wrong:
            told_so = _with(world, number, job._replace(cancelled=True))._replace(operator=None)
            yield Step(("the cancel of job {} is answered", number + 1), told_so)
            return
        written = self._write(job, name, seen, version, Given())
        if written is None:
            unfinished = job.row.state not in TERMINAL if what == "cancel" else job.row.state == DEAD
            again = (what, number, job.row, job.version) if unfinished else None
            yield Step(("the {} of job {} is refused: the row has changed", what, number + 1), world._replace(operator=again))
            return
        after, broken = written
        if what == "cancel":
            after = after._replace(cancelled=True)
        told = {"cancel": "job {} is cancelled", "ask to stop": "the owner of job {} is asked to stop"}
        done = _with(world, number, after)._replace(operator=None)
        yield Step((told.get(name, "job {} is redriven"), number + 1), done, broken=broken)

    def _mark_again(self, world: World, number: int, seen: Row, version: int) -> Step:
        """The repair lets timers push the ticket, if the queue has no room."""
        done = world._replace(operator=None)
        job = world.jobs[number]._replace(forgotten=False)
        written = self._write(job, "mark again", seen, version, Given(later=seen.run_at == FUTURE))
        if written is None:
            return Step(("the repair leaves job {} as it is: its row has changed", number + 1), done)
        return Step(("the repair marks job {} as due", number + 1), _with(done, number, written[0]), broken=written[1])

    # --- workers: taking a ticket ------------------------------------------------------------------------------------

    def _take(self, world: World, at: int) -> Iterator[Step]:
        for number, job in enumerate(world.jobs):
            for place, ticket in enumerate(job.tickets):
                if ticket.holder == NOBODY:
                    leased = ticket._replace(deliveries=ticket.deliveries + 1, holder=at)
                    tickets = (*job.tickets[:place], leased, *job.tickets[place + 1 :])
                    worker = Worker(LEASED, number, ticket.number, leased.deliveries)
                    told = ("worker {} takes ticket {} of job {}, delivery {}", NAMES[at], ticket.number, number + 1)
                    yield Step(
                        (*told, leased.deliveries), _works(_with(world, number, job._replace(tickets=tickets)), at, worker)
                    )

    def _worker(self, world: World, at: int, worker: Worker) -> Iterator[Step]:
        stage = worker.stage
        if stage == LEASED:
            yield from self._claim(world, at, worker)
        elif stage == SEEN:
            yield from self._write_verdict(world, at, worker)
        elif stage == AGAIN:
            yield from self._claim_again(world, at, worker)
        elif stage == RUNS:
            yield from self._run(world, at, worker)
        elif stage == HALF:
            yield from self._end(world, at, worker)
        elif stage == ENDS_AGAIN:
            yield from self._end_again(world, at, worker)
        elif stage == LETS_GO:
            yield from self._let_go(world, at, worker)
        elif stage == ACKS:
            yield from self._acknowledge(world, at, worker)
        else:
            yield from self._afterwards(world, at, worker)
        if world.faults:
            yield from self._struck_worker(world, at, worker)

    def _struck_worker(self, world: World, at: int, worker: Worker) -> Iterator[Step]:
        struck = _struck(world)
        yield Step(("worker {} dies; its lease of ticket {} ends", NAMES[at], worker.ticket), _leaves(struck, at, worker), True)
        job = world.jobs[worker.job]
        if any(ticket.holder == at for ticket in job.tickets):
            told = ("worker {} is frozen; its lease of ticket {} of job {} ends", NAMES[at], worker.ticket, worker.job + 1)
            yield Step(told, _with(struck, worker.job, _visible(job, at)), True)

    # --- workers: claiming -------------------------------------------------------------------------------------------

    def _claim(self, world: World, at: int, worker: Worker) -> Iterator[Step]:
        job = world.jobs[worker.job]
        if "acknowledged at once" in self._wrong and any(ticket.number == worker.ticket for ticket in job.tickets):
            told = ("worker {} acknowledges ticket {} before anything else", NAMES[at], worker.ticket)
            gone = _with(world, worker.job, _without_ticket(job, worker.ticket))
            yield Step(told, gone, broken=None if _decided(job) else ACKNOWLEDGED)
            return
        if job.row is None:
            told = ("worker {} finds no row of job {}: ticket {} goes to the quarantine", NAMES[at], worker.job + 1)
            yield _acknowledges((*told, worker.ticket), world, at, worker)
            return
        given = Given(worker.ticket, worker.deliveries)
        written = self._write(job, "claim", job.row, job.version, given)
        if written is None:
            yield from self._look(world, at, worker)
        else:
            yield from self._claimed(world, at, worker, Pending("claim"), *written)

    def _look(self, world: World, at: int, worker: Worker) -> Iterator[Step]:
        """The claim was refused: what the row that refused it asks for."""
        row = world.jobs[worker.job].row
        assert row is not None
        yield self._judged(world, at, worker, row, lapsed=False)
        if row.state == RUNNING:
            alive = any(_owns(other, worker.job, row.attempt) for other in world.workers)
            if not alive or world.faults:
                yield self._judged(_struck(world) if alive else world, at, worker, row, lapsed=True, is_fault=alive)

    def _judged(self, world: World, at: int, worker: Worker, row: Row, *, lapsed: bool, is_fault: bool = False) -> Step:
        version, name, who = world.jobs[worker.job].version, worker.job + 1, NAMES[at]
        verdict = self.rules.judged(row, worker.ticket, worker.deliveries, lapsed)
        by_the_clock = " (its clock says that the lease is over)" if lapsed else ""
        match verdict:
            case Finished():
                told: tuple[Any, ...] = ("worker {} finds job {} ended", who, name)
                return _acknowledges(told, world, at, worker)
            case Held():
                told = ("worker {} finds job {} held: the ticket goes back", who, name)
                if "held acknowledged" in self._wrong:
                    return _acknowledges(told, world, at, worker)
                return Step(told, _leaves(world, at, worker), is_fault)
            case Early():
                told = ("worker {} finds job {} early: the ticket goes back", who, name)
                if "early acknowledged" in self._wrong:
                    return _acknowledges(told, world, at, worker)
                return Step(told, _leaves(world, at, worker))
            case CancelNow():
                pending = Pending("cancel", row, version)
            case UsedUp():
                pending = Pending("bury", row, version)
            case Free(counted):
                pending = Pending("take over", row, version, counted)
        told = (
            f"worker {{}} sees job {{}} {{}} with token {{}}{by_the_clock} and wants to {{}}",
            who,
            name,
            _state(row),
            row.token,
        )
        return Step((*told, pending.change), _works(world, at, worker._replace(stage=SEEN, more=pending)), is_fault)

    def _write_verdict(self, world: World, at: int, worker: Worker) -> Iterator[Step]:
        pending, job = worker.more, world.jobs[worker.job]
        given = Given(worker.ticket, worker.deliveries, pending.counted)
        written = self._write(job, pending.change, pending.row, pending.version, given)
        if written is None:
            yield from self._look(world, at, worker)
        else:
            yield from self._claimed(world, at, worker, pending, *written)

    def _claimed(self, world: World, at: int, worker: Worker, pending: Pending, job: Job, broken: str | None) -> Iterator[Step]:
        """A claim's write has landed."""
        landed = _with(world, worker.job, job)
        yield self._after_claim(landed, at, worker, pending, broken)
        if world.faults:
            again = worker._replace(stage=AGAIN, more=pending._replace(applied=job.version))
            told = ("worker {} writes '{}' to job {}, and the reply is lost", NAMES[at], pending.change, worker.job + 1)
            yield Step(told, _works(_struck(landed), at, again), True, broken)

    def _after_claim(self, world: World, at: int, worker: Worker, pending: Pending, broken: str | None = None) -> Step:
        row, who, name = world.jobs[worker.job].row, NAMES[at], worker.job + 1
        assert row is not None
        if row.state != RUNNING:
            told: tuple[Any, ...] = ("worker {} writes {} to job {}", who, _state(row), name)
            return _acknowledges(told, world, at, worker, broken)
        owner = Owner(row.token, row.attempt, row.attempts, row.hand_overs, pending.counted, row.cancel)
        told = ("worker {} claims job {}: token {}", who, name, row.token)
        if any(_owns(other, worker.job, row.attempt) for other in world.workers):
            broken = TOKENS
        return Step(told, _works(world, at, worker._replace(stage=RUNS, more=owner)), broken=broken)

    def _claim_again(self, world: World, at: int, worker: Worker) -> Iterator[Step]:
        """The same claim once more, or none."""
        pending, job = worker.more, world.jobs[worker.job]
        assert job.row is not None
        own = pending.applied == job.version
        if own or (job.row.state == RUNNING and "any running row is its own" in self._wrong):
            step = self._after_claim(world, at, worker, pending)
            yield step._replace(told=("worker {} finds its own write at job {}", NAMES[at], worker.job + 1))
        else:
            yield from self._look(world, at, worker)
        told: tuple[Any, ...] = (
            "worker {} loses its patience with the ledger: the ticket of job {} goes back",
            NAMES[at],
            worker.job + 1,
        )
        yield Step(told, _leaves(world, at, worker))

    # --- workers: running and ending ---------------------------------------------------------------------------------

    def _beat(self, world: World, at: int, worker: Worker) -> Iterator[Step]:
        """A heartbeat, where it tells the owner something or somebody else has seen the row before it."""
        owner, job = worker.more, world.jobs[worker.job]
        assert job.row is not None
        learns = job.row.cancel and not owner.cancel
        if not learns and not _is_watched(world, worker.job):
            return
        written = self._write(job, "beat", job.row, 0, Given(), owner)
        if written is None:
            return
        beaten = _with(world, worker.job, written[0])
        told = ("worker {} beats for job {}", NAMES[at], worker.job + 1)
        yield Step(told, _works(beaten, at, worker._replace(more=owner._replace(cancel=job.row.cancel))), broken=written[1])

    def _run(self, world: World, at: int, worker: Worker) -> Iterator[Step]:
        """The job's code writes an effect of its own, if it is not there."""
        yield from self._beat(world, at, worker)
        owner, job = worker.more, world.jobs[worker.job]
        assert job.row is not None
        who, name = NAMES[at], worker.job + 1
        if self.rules.owner_landed("write effect", owner, Given(), job.row) is None:
            yield Step(
                ("the effect of worker {} for job {} is refused: the lease is lost", who, name), _leaves(world, at, worker)
            )
            return
        if job.written and "effect not keyed" not in self._wrong:
            told = ("worker {} finds the effect of job {} there", who, name)
            after, broken = job, None
        else:
            told = ("worker {} writes an effect of job {}", who, name)
            after = job._replace(written=job.written + 1)
            broken = DOUBLED if after.written > 1 else LATE if owner.attempt != job.claims else None
        yield Step(told, _works(_with(world, worker.job, after), at, worker._replace(stage=HALF)), broken=broken)

    def _end(self, world: World, at: int, worker: Worker) -> Iterator[Step]:
        """The code has ended somehow: the outcome's one write, and what it means for the ticket."""
        yield from self._beat(world, at, worker)
        owner = worker.more
        outcomes = self.scope.outcomes if worker.job == 0 or self.scope.others is None else self.scope.others
        if "kill" in outcomes:
            yield Step(("the code of job {} kills worker {}", worker.job + 1, NAMES[at]), _leaves(world, at, worker))
        for change, later in self._ends(owner, outcomes):
            pending = Pending(change, later=later, owner=owner)
            too_early = self._too_early(world, at, worker, pending)
            if too_early is None:
                yield from self._end_by(world, at, worker, pending)
            else:
                yield too_early
        if world.faults:
            told = ("worker {} cannot reach the ledger to end job {}", NAMES[at], worker.job + 1)
            yield Step(told, _works(_struck(world), at, worker._replace(stage=LETS_GO)), True)

    def _ends(self, owner: Owner, outcomes: frozenset[str]) -> Iterator[tuple[str, bool]]:
        if "succeed" in outcomes:
            yield "succeed", False
        if "give up" in outcomes:
            yield "give up", False
        if owner.cancel:
            yield "cancel mine", False
            return
        if "hand over" in outcomes:
            yield "hand over", False
        if "fail" in outcomes:
            if owner.attempts >= self.scope.max_attempts:
                if "give up" not in outcomes:
                    yield "give up", False
                return
            for delay in self.scope.delays:
                yield f"retry {delay}", True

    def _end_by(self, world: World, at: int, worker: Worker, pending: Pending) -> Iterator[Step]:
        job, who, name = world.jobs[worker.job], NAMES[at], worker.job + 1
        assert job.row is not None
        assert pending.owner is not None
        given = Given(counted=pending.owner.counted, later=pending.later)
        written = self._write(job, pending.change, job.row, 0, given, pending.owner)
        if written is None:
            told: tuple[Any, ...] = ("worker {} is refused '{}' of job {}: the lease is lost", who, pending.change, name)
            yield Step(told, _leaves(world, at, worker))
            return
        landed = _with(world, worker.job, written[0])
        yield self._ended(landed, at, worker, pending, written[1])
        if world.faults:
            again = worker._replace(stage=ENDS_AGAIN, more=pending._replace(applied=written[0].version))
            told = ("worker {} writes '{}' to job {}, and the reply is lost", who, pending.change, name)
            yield Step(told, _works(_struck(landed), at, again), True, written[1])

    def _ended(self, world: World, at: int, worker: Worker, pending: Pending, broken: str | None = None) -> Step:
        """The outcome is written: acknowledge, or give the ticket back."""
        told = ("worker {} writes '{}' to job {}", NAMES[at], pending.change, worker.job + 1)
        if pending.change in ("retry soon", "hand over", "let go"):
            return Step(told, _leaves(world, at, worker), broken=broken)
        if pending.change == "succeed" and "effect after" in self._wrong:
            return Step(told, _works(world, at, worker._replace(stage=LATER, more=None)), broken=broken)
        return _acknowledges(told, world, at, worker, broken)

    def _end_again(self, world: World, at: int, worker: Worker) -> Iterator[Step]:
        """The same write once more; or no more of it."""
        pending, job = worker.more, world.jobs[worker.job]
        who, name = NAMES[at], worker.job + 1
        if pending.applied == job.version:
            step = self._ended(world, at, worker, pending)
            yield step._replace(told=("worker {} recognises its own '{}' of job {}", who, pending.change, name))
        else:
            told: tuple[Any, ...] = ("worker {} is refused '{}' of job {}: the lease is lost", who, pending.change, name)
            yield Step(told, _leaves(world, at, worker))
        if pending.change != "let go":
            told = ("worker {} loses its patience with the ledger: it is undecided how job {} ended", who, name)
            yield Step(told, _works(world, at, worker._replace(stage=LETS_GO, more=pending.owner)))

    def _let_go(self, world: World, at: int, worker: Worker) -> Iterator[Step]:
        if "undecided acknowledged" in self._wrong:
            told = ("worker {} takes job {} for ended", NAMES[at], worker.job + 1)
            yield _acknowledges(told, world, at, worker)
            return
        yield from self._end_by(world, at, worker, Pending("let go", owner=worker.more))

    def _failover(self, world: World) -> Iterator[Step]:
        for number, job in enumerate(world.jobs):
            if any(ticket.deliveries for ticket in job.tickets):
                back = tuple([Ticket(ticket.number) for ticket in job.tickets])
                told = ("the queue fails over and forgets the leases and deliveries of job {}", number + 1)
                yield Step(told, _with(_struck(world), number, job._replace(tickets=back)), True)

    def _forget_and_repair(self, world: World) -> Iterator[Step]:
        for number, job in enumerate(world.jobs):
            row, name = job.row, number + 1
            if job.tickets and world.faults:
                told = ("the queue loses its memory, and {} ticket(s) of job {} with it", len(job.tickets), name)
                yield Step(told, _with(_struck(world), number, job._replace(tickets=(), forgotten=True)), True)
            unmarked = row is not None and not row.due and row.state not in TERMINAL
            if job.forgotten and unmarked and "memory not repaired" not in self._wrong:
                pushed = self._push(job)
                if pushed is not None:
                    told = ("the repair pushes ticket {} of job {}", pushed.pushed, name)
                    yield Step(told, _with(world, number, pushed._replace(forgotten=False)))
                if world.operator is None:
                    found = world._replace(operator=("mark again", number, row, job.version))
                    yield Step(("the repair finds job {} without a mark", name), found)

    def _give_up_tickets(self, world: World) -> Iterator[Step]:
        for number, job in enumerate(world.jobs):
            for ticket in job.tickets:
                if ticket.holder == NOBODY and not job.given_up:
                    told = ("the queue gives ticket {} of job {} up: it goes to the last resort", ticket.number, number + 1)
                    after = _without_ticket(job, ticket.number)._replace(given_up=True)
                    yield Step(told, _with(_struck(world), number, after), True)

    def _acknowledge(self, world: World, at: int, worker: Worker) -> Iterator[Step]:
        job, done = world.jobs[worker.job], _works(world, at, Worker())
        there = next((ticket for ticket in job.tickets if ticket.number == worker.ticket), None)
        told: tuple[Any, ...] = ("worker {} acknowledges ticket {} of job {}", NAMES[at], worker.ticket, worker.job + 1)
        if there is None:
            yield Step(told, done)
            return
        yield Step(told, _with(done, worker.job, _without_ticket(job, worker.ticket)))
        if there.holder != at:
            yield Step(("worker {} acknowledges ticket {} of job {} too late: it stays", *told[1:]), done)
        elif world.faults:
            told = ("worker {} acknowledges ticket {} of job {}, and the queue delivers it once more", *told[1:])
            yield Step(told, _with(_struck(done), worker.job, _visible(job, at)), True)

    # --- wrong orders of steps ---------------------------------------------------------------------------------------

    def _too_early(self, world: World, at: int, worker: Worker, pending: Pending) -> Step | None:
        """What a wrong design does before it writes the outcome, instead of with it or after it."""
        job, who, name = world.jobs[worker.job], NAMES[at], worker.job + 1
        broken: str | None = None
        told: tuple[Any, ...]
        if pending.change == "succeed" and "effect before" in self._wrong:
            assert job.row is not None
            assert pending.owner is not None
            if self.rules.owner_landed("write effect", pending.owner, Given(), job.row) is None:
                return None  # the end will be refused as well
            told = ("worker {} writes the staged effect of job {}, its token checked", who, name)
            after = job._replace(committed=job.committed + 1)
            broken = DOUBLED if after.committed > 1 else None
        elif pending.change == "succeed" and "acknowledged first" in self._wrong:
            told = ("worker {} acknowledges ticket {} of job {}", who, worker.ticket, name)
            after = _without_ticket(job, worker.ticket)
            broken = ACKNOWLEDGED
        elif pending.change == "retry later" and "ticket before row" in self._wrong:
            told = ("worker {} acknowledges ticket {} of job {}, to be tried later", who, worker.ticket, name)
            after = _without_ticket(job, worker.ticket)
            broken = ACKNOWLEDGED
        elif pending.change == "retry soon" and "ticket before row" in self._wrong:
            told = ("worker {} gives ticket {} of job {} back, to be tried later", who, worker.ticket, name)
            after = _visible(job, at)._replace(not_yet=True)
        else:
            return None
        then = worker._replace(stage=LATER, more=pending)
        return Step(told, _works(_with(world, worker.job, after), at, then), broken=broken)

    def _afterwards(self, world: World, at: int, worker: Worker) -> Iterator[Step]:
        """What comes after the step it should have come before, or with."""
        if isinstance(worker.more, Pending):
            yield from self._end_by(world, at, worker, worker.more)
            return
        job = world.jobs[worker.job]
        after = job._replace(committed=job.committed + 1)
        told = ("worker {} writes the staged effect of job {}", NAMES[at], worker.job + 1)
        yield _acknowledges(told, _with(world, worker.job, after), at, worker)


# These three make most of the worlds; `_replace` takes twice as long.
_new = tuple.__new__


def _with(world: World, number: int, job: Job) -> World:
    jobs = world.jobs
    return _new(World, ((*jobs[:number], job, *jobs[number + 1 :]), *world[1:]))


def _works(world: World, at: int, worker: Worker) -> World:
    jobs, log, relay, workers, *more = world
    return _new(World, (jobs, log, relay, (*workers[:at], worker, *workers[at + 1 :]), *more))


def _struck(world: World) -> World:
    *before, faults, cancels, redrives = world
    return _new(World, (*before, faults - 1, cancels, redrives))


def _visible(job: Job, at: int) -> Job:
    """The ticket whose current lease this worker holds, if any, may be taken again."""
    return job._replace(
        tickets=tuple([ticket._replace(holder=NOBODY) if ticket.holder == at else ticket for ticket in job.tickets])
    )


def _decided(job: Job) -> bool:
    """Whether a ticket of this job may go."""
    return job.row is None or job.row.state in TERMINAL or job.row.due > 0


def _acknowledges(told: tuple[Any, ...], world: World, at: int, worker: Worker, broken: str | None = None) -> Step:
    """The worker is about to acknowledge its ticket."""
    if broken is None and not _decided(world.jobs[worker.job]):
        broken = ACKNOWLEDGED
    return Step(told, _works(world, at, worker._replace(stage=ACKS, more=None)), broken=broken)


def _without_ticket(job: Job, number: int) -> Job:
    return job._replace(tickets=tuple([ticket for ticket in job.tickets if ticket.number != number]))


def _leaves(world: World, at: int, worker: Worker) -> World:
    """The worker is done with its message, and has not acknowledged it: others may take it, now or when its lease is over."""
    return _works(_with(world, worker.job, _visible(world.jobs[worker.job], at)), at, Worker())


def _owns(worker: Worker, number: int, attempt: int) -> bool:
    """Whether this worker is at work on this attempt, and has not died."""
    if worker.job != number or worker.stage not in (RUNS, HALF, ENDS_AGAIN, LETS_GO, LATER):
        return False
    owner = worker.more if isinstance(worker.more, Owner) else worker.more.owner
    return owner is not None and owner.attempt == attempt


def _is_watched(world: World, number: int) -> bool:
    """Whether anybody has seen the row as it is, and is about to write."""
    version = world.jobs[number].version
    if world.operator is not None and world.operator[1] == number and world.operator[3] == version:
        return True
    return any(w.stage == SEEN and w.job == number and w.more.version == version for w in world.workers)


def _state(row: Row) -> str:
    return ("scheduled", "queued", "running", "succeeded", "dead", "cancelled")[row.state]
