"""What must hold of a recorded history: one checker for each invariant, each telling what is wrong as lines of text.

Those of them that need no more than the versions of the rows, and who wrote them, are the simulator's.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

from tests.simulator.checkers import attempts_are_bounded, terminal_absorbs, tokens_rise
from tests.simulator.history import Entry, History, Landed
from tests.simulator.worker_checkers import ended_attempts_write_nothing, hand_overs_cost_nothing

from ringfence.change import Change, all_of
from ringfence.job import Job, State

from .history import Call, Process, Recorded, Told, Write

LAST_RESORT = "queue:last-resort"

Checker = Callable[[Recorded], Iterator[str]]


# --- the ledger's word against its callers' --------------------------------------------------------------------------


def every_version_was_asked_for(recorded: Recorded) -> Iterator[str]:
    """The versions of a row have no gap, and each is a write that somebody has asked for: landed once, or, if that changes
    nothing the second time, as often as it was sent."""
    for job_id, rows in recorded.whole.items():
        there = [row.version for row in rows]
        if there != list(range(1, len(rows) + 1)):
            yield f"{job_id} has the versions {there}"
        for write_id, times in Counter(row.write_id for row in rows).items():
            writes = recorded.by_write_id.get(write_id, ())
            if times > 1 and not (
                all(map(_may_land_again, writes)) and times <= sum(write.call.sent_at_most for write in writes)
            ):
                yield f"{job_id}: the write {write_id} landed {times} times"
        for row in rows:
            if row.write_id not in recorded.by_write_id:
                yield f"{job_id}: nobody has asked for version {row.version}, {row.state} with token {row.token}"


def _may_land_again(write: Write) -> bool:
    """A heartbeat or a checkpoint whose answer was lost meets a row of which everything that it relies on still holds."""
    return "state" not in write.told.get("set", {"state"}) and not write.told["add"]


def every_row_ends_as_its_trail(recorded: Recorded) -> Iterator[str]:
    """No version came after the last that is known of."""
    for job_id, row in recorded.rows.items():
        last = recorded.trail.versions[job_id][-1].version if job_id in recorded.trail.versions else 0
        if last != row.version:
            yield f"{job_id} is at version {row.version}, and its trail ends at {last}"


def nothing_refused_landed(recorded: Recorded) -> Iterator[str]:
    """No write is among the versions whose every caller was refused."""
    for job_id, rows in recorded.whole.items():
        for row in rows:
            writes = recorded.by_write_id.get(row.write_id, ())
            if writes and not any(write.may_have_landed for write in writes):
                yield f"{job_id}: version {row.version} was refused to {writes[0].call.process}, and is there"


def nothing_confirmed_is_missing(recorded: Recorded) -> Iterator[str]:
    """Each write of which a caller heard that it is written is among the versions."""
    for write_id, writes in recorded.by_write_id.items():
        for write in writes:
            rows = recorded.whole.get(write.job_id)
            if write.outcome == "ok" and rows is not None and all(row.write_id != write_id for row in rows):
                yield f"{write.job_id}: {write.call.process} heard that {write_id} is written, and it is not there"


def what_was_heard_was_so(recorded: Recorded) -> Iterator[str]:
    """The row that a call wrote or met is the one that the store had at that version."""
    for write in recorded.writes:
        rows, heard = recorded.whole.get(write.job_id), write.row
        if rows is None or heard is None or write.call.method == "write_effects":
            continue
        stored = [(row.write_id, row.token, row.state) for row in rows if row.version == heard["version"]]
        if stored != [(heard["write"], heard["token"], heard["state"])]:
            yield f"{write.job_id}: {write.call.process} heard {heard}, and there was {stored}"


# --- effects ---------------------------------------------------------------------------------------------------------


def effects_land_once(recorded: Recorded) -> Iterator[str]:
    """What a job adds to an item has landed once, as far as its writes tell that landed for certain, and as the store counts
    for an item to which no other job adds."""
    landed: dict[tuple[str, str], set[str]] = defaultdict(set)
    jobs: dict[str, set[str]] = defaultdict(set)
    for write in recorded.writes:
        for effect in write.effects:
            if effect.startswith("add "):
                jobs[effect].add(write.job_id)
                if _has_landed(write, recorded):
                    landed[write.job_id, effect].add(_identity(write))
    for (job_id, effect), writes in landed.items():
        if len(writes) > 1:
            yield f"{job_id}: {effect} has landed {len(writes)} times"
    for effect, times in recorded.trail.landings.items():
        if effect not in jobs:
            yield f"nobody has asked for {effect}"
        elif len(jobs[effect]) == 1 and times > 1:
            yield f"{jobs[effect].pop()}: {effect} was written {times} times"


def _has_landed(write: Write, recorded: Recorded) -> bool:
    """For certain."""
    if write.call.method == "write_effects":
        return write.outcome == "ok"
    return any(row.write_id == write.write_id for row in recorded.trail.versions.get(write.job_id, ()))


def _identity(write: Write) -> str:
    """The same for a write that was sent again."""
    return str(write.told.get("request")) if write.call.method == "write_effects" else write.write_id


# --- first downstream, then upstream: by the lines of each process ----------------------------------------------------


def accepted_only_when_appended(recorded: Recorded) -> Iterator[str]:
    """Whoever tells a client that a job is accepted has heard, in the same request, that the log has it; or, of one that was
    asked for again, that it has gone further already."""
    for process in recorded.processes:
        for request in process.of("gateway.submit"):
            appended, moved = set[str](), set[str]()
            for call in process.within(request):
                if call.method == "append":
                    sequences = call.heard.get("sequences", ())
                    appended.update(
                        job for jobs, number in zip(call.told["records"], sequences, strict=False) if number for job in jobs
                    )
                moved.update(row["job"] for row in _rows_heard(call) if _has_moved(row))
            for job_id in request.heard.get("accepted", ()):
                if job_id not in appended:
                    yield f"{job_id}: {process.name} accepted it, and the log has not confirmed it"
            for job_id in request.heard.get("repeated", ()):
                if job_id not in appended | moved:
                    yield f"{job_id}: {process.name} accepted it again, and the log has not confirmed it"


def the_checkpoint_passes_only_what_was_sent(recorded: Recorded) -> Iterator[str]:
    """Each job of a record behind which a relay goes on was pushed, parked or has moved on, or is set aside, as far as that
    relay has heard."""
    for process in recorded.processes:
        pushed_before = set[str]()
        """Also of jobs without rows: they are not pushed again with each reading."""
        for reading in process.of("relay.handle"):
            sent, set_aside = set(pushed_before), set[str]()
            for call in process.within(reading):
                pushed_before.update(_taken(call))
                sent.update(_taken(call))
                sent.update(row["job"] for row in _rows_heard(call) if _has_moved(row))
                if call.method == "join_line" and call.outcome == "ok":
                    sent.update(call.told["jobs"])
                elif call.what == "quarantine.put" and call.outcome == "ok":
                    set_aside.update((call.told["position"], str(call.told["job"])))
            for sequence, jobs in _passed(reading):
                for job_id in [None] if jobs is None else jobs:
                    if not {sequence, str(job_id)} & set_aside and job_id not in sent:
                        yield f"{job_id}: the checkpoint of {process.name} passed it at {sequence} before it was sent"


def _passed(reading: Call) -> Iterator[tuple[str, list[str] | None]]:
    if reading.outcome != "ok":
        return
    for sequence, jobs in reading.told["records"]:
        if sequence == reading.heard["unsent"]:
            return
        yield sequence, jobs


def acknowledged_only_when_decided(recorded: Recorded) -> Iterator[str]:
    """Whoever removes a message has heard, since it was leased, that its job has ended, that timers owe it a ticket, or that
    another is on the way; or has set it aside. One that rode in the message has run, or has a row by now."""
    for process in recorded.processes:
        heard = _Heard(process)
        for call in process.of("acknowledge"):
            for receipt, message, job_id, rides in call.told["leases"]:
                since = heard.leased_at.get(receipt)
                if since is None:
                    continue  # before the history began
                reasons = [*heard.set_aside[message], *heard.decided[job_id]]
                if rides:
                    reasons += heard.has_run_or_row[job_id]
                if rides or call.what.startswith(LAST_RESORT):
                    reasons += heard.another_ticket[job_id]
                if call.what.startswith(LAST_RESORT):
                    reasons += heard.is_nowhere[job_id]
                if not any(since < at < call.began for at in reasons):
                    yield f"{job_id or message}: {process.name} acknowledged it, and had not heard that it is decided"


class _Heard:
    """What a process had heard, and at which of its lines."""

    def __init__(self, process: Process) -> None:
        self.leased_at: dict[str, int] = {}
        """By the mark of a receipt."""
        self.decided: dict[str, list[int]] = defaultdict(list)
        self.set_aside: dict[str, list[int]] = defaultdict(list)
        self.has_run_or_row: dict[str, list[int]] = defaultdict(list)
        self.another_ticket: dict[str, list[int]] = defaultdict(list)
        self.is_nowhere: dict[str, list[int]] = defaultdict(list)
        for call in process.calls:
            if call.ended is not None:
                self._hear(call, call.ended)

    def _hear(self, call: Call, at: int) -> None:
        for row in _rows_heard(call):
            if State(row["state"]).terminal or row["due"]:
                self.decided[row["job"]].append(at)
        for job_id in _taken(call):
            self.another_ticket[job_id].append(at)
        if call.outcome == "unknown":
            return
        match call.method:
            case "lease":
                self.leased_at.update({receipt: at for receipt, *_ in call.heard.get("leases", ())})
            case "register":
                self.has_run_or_row[call.told["writes"][0]["job"]].append(at)
            case "ran" if call.heard["outcome"] == "Done":
                self.has_run_or_row[call.told["job"]].append(at)
            case "put":
                self.set_aside[call.told["position"]].append(at)
            case "peek":
                there = {row["job"] for row in call.heard["rows"]}
                for job_id in set(call.told["jobs"]) - there:
                    self.is_nowhere[job_id].append(at)


def _rows_heard(call: Call) -> Iterator[Told]:
    """The rows that a call to the ledger has told of, written by it or met."""
    if call.what.startswith("ledger.") and call.ended is not None:
        yield from call.heard.get("rows", ())
        yield from (outcome["row"] for outcome in call.heard.get("outcomes", ()) if outcome.get("row"))


def _has_moved(row: Told) -> bool:
    return bool(row["due"] or row["token"] or row["state"] != State.QUEUED)


def _taken(call: Call) -> Iterator[str]:
    """The jobs whose tickets a push has left in a queue."""
    if call.method == "push" and call.outcome == "ok":
        untaken = set(call.heard["untaken"])
        yield from (job_id for ticket_id, job_id, _ in call.told["tickets"] if ticket_id not in untaken)


# --- the simulator's -------------------------------------------------------------------------------------------------


class _AsSimulated:
    """A recorded history as the simulator's checkers look at one: the versions of each row in the order of the store."""

    def __init__(self, recorded: Recorded) -> None:
        self.history, self.ledger, self._rows = History(finished=True), self, recorded.whole
        for rows in recorded.whole.values():
            before: Job | None = None
            for after in rows:
                entry = _entry(recorded.by_write_id.get(after.write_id, ()))
                self.history.landed.append(Landed(len(self.history.entries), entry, before, after))
                self.history.entries.append(entry)
                before = after
        for call in recorded.calls("ran"):
            if call.told["job"] in recorded.whole:
                started = (call.told["job"], call.told.get("token", 0), None)  # which attempt it is, nobody asks of these
                self.history.entries.append(Entry(0.0, call.process, "started", started))

    def all_jobs(self) -> list[Job]:
        return [rows[-1] for rows in self._rows.values()]


def _entry(writes: Any) -> Entry:
    if not writes:
        return Entry(0.0, "nobody", "ledger.write_many", (None,))
    write: Write = next((each for each in writes if each.may_have_landed), writes[0])
    return Entry(0.0, write.call.process, write.call.what, (_change(write.told),))


def _change(told: Told) -> Change | None:
    """As much of it as was written down; None for the put of a new row."""
    if "set" not in told:
        return None
    seen = None if told["seen"] is None else _job(told["seen"])
    return Change(job_id=told["job"], write_id=told["write"], condition=all_of(), set=told["set"], add=told["add"], seen=seen)


def _job(row: Told) -> Job:
    return Job(
        job_id=row["job"],
        tenant="",
        queue="",
        name="",
        payload=None,
        payload_sha256="",
        state=State(row["state"]),
        token=row["token"],
        attempt_id=row["attempt"],
        write_id=row["write"],
        version=row["version"],
        worker=row["worker"],
    )


SIMULATORS = (tokens_rise, terminal_absorbs, ended_attempts_write_nothing, hand_overs_cost_nothing, attempts_are_bounded)

CHECKERS: tuple[Checker, ...] = (
    every_version_was_asked_for,
    every_row_ends_as_its_trail,
    nothing_refused_landed,
    nothing_confirmed_is_missing,
    what_was_heard_was_so,
    effects_land_once,
    accepted_only_when_appended,
    the_checkpoint_passes_only_what_was_sent,
    acknowledged_only_when_decided,
)


def faults_of(recorded: Recorded) -> Mapping[str, list[str]]:
    """What each checker found, by its name; empty if everything holds."""
    world = cast("Any", _AsSimulated(recorded))
    found = {checker.__name__: list(checker(recorded)) for checker in CHECKERS}
    found |= {checker.__name__: list(checker(world)) for checker in SIMULATORS}
    return {name: lines for name, lines in found.items() if lines}


HOPS = frozenset({"submit", "register", "append", "handle", "push", "lease", "write", "ran", "acknowledge"})
"""What every history of a whole system tells of."""


def silent_hops(recorded: Recorded) -> list[str]:
    """Those of which it tells nothing: of them no checker has found anything for that reason alone."""
    return sorted(HOPS - {call.method for process in recorded.processes for call in process.calls})
