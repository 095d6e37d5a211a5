"""The checkers of a campaign's history find what is wrong in one, and nothing else.

The histories are what the campaign's own recorder writes down of the real core, each hop a process of its own before stores in
memory, with the campaign's bugs planted in it or not.
"""

from __future__ import annotations

import copy
import dataclasses
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from tests.simulator.wire import Rows

from ringfence import App, Context, inhand, transitions
from ringfence.acceptance import Accepted, Submission
from ringfence.attempt import run_code
from ringfence.change import Change, Refused, Written, all_of, apply
from ringfence.errors import Stopping
from ringfence.gateway import Gateway
from ringfence.job import Guarantee, Job, State
from ringfence.pace import Pacer
from ringfence.ports import Lease, LogEntry, Services
from ringfence.relay import Relay
from ringfence.testing.port_faults import Crash, Fault, Faulty, crash, lie, reply_lost, unavailable
from ringfence.testing.system import MemorySystem, NoHeartbeat
from ringfence.worker import Worker

from .history import Recorded, marks_in, read
from .history_checkers import CHECKERS, SIMULATORS, faults_of, silent_hops
from .inside.planted import PLANTS
from .inside.recorder import Recorder, added_to
from .inside.traces import COUNTERS
from .trail import Trail

LEASE_SECONDS = 10.0

Script = Sequence[Fault]


class Hop:
    """One process: ports of its own over the stores that all share, each call of which it writes down."""

    def __init__(self, hops: Hops, name: str, **faults: Script) -> None:
        self.hops, self.name, system = hops, name, hops.system
        self.here = Recorder(hops.folder, lambda: name)
        self.ledger, self.log, self.quarantine, queue = (
            self.here.wrap(port, Faulty(copy.copy(store), faults.get(port.partition(":")[0], ())))
            for port, store in (
                ("ledger", system.memory_ledger),
                ("log", system.memory_log),
                ("quarantine", system.quarantine),
                ("queue:default", system.memory_queues["default"]),
            )
        )
        self.queues = {"default": queue}
        self.services: Services = dataclasses.replace(system.services, ledger=self.ledger, quarantine=self.quarantine)

    def submit(self, **more: Any) -> Job:
        gateway = Gateway(self.services, self.log, self.queues)
        (answer,) = self.here.accepts(gateway.submit)("default", [Submission(**{"name": "count", "payload": "{}", **more})])
        assert isinstance(answer, Accepted)
        return answer.job

    def relay(self) -> str | None:
        system = self.hops.system
        pacer = Pacer(system.queue_settings, {"default": system.limiter}, self.queues, system.clock, system.telemetry)
        relay = Relay(self.services, self.queues, pacer)
        records = system.memory_log.read(after=self.hops.relayed)
        unsent: str | None = self.here.relays(relay.handle)(records)
        if unsent is None:
            self.hops.relayed = records[-1].sequence
        return unsent

    def work(self) -> None:
        """One poll of a `ringfence worker`: lease, handle, acknowledge."""
        queue = self.queues["default"]
        queue.acknowledge(self._handling(queue.lease(10, LEASE_SECONDS)))

    def work_as_function(self) -> None:
        """One invocation: the event source leases and acknowledges."""
        queue = self.hops.system.memory_queues["default"]
        handle = self.here.works(lambda _queue, leases: self._handling(leases))
        queue.acknowledge(handle(queue, queue.lease(10, LEASE_SECONDS)))

    def _handling(self, leases: Sequence[Lease]) -> list[Lease]:
        worker = Worker(
            self.hops.app, self.services, name=self.name, threads=1, lease_seconds=LEASE_SECONDS, heartbeat=NoHeartbeat
        )
        with patch.object(inhand, "run_code", self.here.runs(run_code)):
            return worker.handle(self.queues["default"], leases)


class Hops:
    """All of them. ``meanwhile`` is what happens while the next job runs."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.app = folder, App()
        self.meanwhile: list[Callable[[], None]] = []
        self.system = MemorySystem(self.app, tables={COUNTERS: ["package"]}, lease_seconds=LEASE_SECONDS)
        self.relayed: str | None = None
        self.landed: list[tuple[Job | None, Job]] = []
        self.system.memory_ledger._rows = Rows(self.landed)
        self.app.job("count")(self.count)
        self.app.job("plain")(lambda ctx: None)
        self.app.job("saves")(lambda ctx: ctx.checkpoint(1))
        self.app.job("fragile")(self.fragile)

    def count(self, ctx: Context) -> None:
        if self.meanwhile:
            self.meanwhile.pop()()
        ctx.effects.update(COUNTERS, {"package": ctx.job_id}, add={"runs": 1})

    def fragile(self, ctx: Context) -> None:
        raise RuntimeError("not today")

    def process(self, name: str, **faults: Script) -> Hop:
        return Hop(self, name, **faults)

    def submitted(self, **more: Any) -> Job:
        """A job that has a ticket."""
        job = self.process("gateway").submit(**more)
        self.process("relay").relay()
        return job

    def pass_a_lease(self) -> None:
        self.system.clock.sleep(LEASE_SECONDS + 5)

    def taken_over(self, by: str = "worker-b") -> Callable[[], None]:
        """The lease ends, and another worker gets the message."""

        def take_over() -> None:
            self.pass_a_lease()
            self.process(by).work()

        return take_over

    def lands_and_is_refused(self, before: Callable[[], object] = lambda: None) -> Fault:
        """A commit whose caller is told otherwise."""

        def act(call: Any) -> Refused:
            before()
            self.system.memory_ledger.write(*call.args, **call.kwargs)
            return Refused(None)

        return Fault(method="write", act=act, when="instead", where=lambda change, *_, **__: change.leads_to is State.SUCCEEDED)

    def confirms(self) -> Fault:
        """Of a write that is not made it is said that it is written."""
        return Fault(method="write", act=lambda call: Written(apply(call.args[0], _only(self))), when="instead")

    def recorded(self) -> Recorded:
        versions: dict[str, list[Job]] = defaultdict(list)
        for _, after in self.landed:
            versions[after.job_id].append(after)
        items = self.system.items(COUNTERS)
        landings = {added_to(COUNTERS, {"package": item["package"]}): int(item["runs"]) for item in items}
        rows = {job.job_id: job for job in self.system.memory_ledger.all_jobs()}
        return read(self.folder, {}, Trail(versions, landings), rows)


@pytest.fixture
def hops(tmp_path: Path) -> Hops:
    return Hops(tmp_path)


# --- nothing is wrong ------------------------------------------------------------------------------------------------


def test_a_job_from_its_client_to_its_end(hops: Hops) -> None:
    hops.submitted()
    hops.process("worker-a").work()
    recorded = hops.recorded()
    assert faults_of(recorded) == {}
    assert silent_hops(recorded) == []
    assert [call.what for process in recorded.processes for call in process.calls] == [
        *("gateway.submit", "ledger.register", "log.append"),
        *("relay.handle", "queue:default.push"),
        *("queue:default.lease", "ledger.write", "ran", "ledger.write", "queue:default.acknowledge"),
    ]
    (rows,) = recorded.trail.versions.values()
    assert [row.state for row in rows] == [State.QUEUED, State.RUNNING, State.SUCCEEDED]


def test_a_job_in_a_function_whose_event_source_acknowledges(hops: Hops) -> None:
    hops.submitted()
    hops.process("function-a").work_as_function()
    recorded = hops.recorded()
    assert faults_of(recorded) == {}
    assert [call.outcome for call in recorded.calls("acknowledge")] == ["unknown"], "who asked for it does not hear of it"


def test_a_late_owner_that_is_refused(hops: Hops) -> None:
    hops.submitted()
    hops.meanwhile.append(hops.taken_over())
    hops.process("worker-a").work()
    recorded = hops.recorded()
    assert faults_of(recorded) == {}
    assert "refused" in {write.outcome for write in recorded.writes}


def test_answers_that_are_lost(hops: Hops) -> None:
    hops.process("gateway", ledger=[reply_lost("register")]).submit()
    hops.process("relay", queue=[reply_lost("push")]).relay()
    hops.process("relay").relay()
    hops.process("worker-a", ledger=[reply_lost("write", call=1), reply_lost("write", call=3)]).work()
    hops.pass_a_lease()
    hops.process("worker-b").work()
    recorded = hops.recorded()
    assert faults_of(recorded) == {}
    assert {"ok", "unknown"} <= {write.outcome for write in recorded.writes}


def test_a_checkpoint_that_is_sent_again_and_lands_again(hops: Hops) -> None:
    hops.submitted(name="saves")
    hops.process("worker-a", ledger=[reply_lost("write", call=2)]).work()
    recorded = hops.recorded()
    assert faults_of(recorded) == {}
    (rows,) = recorded.trail.versions.values()
    assert [row.checkpoint for row in rows] == [None, None, "1", "1", None]


def test_a_process_that_dies_at_any_of_its_lines(hops: Hops) -> None:
    hops.submitted()
    with pytest.raises(Crash):
        hops.process("worker-a", ledger=[crash("write", when="after", call=2)]).work()
    hops.pass_a_lease()
    hops.process("worker-b").work()
    file = next(file for file in hops.folder.iterdir() if b"worker-a" in file.read_bytes())
    whole = file.read_bytes()
    commit = whole.index(b'"succeeded"')
    for end in (len(whole), whole.index(b"\n", commit) + 1):  # before that line its write had not been sent
        file.write_bytes(whole[:end] + b'{"n":1,"hea')
        recorded = hops.recorded()
        assert faults_of(recorded) == {}
        (commits,) = [writes for writes in recorded.by_write_id.values() if writes[0].effects]
        assert [write.outcome for write in commits] == ["unknown"]


def test_a_refusal_after_an_attempt_that_nobody_answered_may_have_landed(hops: Hops) -> None:
    hops.submitted()
    worker = hops.process("worker-a", ledger=[hops.lands_and_is_refused(lambda: worker.here.unanswered())])
    worker.work()
    hops.pass_a_lease()
    hops.process("worker-b").work()
    recorded = hops.recorded()
    assert faults_of(recorded) == {}
    assert [row.state for row in recorded.trail.versions[recorded.writes[0].job_id]][-1] is State.SUCCEEDED


def test_a_job_without_a_row_and_one_that_fails_until_it_has_one(hops: Hops) -> None:
    hops.submitted(guarantee=Guarantee.AT_LEAST_ONCE, name="plain")
    hops.submitted(guarantee=Guarantee.AT_LEAST_ONCE, name="fragile", max_attempts=2)
    for _ in range(3):
        hops.process("worker-a").work()
        hops.system.clock.sleep(400.0)
    recorded = hops.recorded()
    assert faults_of(recorded) == {}
    assert [row.state for (row,) in recorded.trail.versions.values()] == [State.DEAD]


def test_what_nobody_can_read_is_set_aside(hops: Hops) -> None:
    hops.system.memory_log.append([dataclasses.replace(_entry(), data=b"[1,2]")])
    hops.process("relay").relay()
    hops.system.memory_queues["default"].put("hello")
    hops.process("worker-a").work()
    assert faults_of(hops.recorded()) == {}
    assert len(hops.system.quarantine.items()) == 2


def test_a_relay_that_holds_its_place(hops: Hops) -> None:
    hops.process("gateway").submit()
    assert hops.process("relay", queue=[_takes_nothing()]).relay() is not None
    assert faults_of(hops.recorded()) == {}


def test_a_history_in_which_a_hop_is_silent(hops: Hops) -> None:
    hops.process("gateway").submit()
    assert silent_hops(hops.recorded()) == ["acknowledge", "handle", "lease", "push", "ran", "write"]


def test_what_was_before_a_history_began_is_not_in_it(hops: Hops) -> None:
    gateway = hops.process("gateway")
    gateway.submit()
    since, known = marks_in(hops.folder), set(hops.recorded().trail.versions)
    job = gateway.submit()
    whole = hops.recorded()
    trail = Trail({job_id: rows for job_id, rows in whole.trail.versions.items() if job_id not in known})
    later = read(hops.folder, since, trail, {job.job_id: whole.rows[job.job_id]})
    assert faults_of(later) == {}
    assert [write.job_id for write in later.writes] == [job.job_id]
    assert 0 < later.lines < whole.lines


# --- something is ----------------------------------------------------------------------------------------------------

Case = Callable[[Hops, pytest.MonkeyPatch], Recorded]
CASES: dict[str, tuple[Case, frozenset[str]]] = {}


def is_found_by(*checkers: str) -> Callable[[Case], Case]:
    """By each of these, and by no other."""

    def case(function: Case) -> Case:
        CASES[function.__name__] = function, frozenset(checkers)
        return function

    return case


@is_found_by("acknowledged_only_when_decided")
def acknowledged_first(hops: Hops, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    PLANTS["acknowledge-first"](monkeypatch.setattr)
    hops.submitted()
    hops.process("worker-a").work()
    return hops.recorded()


@is_found_by("acknowledged_only_when_decided")
def acknowledged_first_in_a_function(hops: Hops, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    PLANTS["acknowledge-first"](monkeypatch.setattr)
    hops.submitted()
    hops.process("function-a").work_as_function()
    return hops.recorded()


@is_found_by("acknowledged_only_when_decided")
def acknowledged_a_job_without_a_row_first(hops: Hops, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    PLANTS["acknowledge-first"](monkeypatch.setattr)
    hops.submitted(guarantee=Guarantee.AT_LEAST_ONCE, name="plain")
    hops.process("worker-a").work()
    return hops.recorded()


@is_found_by("acknowledged_only_when_decided")
def acknowledged_what_was_not_set_aside(hops: Hops, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    monkeypatch.setattr("ringfence.claim.set_aside_message", lambda *_: None)
    hops.system.memory_queues["default"].put("hello")
    hops.process("worker-a").work()
    return hops.recorded()


@is_found_by("ended_attempts_write_nothing", "terminal_absorbs", "effects_land_once")
def completed_by_id(hops: Hops, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    PLANTS["complete-by-id"](monkeypatch.setattr)
    hops.submitted()
    hops.meanwhile.append(hops.taken_over())
    hops.process("worker-a").work()
    return hops.recorded()


@is_found_by("effects_land_once")
def effect_and_commit_in_two_writes(hops: Hops, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    PLANTS["two-writes"](monkeypatch.setattr)
    hops.submitted()
    with pytest.raises(Crash):
        hops.process("worker-a", ledger=[crash("write", when="before", call=2)]).work()
    hops.pass_a_lease()
    hops.process("worker-b").work()
    return hops.recorded()


@is_found_by("effects_land_once")
def effect_in_a_write_of_its_own_by_one_who_dies_of_it(hops: Hops, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    PLANTS["two-writes"](monkeypatch.setattr)
    hops.submitted()
    with pytest.raises(Crash):
        hops.process("worker-a", ledger=[crash("write_effects", when="after")]).work()
    hops.pass_a_lease()
    hops.process("worker-b").work()
    return hops.recorded()


@is_found_by("effects_land_once")
def an_effect_of_nobodys(hops: Hops, _: pytest.MonkeyPatch) -> Recorded:
    hops.system.put(COUNTERS, {"package": "k", "runs": 1})
    return hops.recorded()


@is_found_by("the_checkpoint_passes_only_what_was_sent")
def checkpoint_past_push(hops: Hops, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    PLANTS["checkpoint-past-push"](monkeypatch.setattr)
    hops.process("gateway").submit()
    hops.process("relay", queue=[_takes_nothing()]).relay()
    return hops.recorded()


@is_found_by("the_checkpoint_passes_only_what_was_sent")
def checkpoint_past_what_was_not_set_aside(hops: Hops, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    monkeypatch.setattr("ringfence.relay.set_aside_record", lambda *_: None)
    hops.system.memory_log.append([dataclasses.replace(_entry(), data=b"[1,2]")])
    hops.process("relay").relay()
    return hops.recorded()


@is_found_by("accepted_only_when_appended")
def accepted_what_the_log_has_not_taken(hops: Hops, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    monkeypatch.setattr("ringfence.acceptance.Acceptance._withdraw", lambda _self, entry: Accepted(entry.job))
    hops.process("gateway", log=[lie("append", [None])]).submit()
    return hops.recorded()


@is_found_by("accepted_only_when_appended")
def accepted_again_what_the_log_has_not_taken(hops: Hops, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    with pytest.raises(Crash):
        hops.process("gateway", log=[crash("append", when="before")]).submit(idempotency_key="k")
    monkeypatch.setattr("ringfence.acceptance.State", type("States", (), {"QUEUED": None}))  # it takes any row for a later one
    hops.process("gateway").submit(idempotency_key="k")
    return hops.recorded()


@is_found_by("tokens_rise")
def token_reset_by_a_redrive(hops: Hops, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    redrive = transitions.redrive
    monkeypatch.setattr(transitions, "redrive", lambda *args, **more: _with(redrive(*args, **more), token=0))
    job = hops.submitted(name="fragile", max_attempts=1)
    hops.process("worker-a").work()
    gateway = hops.process("gateway")
    Gateway(gateway.services, gateway.log, gateway.queues).redrive("default", job.job_id)
    return hops.recorded()


@is_found_by("hand_overs_cost_nothing")
def checkpoint_lost_in_a_hand_over(hops: Hops, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    hand_over = transitions.hand_over
    monkeypatch.setattr(transitions, "hand_over", lambda *args, **more: _with(hand_over(*args, **more), checkpoint=None))
    hops.app.job("saves-and-stops")(lambda ctx: [ctx.checkpoint(1), _stop(ctx)])
    hops.submitted(name="saves-and-stops")
    hops.process("worker-a").work()
    return hops.recorded()


@is_found_by("attempts_are_bounded")
def more_attempts_than_there_are(hops: Hops, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    claim = transitions.claim_waiting
    add = {"token": 1, "attempts": 7}
    monkeypatch.setattr(transitions, "claim_waiting", lambda *args, **more: dataclasses.replace(claim(*args, **more), add=add))
    hops.submitted()
    hops.process("worker-a").work()
    return hops.recorded()


@is_found_by("nothing_refused_landed")
def refused_and_landed(hops: Hops, _: pytest.MonkeyPatch) -> Recorded:
    hops.submitted()
    hops.process("worker-a", ledger=[hops.lands_and_is_refused()]).work()
    return hops.recorded()


@is_found_by("nothing_confirmed_is_missing", "what_was_heard_was_so")
def confirmed_and_not_there(hops: Hops, _: pytest.MonkeyPatch) -> Recorded:
    hops.submitted()
    hops.process("timers", ledger=[hops.confirms()]).services.ledger.write(
        transitions.request_cancel(_only(hops), write_id="w")
    )
    return hops.recorded()


@is_found_by("what_was_heard_was_so")
def met_a_row_that_was_never_there(hops: Hops, _: pytest.MonkeyPatch) -> Recorded:
    hops.submitted()
    worker = hops.process("worker-a", ledger=[lie("write", Refused(dataclasses.replace(_only(hops), token=7)))])
    worker.work()
    return hops.recorded()


@is_found_by("every_version_was_asked_for")
def written_by_nobody(hops: Hops, _: pytest.MonkeyPatch) -> Recorded:
    hops.submitted()
    hops.system.memory_ledger.write(transitions.request_cancel(_only(hops), write_id="nobody's"))
    return hops.recorded()


@is_found_by("every_version_was_asked_for")
def landed_more_often_than_it_was_sent(hops: Hops, _: pytest.MonkeyPatch) -> Recorded:
    write = hops.system.memory_ledger.write
    again = Fault(method="write", act=lambda call: [write(*call.args), write(*call.args)][-1], when="instead", call=2)
    hops.submitted(name="saves")
    hops.process("worker-a", ledger=[again]).work()
    return hops.recorded()


@is_found_by("every_version_was_asked_for")
def a_claim_that_lands_twice(hops: Hops, monkeypatch: pytest.MonkeyPatch) -> Recorded:
    claim = transitions.claim_waiting
    monkeypatch.setattr(
        transitions, "claim_waiting", lambda *a, **more: dataclasses.replace(claim(*a, **more), condition=all_of())
    )
    hops.submitted()
    hops.process("worker-a", ledger=[reply_lost("write")]).work()
    return hops.recorded()


@is_found_by("every_version_was_asked_for")
def a_version_is_missing(hops: Hops, _: pytest.MonkeyPatch) -> Recorded:
    hops.submitted()
    hops.process("worker-a", ledger=[unavailable("write", call=1)]).work()
    job = _only(hops)
    hops.system.memory_ledger._rows[job.job_id] = dataclasses.replace(job, version=job.version + 1)
    del hops.landed[-2]
    return hops.recorded()


@is_found_by("every_row_ends_as_its_trail")
def a_version_after_the_last(hops: Hops, _: pytest.MonkeyPatch) -> Recorded:
    hops.submitted()
    recorded = hops.recorded()
    rows = {job_id: dataclasses.replace(row, version=row.version + 1) for job_id, row in recorded.rows.items()}
    return dataclasses.replace(recorded, rows=rows)


@pytest.mark.parametrize("name", CASES)
def test_it_finds(name: str, hops: Hops, monkeypatch: pytest.MonkeyPatch) -> None:
    case, checkers = CASES[name]
    assert faults_of(case(hops, monkeypatch)).keys() == checkers


def test_each_checker_has_something_to_find() -> None:
    found = frozenset[str]().union(*(checkers for _, checkers in CASES.values()))
    assert found == {checker.__name__ for checker in (*CHECKERS, *SIMULATORS)}


# --- pieces ----------------------------------------------------------------------------------------------------------


def _takes_nothing() -> Fault:
    return Fault(method="push", act=lambda call: list(call.args[0]), when="instead")


def _entry() -> LogEntry:
    return LogEntry(b"", "k")


def _only(hops: Hops) -> Job:
    (job,) = hops.system.memory_ledger.all_jobs()
    return job


def _with(change: Change, **values: Any) -> Change:
    return dataclasses.replace(change, set={**change.set, **values})


def _stop(ctx: Context) -> None:
    raise Stopping
