"""What this process does, written down as it does it: a line before each call of a port, and one with what it heard after it.

A call without a second line is one of which nobody knows what became: its process was killed, or nobody answered. Each line is
one write to a file that only this process appends to, so whoever kills it loses no line that is whole. The names are those of
`tests/simulator/history.py`: ``port.method``, or what happened.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec

from ringfence import runtime, transitions
from ringfence.acceptance import Accepted
from ringfence.change import Change, Refused, Written
from ringfence.effects import Effect, Item, Put, Update
from ringfence.errors import EffectRefused, Poisoned, Rejected
from ringfence.job import Job
from ringfence.ports import Group, Lease, LogEntry, SetAside
from ringfence.wire import Ticket, decode_record, decode_ticket

HISTORY_VARIABLE = "CAMPAIGN_HISTORY"
"""The folder of the histories, in the environment of every process."""


def history_in(folder: Path) -> Path:
    """That folder, in the one of a campaign."""
    return folder / "history"


NO_ANSWER_STATUS = 500
"""From here on an answer says nothing of what became of the request."""

_TEXT_LENGTH = 40
_TOLD_FIELDS = frozenset(
    {
        "state", "attempt_id", "worker", "run_at", "due_id", "attempts", "hand_overs", "lease_until", "checkpoint", "error",
        "cancel_requested", "token",
    }
)  # fmt: skip
"""Of what a change sets; payloads and results are nobody's business, and long."""

Told = dict[str, Any]
_encode = msgspec.json.Encoder(enc_hook=str).encode


class Recorder:
    """``who`` is the process, as it calls itself in the rows that it claims."""

    def __init__(self, folder: Path, who: Callable[[], str] = runtime._worker_name) -> None:
        self._folder, self._who = folder, who
        self._opened_in: int | None = None
        self._file = -1
        self._opening = threading.Lock()
        self._numbers = itertools.count(1)
        self._here = threading.local()

    # --- lines -------------------------------------------------------------------------------------------------------

    def began(self, what: str, **told: Any) -> int:
        """Something is about to be done. Returns the number by which its end is known."""
        number = next(self._numbers)
        self._write({"n": number, "do": what, **told})
        return number

    def ended(self, number: int, **heard: Any) -> None:
        """What came of it."""
        self._write({"n": number, **heard})

    def _write(self, line: Told) -> None:
        if self._opened_in != os.getpid():
            self._open()
        os.write(self._file, _encode(line) + b"\n")

    def _open(self) -> None:
        """A file of this process's own: another may have had its number before it, and a fork goes on in its own."""
        with self._opening:
            if self._opened_in == os.getpid():
                return
            name = f"{os.environ.get('AWS_LAMBDA_FUNCTION_NAME', 'worker')}-{os.getpid()}-{time.time_ns()}.jsonl"
            self._file = os.open(self._folder / name, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL, 0o600)
            os.write(self._file, _encode({"process": self._who()}) + b"\n")
            self._opened_in = os.getpid()

    # --- ports -------------------------------------------------------------------------------------------------------

    def wrap(self, name: str, port: Any) -> Any:
        """The port, whose calls are written down. What it calls of itself is part of the call."""
        for method, record in _PORTS.get(name.partition(":")[0], {}).items():
            if (real := getattr(port, method, None)) is not None:
                setattr(port, method, functools.partial(record, self, f"{name}.{method}", real))
        return port

    @contextmanager
    def call(self, what: str, **told: Any) -> Iterator[Told]:
        """One call of a port, around it. What was heard is put into the yielded mapping."""
        if getattr(self._here, "heard", None) is not None:
            yield {}  # within another
            return
        number = self.began(what, **told)
        heard: Told = {"heard": "ok"}
        self._here.heard = heard
        try:
            yield heard
        except BaseException as fault:
            heard["heard"] = "refused" if isinstance(fault, (EffectRefused, Rejected)) else "unknown"
            heard["why"] = f"{type(fault).__name__}: {fault}"[:120]
            raise
        finally:
            self._here.heard = None
            self.ended(number, **heard)

    def unanswered(self) -> None:
        """A request of this thread's call was sent, and nobody told what became of it; it may be sent again."""
        heard = getattr(self._here, "heard", None)
        if heard is not None:
            heard["unanswered"] = heard.get("unanswered", 0) + 1

    # --- hops --------------------------------------------------------------------------------------------------------

    def accepts(self, submit: Callable[..., Any]) -> Callable[..., Any]:
        """`Gateway.submit`: what a client is about to be told."""

        def call(tenant: str, submissions: Sequence[Any]) -> Any:
            number = self.began("gateway.submit", count=len(submissions))
            answers = submit(tenant, submissions)
            accepted = [answer for answer in answers if isinstance(answer, Accepted)]
            self.ended(
                number,
                heard="ok",
                accepted=[answer.job.job_id for answer in accepted if not answer.repeated],
                repeated=[answer.job.job_id for answer in accepted if answer.repeated],
            )
            return answers

        return call

    def relays(self, handle: Callable[..., Any]) -> Callable[..., Any]:
        """`Relay.handle`: the checkpoint passes every record before the one that it returns."""

        def call(records: Sequence[Any], *more: Any) -> Any:
            told = [[record.sequence, _jobs_of(record.data)] for record in records]
            number = self.began("relay.handle", shard=records[0].shard if records else None, records=told)
            unsent = handle(records, *more)
            self.ended(number, heard="ok", unsent=unsent)
            return unsent

        return call

    def works(self, handle: Callable[..., Any]) -> Callable[..., Any]:
        """`Worker.handle`: the event source has leased, and acknowledges what is returned; nobody here hears how it went."""

        def call(queue: Any, leases: Sequence[Lease], *more: Any) -> Any:
            number = self.began(f"queue:{queue.name}.lease")
            self.ended(number, heard="ok", leases=_leases(leases))
            done = handle(queue, leases, *more)
            if done:
                self.began(f"queue:{queue.name}.acknowledge", leases=_leases(done))
            return done

        return call

    def runs(self, run_code: Callable[..., Any]) -> Callable[..., Any]:
        """`attempt.run_code`."""

        def call(hold: Any) -> Any:
            job = getattr(hold, "job", None)
            told = {"job": hold.ticket.job_id, "carried": True} if job is None else {"job": job.job_id, "token": job.token}
            number = self.began("ran", **told)
            outcome, effects = run_code(hold)
            self.ended(number, heard="ok", outcome=type(outcome).__name__)
            return outcome, effects

        return call


# --- the ports' calls ------------------------------------------------------------------------------------------------


def _register(here: Recorder, what: str, real: Callable[..., Any], job: Job) -> Any:
    with here.call(what, writes=[_written_row(job)]) as heard:
        there = real(job)
        heard["outcomes"] = [_outcome(Written(job) if there is None else Refused(there))]
        return there


def _write(
    here: Recorder, what: str, real: Callable[..., Any], change: Change, effects: Sequence[Effect] = (), **more: Any
) -> Any:
    with here.call(what, writes=[_written(change) | _told_effects(effects)]) as heard:
        outcome = real(change, effects, **more)
        # A transaction does not return the row: what it is after it, the ledger makes of the row that it saw.
        heard["outcomes"] = [_outcome(outcome, computed=bool(effects))]
        return outcome


def _write_many(here: Recorder, what: str, real: Callable[..., Any], writes: Sequence[Change | Job]) -> Any:
    told = [_written_row(write) if isinstance(write, Job) else _written(write) for write in writes]
    with here.call(what, writes=told) as heard:
        outcomes = real(writes)
        heard["outcomes"] = [_outcome(outcome, computed=True) for outcome in outcomes]
        return outcomes


def _write_effects(
    here: Recorder, what: str, real: Callable[..., Any], held: Change, effects: Sequence[Effect], **more: Any
) -> Any:
    told = _written(held) | _told_effects(effects) | {"request": more.get("request_token")}
    with here.call(what, writes=[told]) as heard:
        refused = real(held, effects, **more)
        heard["outcomes"] = [_outcome(refused or Written(held.seen)) if held.seen is not None else {"heard": "unknown"}]
        return refused


def _peek(here: Recorder, what: str, real: Callable[..., Any], job_ids: Sequence[str]) -> Any:
    if not job_ids:
        return real(job_ids)
    with here.call(what, jobs=list(job_ids)) as heard:
        jobs = real(job_ids)
        heard["rows"] = [_row(job) for job in jobs]
        return jobs


def _join_line(here: Recorder, what: str, real: Callable[..., Any], group: Group) -> Any:
    with here.call(what, jobs=list(group.job_ids)):
        return real(group)


def _push(here: Recorder, what: str, real: Callable[..., Any], tickets: Sequence[Ticket], delay_seconds: Any = 0.0) -> Any:
    with here.call(what, tickets=[[each.ticket_id, each.job_id, each.attempts] for each in tickets]) as heard:
        untaken = real(tickets, delay_seconds)
        heard["untaken"] = [ticket.ticket_id for ticket in untaken]
        return untaken


def _lease(here: Recorder, what: str, real: Callable[..., Any], *asked: Any, **more: Any) -> Any:
    with here.call(what) as heard:
        leases = real(*asked, **more)
        heard["leases"] = _leases(leases)
        return leases


def _give_up(here: Recorder, what: str, real: Callable[..., Any], leases: Sequence[Lease], *more: Any, **others: Any) -> Any:
    """Acknowledged, or released."""
    with here.call(what, leases=_leases(leases)):
        return real(leases, *more, **others)


def _acknowledge_and_lease(
    here: Recorder, what: str, real: Callable[..., Any], done: Sequence[Lease], *asked: Any, **more: Any
) -> Any:
    with _acknowledging(here, what, done):
        return _lease(here, _beside(what, "lease"), real, done, *asked, **more)


def _ask(here: Recorder, what: str, real: Callable[..., Any], done: Sequence[Lease], *asked: Any) -> Any:
    acknowledged = here.began(_beside(what, "acknowledge"), leases=_leases(done)) if done else None
    leased = here.began(_beside(what, "lease"))
    read = real(done, *asked)

    def reply() -> Any:
        leases = read()
        if acknowledged is not None:
            here.ended(acknowledged, heard="ok")
        here.ended(leased, heard="ok", leases=_leases(leases))
        return leases

    return reply


@contextmanager
def _acknowledging(here: Recorder, what: str, done: Sequence[Lease]) -> Iterator[None]:
    number = here.began(_beside(what, "acknowledge"), leases=_leases(done)) if done else None
    yield
    if number is not None:
        here.ended(number, heard="ok")


def _beside(what: str, method: str) -> str:
    return f"{what.rpartition('.')[0]}.{method}"


def _append(here: Recorder, what: str, real: Callable[..., Any], entries: Sequence[LogEntry]) -> Any:
    with here.call(what, records=[_jobs_of(entry.data) for entry in entries]) as heard:
        sequences = real(entries)
        heard["sequences"] = sequences
        return sequences


def _set_aside(here: Recorder, what: str, real: Callable[..., Any], item: SetAside) -> Any:
    with here.call(what, source=item.source, position=item.position, job=item.job_id):
        return real(item)


_PORTS: Mapping[str, Mapping[str, Callable[..., Any]]] = {
    "ledger": {
        "register": _register,
        "write": _write,
        "write_many": _write_many,
        "write_effects": _write_effects,
        "peek": _peek,
        "join_line": _join_line,
    },
    "queue": {
        "push": _push,
        "lease": _lease,
        "acknowledge": _give_up,
        "release": _give_up,
        "acknowledge_and_lease": _acknowledge_and_lease,
        "ask": _ask,
    },
    "log": {"append": _append},
    "quarantine": {"put": _set_aside},
}


# --- what is told of a value -----------------------------------------------------------------------------------------


def _row(job: Job) -> Told:
    return {
        "job": job.job_id,
        "version": job.version,
        "write": job.write_id,
        "token": job.token,
        "attempt": job.attempt_id,
        "worker": job.worker,
        "state": job.state,
        "due": job.due_id is not None,
    }


def _written_row(job: Job) -> Told:
    return {"job": job.job_id, "write": job.write_id, "row": _row(job)}


def _written(change: Change) -> Told:
    return {
        "job": change.job_id,
        "write": change.write_id,
        "set": {name: _short(value) for name, value in change.set.items() if name in _TOLD_FIELDS},
        "add": change.add,
        "seen": None if change.seen is None else _row(change.seen),
    }


def _told_effects(effects: Sequence[Effect]) -> Told:
    return {"effects": [_effect(effect) for effect in effects]} if effects else {}


def _effect(effect: Effect) -> str:
    """What is done to which item; ``add`` is what shows when it is done twice."""
    if isinstance(effect, Put):
        return f"put {effect.table}"
    if isinstance(effect, Update) and effect.add:
        return added_to(effect.table, effect.key)
    return f"{type(effect).__name__.lower()} {effect.table} {_encode(effect.key).decode()}"


def added_to(table: str, key: Item) -> str:
    """How an effect is told that adds to an item."""
    return f"add {table} {_encode(key).decode()}"


def _outcome(outcome: Written | Refused | None, computed: bool = False) -> Told:
    match outcome:
        case Written(job):
            return {"heard": "ok", "row": _row(job), **({"computed": True} if computed else {})}
        case Refused(seen):
            return {"heard": "refused", "row": None if seen is None else _row(seen)}
    return {"heard": "unknown"}


def _leases(leases: Sequence[Lease]) -> list[list[Any]]:
    """Of each: a mark of its receipt, the message, its job if it can be read, and whether that rides in it."""
    told = []
    for lease in leases:
        try:
            ticket: Ticket | None = decode_ticket(lease.body)
        except Poisoned:
            ticket = None
        mark = hashlib.blake2b(lease.receipt.encode(), digest_size=6).hexdigest()
        job_id, rides = (None, False) if ticket is None else (ticket.job_id, ticket.payload is not None)
        told.append([mark, lease.message_id, job_id, rides])
    return told


def _jobs_of(data: bytes) -> list[str] | None:
    """The jobs of a record that need a ticket or a due mark from the relay; None if nobody can read it."""
    try:
        return [job.job_id for job in decode_record(data) if not transitions.is_far(job)]
    except Poisoned:
        return None


def _short(value: Any) -> Any:
    return value[:_TEXT_LENGTH] if isinstance(value, str) else value
