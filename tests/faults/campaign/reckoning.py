"""The reckoning: what the ledger and the tables hold when all is healed and drained, against what clients were promised.

Pure: everything is read before. Whatever is wrong is said, job by job.
"""

from __future__ import annotations

import bisect
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from ringfence.job import Job, State

from .books import Asked, Kind, Promise
from .inside.traces import is_shared, shared_counter

EXCUSED_SECONDS = 120.0
"""A job that rides in its ticket and was accepted so shortly before a Redis lost something may have been lost with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What is there at the end."""

    promises: Sequence[Promise]
    rows: Mapping[str, Job]
    """Job id → row, of all promises that have one."""
    counters: Mapping[str, Mapping[str, int]]
    """Submission's key → its counter's item; and the shared ones."""
    last: Mapping[str, Mapping[str, int]]
    """Submission's key → the token of whoever wrote last."""
    carried_runs: Counter[str]
    """Submission's key → how often the job without a row noted that it ran."""
    told_succeeded: Mapping[str, int]
    """Job id → how often a worker said that it had succeeded."""
    redis_queues: Collection[str]
    redis_losses: Sequence[float]
    contradictions: Sequence[str]
    tickets_left: bool
    """Whether some queue was not empty."""
    clients_left: int
    """Clients that never got their answer."""


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The last line."""

    queues: str
    seed: int
    minutes: float
    lost: int
    """Accepted jobs that are gone, died though they were not to, or have ended without the effect that is theirs."""
    doubled: int
    """Effects that landed more than once, or of a job that did not succeed."""
    stuck: int
    """Accepted jobs that had not ended when the drain was given up; with tickets or clients that were left, at least one."""
    other: int
    """What cannot be true, and is none of these: two jobs for one key, tokens that fall, a refusal that nobody deserved …"""
    accepted: int
    succeeded: int
    dead: int
    cancelled: int
    excused: int
    """Jobs with the guarantee at-least-once that were in a Redis when it lost its memory."""
    late_writes_refused: int
    accepted_per_second: float
    ended_per_second: float
    drained_seconds: float
    faults: int
    faults_by_act: dict[str, int]
    history_lines: int
    """Of what the processes wrote down."""
    found_in_history: dict[str, int]
    """How much of it is wrong, by checker; it counts among the ``other``."""
    happened: dict[str, int]
    never_happened: list[str]


@dataclass(frozen=True, slots=True)
class Reckoned:
    """Each list says what is wrong, one line for each job."""

    lost: Sequence[str]
    doubled: Sequence[str]
    stuck: Sequence[str]
    other: Sequence[str]
    """What cannot be true, and is neither lost nor doubled."""
    excused: Sequence[str]
    states: Mapping[str, int]

    @property
    def wrong(self) -> Sequence[str]:
        return [*self.lost, *self.doubled, *self.stuck, *self.other]


def reckon(found: Found) -> Reckoned:
    """Compare everything with everything."""
    excused = [promise.key for promise in found.promises if _may_be_lost_with_redis(promise, found)]
    states = Counter(str(_state(promise, found)) for promise in found.promises if promise.key not in set(excused))
    return Reckoned(
        lost=[*_lost(found, set(excused))],
        doubled=[*_doubled(found)],
        stuck=[*_stuck(found)],
        other=[*found.contradictions, *_told_wrong(found)],
        excused=excused,
        states=states,
    )


def _state(promise: Promise, found: Found) -> State | None:
    row = found.rows.get(promise.job_id)
    if row is not None:
        return row.state
    return State.SUCCEEDED if found.carried_runs[promise.key] else None


def _lost(found: Found, excused: Collection[str]) -> Iterator[str]:
    for promise in found.promises:
        state = _state(promise, found)
        if state is None:
            if promise.key not in excused:
                yield f"{_named(promise)} was accepted and is nowhere"
        elif state.terminal:
            if state not in _allowed(promise):
                error = found.rows[promise.job_id].error
                yield f"{_named(promise)} is {state}, and it should be {' or '.join(sorted(_allowed(promise)))}: {error}"
            elif state is State.SUCCEEDED and _runs(promise, found) == 0:
                yield f"{_named(promise)} succeeded without its effect"
    expected = Counter(
        shared_counter(promise.key)
        for promise in found.promises
        if promise.kind is not Kind.CARRY and _state(promise, found) is State.SUCCEEDED
    )
    # Jobs that were accepted and whose client was not told count too.
    keys = {promise.key for promise in found.promises}
    untold = (key for key in found.counters if key not in keys and not is_shared(key))
    expected += Counter(shared_counter(key) for key in untold)
    for shared, count in expected.items():
        there = found.counters.get(shared, {}).get("runs", 0)
        if there < count:
            yield f"{shared} is {there}, and {count} jobs added to it"


def _allowed(promise: Promise) -> Collection[State]:
    match promise.kind:
        case Kind.PILL:
            return {State.DEAD}
        case Kind.DOOMED:
            return {
                Asked.NOT: {State.DEAD},
                Asked.PERHAPS: {State.DEAD, State.SUCCEEDED},
                Asked.DONE: {State.SUCCEEDED},
            }[promise.redrive]
    return {
        Asked.NOT: {State.SUCCEEDED},
        Asked.PERHAPS: {State.SUCCEEDED, State.CANCELLED},
        Asked.DONE: {State.CANCELLED},
    }[promise.cancel]


def _doubled(found: Found) -> Iterator[str]:
    promises = {promise.key: promise for promise in found.promises}
    counted: Counter[str] = Counter()
    for key, item in found.counters.items():
        if is_shared(key):
            continue
        runs = item.get("runs", 0)
        counted[shared_counter(key)] += 1
        promise = promises.get(key)
        if runs > 1:
            yield f"{key} has its effect {runs} times"
        elif promise is not None and (row := found.rows.get(promise.job_id)) is not None and row.state is not State.SUCCEEDED:
            yield f"{_named(promise)} is {row.state} and has its effect all the same"
    for shared, count in counted.items():
        if (there := found.counters.get(shared, {}).get("runs", 0)) > count:
            yield f"{shared} is {there}, and only {count} jobs added to it"


def _stuck(found: Found) -> Iterator[str]:
    for promise in found.promises:
        row = found.rows.get(promise.job_id)
        if row is not None and not row.state.terminal:
            yield f"{_named(promise)} has not ended: it is {row.state}, token {row.token}, due {row.due_id is not None}"
    if found.tickets_left:
        yield "tickets are left in a queue"
    if found.clients_left:
        yield f"{found.clients_left} clients have no answer"


def _told_wrong(found: Found) -> Iterator[str]:
    for job_id, times in found.told_succeeded.items():
        if times > 1:
            yield f"{job_id} was said to have succeeded {times} times"
    for promise in found.promises:
        row, wrote = found.rows.get(promise.job_id), found.last.get(promise.key)
        if promise.seen is not None and row is not None and row.state is not promise.seen:
            yield f"{_named(promise)} was {promise.seen}, and is {row.state}"
        if row is not None and (tokens := [*(past.token for past in row.history), row.token]) != sorted(tokens):
            yield f"{_named(promise)} has had the tokens {tokens}"
        if row is not None and row.state is State.SUCCEEDED and wrote is not None and wrote.get("token") != row.token:
            yield f"{_named(promise)} succeeded with token {row.token}, and token {wrote.get('token')} wrote last"


def _may_be_lost_with_redis(promise: Promise, found: Found) -> bool:
    if promise.kind is not Kind.CARRY or promise.queue not in found.redis_queues or _state(promise, found) is not None:
        return False
    losses = sorted(found.redis_losses)
    place = bisect.bisect_left(losses, promise.accepted_at)
    return place < len(losses) and losses[place] - promise.accepted_at < EXCUSED_SECONDS


def _runs(promise: Promise, found: Found) -> int:
    if promise.kind is Kind.CARRY:
        return found.carried_runs[promise.key]
    return found.counters.get(promise.key, {}).get("runs", 0)


def _named(promise: Promise) -> str:
    return f"{promise.kind} {promise.key} ({promise.job_id}, queue {promise.queue})"
