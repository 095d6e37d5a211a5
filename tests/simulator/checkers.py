"""What must hold of a history: one checker for each invariant of the design, each telling what is wrong as lines of text."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Any

from ringfence.change import Refused, Written
from ringfence.errors import Poisoned
from ringfence.job import Guarantee, Job, State
from ringfence.ports import SetAside
from ringfence.relay import Read
from ringfence.wire import decode_record

from .client_checkers import CLIENT_CHECKERS
from .deadline_checkers import DEADLINE_CHECKERS
from .due_checkers import DUE_CHECKERS
from .history import Entry, History
from .mishaps import lost_with_its_queue, ticket_in
from .pace_checkers import PACE_CHECKERS
from .worker_checkers import WORKER_CHECKERS

if TYPE_CHECKING:
    from .world import World

Checker = Callable[["World"], Iterator[str]]


def every_accepted_job_ends(world: World) -> Iterator[str]:
    """After a complete drain each job that a client was told of is in one terminal state. One without a row has run, unless it
    was in a queue that lost its memory."""
    history = world.history
    if not history.finished:
        waiting = [job for job in world.ledger.all_jobs() if not job.state.terminal]
        bodies = {name: len(queue.bodies()) for name, queue in world.queues.items() if queue.bodies()}
        yield f"not drained in time: {[(job.job_id, str(job.state)) for job in waiting]}, messages {bodies}"
    ended_without_row = {entry.args[0] for entry in history.of("ran")} | lost_with_its_queue(history)
    for job_id, entry in history.first_accepted.items():
        row = world.ledger.get(job_id)
        if row is None and entry.args[2].guarantee is Guarantee.AT_LEAST_ONCE:
            if history.finished and job_id not in ended_without_row:
                yield f"{job_id} was accepted, and never ran"
        elif row is None:
            yield f"{job_id} was accepted and has no row"
        elif history.finished and not row.state.terminal:
            yield f"{job_id} is {row.state} after the drain"


def effects_land_once(world: World) -> Iterator[str]:
    """No effect twice, and exactly one of each job that succeeded; of one that did not, none."""
    for job in world.ledger.all_jobs():
        item = world.ledger.read_item("Effects", {"job": job.job_id})
        landed = 0 if item is None else item["n"]
        wanted = 1 if job.state is State.SUCCEEDED and job.name != "plain" else 0
        if landed != wanted:
            yield f"{job.job_id} is {job.state}, and its effect landed {landed} times"


def tokens_rise(world: World) -> Iterator[str]:
    """In the order of the store a job's token never falls, and every claim raises it."""
    for landed in world.history.landed:
        before, after = landed.before, landed.after
        if before is None:
            continue
        if after.token < before.token:
            yield f"{after.job_id}: the token fell from {before.token} to {after.token}"
        elif after.attempt_id not in (None, before.attempt_id) and after.token <= before.token:
            yield f"{after.job_id}: a claim did not raise the token {before.token}"


def late_owners_write_nothing(world: World) -> Iterator[str]:
    """Once a token was minted, no write of an owner with a lower one lands in the row, and so none of the effects that commit
    with it. What a job writes in between, `ended_attempts_write_nothing` sees."""
    minted_by: dict[tuple[str, int], str] = {}
    token_of: dict[str, int] = {}
    for landed in world.history.landed:
        before, after = landed.before, landed.after
        if after.state is State.RUNNING and (before is None or after.token != before.token):
            minted_by[after.job_id, after.token] = landed.entry.process
        token_of[after.job_id] = after.token
        if before is not None and before.state is State.RUNNING and landed.entry.process.startswith(("worker", "function")):
            owner = minted_by.get((before.job_id, before.token))
            takes_over = after.token > before.token
            if not takes_over and owner != landed.entry.process:
                yield f"{after.job_id}: {landed.entry.process} wrote under token {before.token}, which is {owner}'s"


def terminal_absorbs(world: World) -> Iterator[str]:
    """A job that has ended changes by a redrive only, and that only if it is dead."""
    for landed in world.history.landed:
        before, after = landed.before, landed.after
        if before is None or not before.state.terminal:
            continue
        if before.state is not State.DEAD or after.state is not State.SCHEDULED or after.due_id is None:
            yield f"{after.job_id}: {before.state} became {after.state}"


def acknowledged_only_when_decided(world: World) -> Iterator[str]:
    """Whoever removes a message has seen to it, since it was leased, that its job has ended, that timers owe it a ticket, or
    that another is on the way. One that rode in the message has run, or has a row by now. What nobody can read, and the ticket
    of a job that nobody knows of, is in the quarantine."""
    decided_at: dict[str, list[tuple[int, bool]]] = defaultdict(list)
    for landed in world.history.landed:
        after = landed.after
        decided_at[after.job_id].append((landed.index, after.state.terminal or after.due_id is not None))
    for entry_index, entry in enumerate(world.history.entries):
        if entry.what == "ran":
            decided_at[entry.args[0]].append((entry_index, True))
        elif entry.what.endswith(".push"):
            for ticket in entry.args[0]:
                if ticket.attempts:
                    decided_at[ticket.job_id].append((entry_index, True))
    leased_at: dict[tuple[str, str], int] = {}
    set_aside: set[tuple[str, str]] = set()
    for index, entry in enumerate(world.history.entries):
        if entry.what == "quarantine.put":
            set_aside.add(_place_of(entry))
        queue, _, method = entry.what.rpartition(".")
        if not queue.startswith("queue:") or entry.raised is not None:
            continue
        if method == "lease":
            leased_at.update({(queue, lease.receipt): index for lease in entry.reply})
        elif method == "acknowledge":
            for lease in entry.args[0]:
                ticket = ticket_in(lease.body)
                if ticket is None or not decided_at[ticket.job_id]:
                    if (queue, lease.message_id) not in set_aside:
                        yield f"{lease.body[:60]!r}: {entry.process} acknowledged it, and it was not set aside"
                    continue
                job_id = ticket.job_id
                if ticket.payload is not None and any(at <= index for at, _ in decided_at[job_id]):
                    continue
                since = leased_at.get((queue, lease.receipt), 0)
                moments = sorted(decided_at[job_id])
                before = [moment for moment in moments if moment[0] <= since][-1:]
                if not any(decided for at, decided in before + [m for m in moments if since < m[0] <= index]):
                    yield f"{job_id}: {entry.process} acknowledged it, and nobody had decided it or owes it a ticket"


def the_checkpoint_passes_only_what_was_sent(world: World) -> Iterator[str]:
    """Behind the relay's checkpoint every job of the log was pushed, parked or has moved on, or its record is set aside."""
    sent: set[str] = set()
    set_aside: set[tuple[str, str]] = set()
    position = 0
    records = world.log.read()
    for entry in world.history.entries:
        if entry.raised is not None:
            continue
        if entry.what.endswith(".push"):
            untaken = {id(ticket) for ticket in entry.reply}
            sent.update(ticket.job_id for ticket in entry.args[0] if id(ticket) not in untaken)
        elif entry.what == "quarantine.put":
            set_aside.add(_place_of(entry))
        elif entry.what in ("ledger.write", "ledger.write_many"):
            outcomes = entry.reply if isinstance(entry.reply, list) else [entry.reply]
            sent.update(job.job_id for outcome in outcomes if (job := _row(outcome)) is not None and _moved(job))
        elif entry.what in ("ledger.register", "ledger.get") and isinstance(entry.reply, Job) and _moved(entry.reply):
            sent.add(entry.reply.job_id)
        elif entry.what == "ledger.register" and entry.reply is None and entry.args[0].due_id is not None:
            sent.add(entry.args[0].job_id)
        elif entry.what == "checkpointed":
            while position < len(records) and int(records[position].sequence) <= int(entry.args[0]):
                record = records[position]
                if (f"log:{record.shard}", record.sequence) not in set_aside:
                    yield from _unsent_of(record, sent)
                position += 1


def _unsent_of(record: Read, sent: Collection[str]) -> Iterator[str]:
    try:
        jobs = decode_record(record.data)
    except Poisoned as fault:
        yield f"{record.sequence}: the checkpoint passed what nobody can read, and it was not set aside: {fault}"
        return
    for job in jobs:
        if job.job_id not in sent:
            yield f"{job.job_id}: the checkpoint passed it before it was sent"


def _place_of(put: Entry) -> tuple[str, str]:
    """Where what was put into the quarantine came from."""
    item: SetAside = put.args[0]
    return item.source, item.position


def _row(outcome: Any) -> Job | None:
    match outcome:
        case Written(job) | Refused(job):
            return job
    return None


def _moved(job: Job) -> bool:
    return job.due_id is not None or job.token > 0 or job.state is not State.QUEUED


def attempts_are_bounded(world: World) -> Iterator[str]:
    """No job is begun more often than its attempts, its redrives and the returns that cost none allow: two more for each
    checkpoint."""
    from ringfence.verdict import RETURNS_PER_ATTEMPT

    begun = Counter(job_id for job_id, token, _ in (entry.args for entry in world.history.of("started")) if token)
    rounds: Counter[str] = Counter()
    let_go: Counter[str] = Counter()
    checkpoints: Counter[str] = Counter()
    for landed in world.history.landed:
        job = landed.after
        if landed.before is not None and landed.before.state is State.DEAD:
            rounds[job.job_id] += 1
        if job.state is State.QUEUED and job.error is not None and "too busy" in job.error:
            let_go[job.job_id] += 1
        if landed.before is not None and job.checkpoint is not None and job.checkpoint != landed.before.checkpoint:
            checkpoints[job.job_id] += 1
        if job.attempts > job.max_attempts:
            yield f"{job.job_id} has had {job.attempts} of {job.max_attempts} attempts"
    for job in world.ledger.all_jobs():
        allowed = job.max_attempts * (1 + rounds[job.job_id]) * RETURNS_PER_ATTEMPT + let_go[job.job_id]
        allowed += checkpoints[job.job_id] * (RETURNS_PER_ATTEMPT - 1)
        if begun[job.job_id] > allowed:
            yield f"{job.job_id} was begun {begun[job.job_id]} times, and {allowed} are allowed"


def nothing_falls(world: World) -> Iterator[str]:
    """No process ends with an exception of its own, and none is met on the way to a message's end."""
    if world.told["message_failed"]:
        yield f"{world.told['message_failed']} messages met an exception that nobody had thought of"
    for task, raised in world.fell():
        yield f"{task.process.name} ended with {raised!r}"


CHECKERS: tuple[Checker, ...] = (
    every_accepted_job_ends,
    effects_land_once,
    tokens_rise,
    late_owners_write_nothing,
    terminal_absorbs,
    acknowledged_only_when_decided,
    the_checkpoint_passes_only_what_was_sent,
    *DUE_CHECKERS,
    *DEADLINE_CHECKERS,
    *PACE_CHECKERS,
    attempts_are_bounded,
    nothing_falls,
    *CLIENT_CHECKERS,
    *WORKER_CHECKERS,
)


def faults_of(world: World) -> dict[str, list[str]]:
    """What each checker found, by its name; empty if everything holds."""
    found = {checker.__name__: list(checker(world)) for checker in CHECKERS}
    return {name: lines for name, lines in found.items() if lines}


__all__ = ["CHECKERS", "Checker", "History", "faults_of"]
