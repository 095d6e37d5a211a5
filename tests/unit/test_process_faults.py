"""Faults that end or stop a real process, once among all that share a marker."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from ringfence.change import Change, all_of
from ringfence.errors import Unavailable
from ringfence.job import State
from ringfence.memory.queue import MemoryQueue
from ringfence.testing.faults import Crash, Faulty, process_faults
from ringfence.wire import Ticket

PROGRAM = """
import sys
from ringfence.memory.queue import MemoryQueue
from ringfence.testing.faults import process_faults
from ringfence.wire import Ticket

queue = process_faults(sys.argv[1])("queue:default", MemoryQueue("default"))
print("leased", len(queue.lease(1, 30)), flush=True)
queue.push([Ticket(ticket_id="t", job_id="chosen", tenant="acme")])
print("pushed", flush=True)
"""


def ticket(job_id: str) -> Ticket:
    return Ticket(ticket_id="t", job_id=job_id, tenant="acme")


def start(plan: dict[str, Any]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, json.dumps(plan)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)},
    )


def test_a_process_kills_itself_and_says_so_first(tmp_path: Path) -> None:
    marker = tmp_path / "killed"
    process = start({"queue.push": {"do": "kill", "when": "before", "only_job": "chosen", "marker": str(marker)}})
    out, _ = process.communicate(timeout=30)
    assert process.returncode == -signal.SIGKILL
    assert out == "leased 0\n"
    assert json.loads(marker.read_text()) == {"pid": process.pid, "fault": "before queue.push", "do": "kill"}


def test_a_fault_strikes_once_among_all_processes(tmp_path: Path) -> None:
    plan = {"queue.push": {"do": "kill", "marker": str(tmp_path / "killed")}}
    first, second = start(plan), start(plan)
    outcomes = sorted((process.communicate(timeout=30)[0], process.returncode) for process in (first, second))
    assert outcomes == [("leased 0\n", -signal.SIGKILL), ("leased 0\npushed\n", 0)]
    assert [path.name for path in tmp_path.iterdir()] == ["killed"]


def test_a_stopped_process_goes_on_when_it_is_told_to(tmp_path: Path) -> None:
    process = start({"queue:default.push": {"do": "stop", "when": "after", "marker": str(tmp_path / "stopped")}})
    try:
        _, status = os.waitpid(process.pid, os.WUNTRACED)
        assert os.WIFSTOPPED(status)
        assert (tmp_path / "stopped").exists()
    finally:
        os.kill(process.pid, signal.SIGCONT)
    out, _ = process.communicate(timeout=30)
    assert (out, process.returncode) == ("leased 0\npushed\n", 0)


@pytest.mark.parametrize(("do", "error"), [("crash", Crash), ("unavailable", Unavailable)])
def test_faults_that_are_raised(tmp_path: Path, do: str, error: type[BaseException]) -> None:
    queue = MemoryQueue("default")
    plan = json.dumps({"queue.push": {"do": do, "when": "after", "call": 2, "marker": str(tmp_path / "marker")}})
    faulty = process_faults(plan)("queue:default", queue)
    faulty.push([ticket("a")])
    with pytest.raises(error):
        faulty.push([ticket("b")])
    assert len(queue.bodies()) == 2
    faulty.push([ticket("c")])


def test_a_fault_may_strike_several_calls_in_a_row(tmp_path: Path) -> None:
    plan = {"queue.depth": {"do": "unavailable", "call": 2, "times": 2, "marker": str(tmp_path / "marker")}}
    faulty = process_faults(plan)("queue:default", MemoryQueue("default"))
    struck = []
    for number in range(1, 6):
        try:
            faulty.depth()
        except Unavailable:
            struck.append(number)
    assert struck == [2, 3]


def test_a_fault_that_goes_on_for_ever_does_so_in_one_process_only(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    faulty = process_faults({"queue.depth": {"do": "unavailable", "times": None, "marker": str(marker)}})(
        "queue:default", MemoryQueue("default")
    )
    for _ in range(3):
        with pytest.raises(Unavailable):
            faulty.depth()
    marker.write_text('{"pid": 1}')
    faulty.depth()


def test_a_plan_in_a_file_is_looked_at_again_before_each_call(tmp_path: Path) -> None:
    file = tmp_path / "plan.json"
    file.write_text("{}")
    faulty = process_faults(f"@{file}")("queue:default", MemoryQueue("default"))
    assert faulty.name == "default"
    faulty.depth()
    file.write_text(json.dumps({"queue.depth": {"do": "unavailable", "marker": str(tmp_path / "marker")}}))
    with pytest.raises(Unavailable):
        faulty.depth()
    faulty.depth()
    file.write_text(json.dumps({"queue.depth": {"do": "unavailable", "marker": str(tmp_path / "another")}}))
    with pytest.raises(Unavailable):
        faulty.depth()


def test_only_the_named_job_counts(tmp_path: Path) -> None:
    plan = {"queue.push": {"do": "unavailable", "only_job": "chosen", "marker": str(tmp_path / "marker")}}
    faulty = process_faults(plan)("queue:default", MemoryQueue("default"))
    faulty.push([ticket("other")])
    with pytest.raises(Unavailable):
        faulty.push([ticket("other"), ticket("chosen")])


class FakeLedger:
    def write(self, change: Change, effects: object = ()) -> str:
        return f"{change.job_id} written"


def test_only_the_named_state_counts(tmp_path: Path) -> None:
    plan = {"ledger.write": {"do": "unavailable", "only_state": "succeeded", "marker": str(tmp_path / "marker")}}
    ledger = process_faults(plan)("ledger", FakeLedger())

    def change(state: State) -> Change:
        return Change(job_id="j", write_id="w", condition=all_of(), set={"state": state})

    assert ledger.write(change(State.RUNNING)) == "j written"
    with pytest.raises(Unavailable):
        ledger.write(change(State.SUCCEEDED))


def test_ports_that_the_plan_does_not_name_are_left_as_they_are() -> None:
    queue = MemoryQueue("default")
    wrap = process_faults(
        {"ledger.write": {"do": "kill", "marker": "unused"}, "queue:priority.push": {"do": "kill", "marker": "x"}}
    )
    assert wrap("queue:default", queue) is queue
    assert isinstance(wrap("queue:priority", queue), Faulty)


@pytest.mark.parametrize(
    "plan",
    [
        {"ledger.write": {"do": "explode", "marker": "m"}},
        {"ledger.write": {"do": "kill"}},
        {"ledger.write": {"do": "kill", "marker": "m", "onlyjob": "x"}},
        {"ledger": {"do": "kill", "marker": "m"}},
    ],
)
def test_a_plan_that_would_do_nothing_is_refused(plan: dict[str, Any]) -> None:
    with pytest.raises((msgspec.ValidationError, ValueError)):
        process_faults(plan)


def test_a_plan_for_a_method_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ValueError, match="pusch"):
        process_faults({"queue.pusch": {"do": "kill", "marker": "m"}})("queue:default", MemoryQueue("default"))
