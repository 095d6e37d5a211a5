"""What must hold of workers that stop, hand over, and are invoked: one checker for each invariant, as in `checkers`."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ringfence.change import Change
from ringfence.job import Job, State
from ringfence.verdict import RETURNS_PER_ATTEMPT

from .history import Entry, Landed

if TYPE_CHECKING:
    from .world import World

SOON_SECONDS = 1.5
"""After its worker has left, a message that it did not start is visible: they are released for a second at most."""


def ended_attempts_write_nothing(world: World) -> Iterator[str]:
    """Once an attempt was handed over, or has ended in any other way, no write of it lands: in the row or among its effects."""
    landed_at: dict[int, Landed] = {landed.index: landed for landed in world.history.landed}
    rows: dict[str, Job] = {}
    carried_out: set[str] = set()
    for index, entry in enumerate(world.history.entries):
        landed = landed_at.get(index)
        if landed is not None:
            if landed.before is not None and _is_an_owners(entry) and not _holds(entry.args[0], landed.before):
                yield f"{landed.after.job_id}: {entry.process} wrote in {entry.args[0].seen.attempt_id}, which was over"
            rows[landed.after.job_id] = landed.after
        elif entry.what == "ledger.write_effects" and entry.reply is None and entry.raised is None:
            held, request = entry.args[0], entry.kwargs["request_token"]
            if request not in carried_out and not _holds(held, rows[held.job_id]):
                yield f"{held.job_id}: {entry.process} wrote effects in {held.seen.attempt_id}, which was over"
            carried_out.add(request)


def _is_an_owners(entry: Entry) -> bool:
    """Whether it is a write under a claim, and no claim itself."""
    if entry.what != "ledger.write":
        return False
    change: Change = entry.args[0]
    seen = change.seen
    return seen is not None and seen.state is State.RUNNING and seen.worker == entry.process and "token" not in change.add


def _holds(change: Change, row: Job) -> bool:
    seen = change.seen
    return seen is not None and row.state is State.RUNNING and (row.token, row.attempt_id) == (seen.token, seen.attempt_id)


def unstarted_messages_come_back(world: World) -> Iterator[str]:
    """What a worker has taken and not started is visible soon after it has stopped, or its invocation has ended."""
    started: set[str] = set()
    for entry in world.history.of("took", "left"):
        if entry.what == "took":
            started.add(entry.args[0])
            continue
        hidden, struck, _ = entry.args
        for receipt, visible_at in hidden:
            if receipt not in started and not struck and visible_at > entry.at + SOON_SECONDS:
                yield f"{entry.process} left {receipt}, which it never started, hidden for {visible_at - entry.at:.1f} s"


def hand_overs_cost_nothing(world: World) -> Iterator[str]:
    """A hand-over keeps the checkpoint and gives the attempt back; only of three without a newer checkpoint one is kept."""
    counted: dict[str, bool] = {}
    returns: Counter[str] = Counter()
    for landed in world.history.landed:
        before, after, job_id = landed.before, landed.after, landed.after.job_id
        change = landed.entry.args[0]
        if before is None or not isinstance(change, Change):
            continue
        if after.state is State.RUNNING and after.token > before.token:
            counted[job_id] = after.attempts > before.attempts
            if before.state is State.RUNNING:
                returns[job_id] = 0 if counted[job_id] else returns[job_id] + 1
        elif before.state is State.DEAD or (before.state is State.RUNNING and change.set.get("checkpoint") is not None):
            returns[job_id] = 0
        elif _is_handed_over(before, after):
            if after.checkpoint != before.checkpoint:
                yield f"{job_id}: the checkpoint {before.checkpoint} became {after.checkpoint} as it was handed over"
            cost = after.attempts - before.attempts + counted.get(job_id, False)
            if "error" in change.set:  # the ledger was too busy, which is no return
                if cost:
                    yield f"{job_id}: it cost an attempt that the ledger was busy"
                continue
            returns[job_id] += 1
            if cost and returns[job_id] < RETURNS_PER_ATTEMPT:
                yield f"{job_id}: hand-over {returns[job_id]} without a newer checkpoint cost an attempt"
            if returns[job_id] >= RETURNS_PER_ATTEMPT:
                if counted.get(job_id) and not cost:
                    yield f"{job_id}: {returns[job_id]} hand-overs without a newer checkpoint cost nothing"
                returns[job_id] = 0


def _is_handed_over(before: Job, after: Job) -> bool:
    ended = after.history[-1].outcome if after.history else None
    return before.state is State.RUNNING and after.state is State.QUEUED and ended == "handed-over"


def a_batch_is_on_lease_before_it_starts(world: World) -> Iterator[str]:
    """A function shortens the visibility of its messages to the lease before it starts one: a crash is noticed as soon."""
    on_lease: set[str] = set()
    for entry in world.history.entries:
        if entry.what.endswith(".extend"):
            on_lease.update(lease.receipt for lease in entry.args[0])
        elif entry.what == "took" and entry.process.startswith("function"):
            receipt, struck = entry.args
            if receipt not in on_lease and not struck:
                yield f"{entry.process} started {receipt} with the visibility of its queue"


def nothing_outlives_its_invocation(world: World) -> Iterator[str]:
    """Between two invocations a function is frozen; what it leaves behind must not thaw in the next one, with dead receipts."""
    invoked_with: dict[str, set[str]] = defaultdict(set)
    struck: set[str] = set()
    for entry in world.history.entries:
        if entry.what == "invoked":
            receipts, was_struck = entry.args
            invoked_with[entry.process] = set(receipts)
            if was_struck:  # a call may have been on its way while it was frozen
                struck.add(entry.process)
        elif entry.what.endswith(".extend") and entry.process in invoked_with and entry.process not in struck:
            for lease in entry.args[0]:
                if lease.receipt not in invoked_with[entry.process]:
                    yield f"{entry.process} extended {lease.receipt}, which an earlier invocation had"


def workers_end_in_good_order(world: World) -> Iterator[str]:
    """No invocation is cut off by its time limit, no process killed after its grace, and neither leaves a job that says it is
    running there, unless its calls were struck."""
    landed_at: dict[int, Landed] = {landed.index: landed for landed in world.history.landed}
    claimed_by: dict[str, str | None] = {}
    """Job → the worker that claimed it and is still at it."""
    invoked_at: dict[str, float] = {}
    for index, entry in enumerate(world.history.entries):
        if (landed := landed_at.get(index)) is not None:
            before, row = landed.before, landed.after
            if row.state is not State.RUNNING:
                claimed_by.pop(row.job_id, None)
            elif before is not None and row.token > before.token and entry.sent_at >= invoked_at.get(entry.process, 0.0):
                claimed_by[row.job_id] = row.worker  # unless its claim was frozen on its way, with an earlier invocation
        elif entry.what == "invoked":
            invoked_at[entry.process] = entry.at
        elif entry.what == "cut off":
            (struck,) = entry.args
            if not struck:
                yield f"{entry.process} was cut off at {entry.at:.3f}"
        elif entry.what == "left":
            *_, struck = entry.args
            for job_id in [job_id for job_id, worker in claimed_by.items() if worker == entry.process]:
                del claimed_by[job_id]
                if not struck:
                    yield f"{entry.process} left {job_id} as running there"


WORKER_CHECKERS = (
    ended_attempts_write_nothing,
    unstarted_messages_come_back,
    hand_overs_cost_nothing,
    a_batch_is_on_lease_before_it_starts,
    nothing_outlives_its_invocation,
    workers_end_in_good_order,
)
