"""`ringfence reconcile`: what it prints and how it ends. What it does is in `test_reconcile`."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from click.testing import CliRunner, Result

from ringfence import App, Context
from ringfence.cli import reconcile as command
from ringfence.cli.deployment import runtime_of
from ringfence.cli.duration_option import DURATION
from ringfence.cli.main import main
from ringfence.ports import Telemetry
from ringfence.reconcile import AFTER_HOURS, EVERY_HOURS, Reconciler
from ringfence.settings import Settings
from ringfence.testing.faults import Fault, Faulty, unavailable
from ringfence.testing.system import MemorySystem


@dataclass
class Deployment:
    """In the place of a `Runtime`."""

    system: MemorySystem
    settings: Settings
    telemetry: Telemetry

    @property
    def reconciler(self) -> Reconciler:
        self.system.telemetry = self.telemetry  # type: ignore[assignment]
        self.system.build()
        return self.system.reconciler


Shell = Callable[..., Result]


def app() -> App:
    made = App()

    @made.job("noop")
    def noop(ctx: Context) -> None: ...

    return made


def system(queue: str = "default", jobs: int = 3, **ports: list[Fault]) -> MemorySystem:
    """One whose jobs have lost their tickets."""
    scripts = {name.replace("_", ":"): script for name, script in ports.items()}
    here = MemorySystem(app(), wrap=lambda name, port: Faulty(port, scripts[name]) if name in scripts else port)
    for _ in range(jobs):
        here.submit("noop", queue=queue)
    here.clock.sleep(2 * 3_600)
    return here


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Callable[[MemorySystem], Shell]:
    for name in ("RINGFENCE_QUEUES", "RINGFENCE_LEDGER_TABLE"):
        monkeypatch.delenv(name, raising=False)

    def of(here: MemorySystem) -> Shell:
        def made(table: str, endpoint_url: str | None, environment: Any) -> Deployment:
            return Deployment(here, runtime_of(table, endpoint_url, environment).settings, here.telemetry)

        monkeypatch.setattr(command, "runtime_of", made)

        def call(*arguments: str, queues: str | None = '{"default": "https://sqs/d", "priority": "https://sqs/p"}') -> Result:
            return CliRunner().invoke(main, ["reconcile", "--table", "T", *arguments], env={"RINGFENCE_QUEUES": queues})

        return call

    return of


def test_every_job_that_may_lack_a_ticket_gets_one_and_is_counted(shell: Callable[[MemorySystem], Shell]) -> None:
    here = system()
    result = shell(here)("--older-than", "1h")
    assert (result.exit_code, result.stdout) == (0, "default\t3\t3\t\n")
    assert result.stderr == "3 items looked at; 3 jobs may have lost their ticket; 3 have a new one.\n"
    assert len(here.memory_queues["default"].bodies()) == 3


def test_by_default_only_jobs_that_nothing_else_explains(shell: Callable[[MemorySystem], Shell]) -> None:
    here = system()
    assert DURATION.convert(command.OLDER_THAN, None, None) == AFTER_HOURS * 3_600
    assert shell(here)("--json").stdout == '{"examined":3,"dry_run":false,"queues":{}}\n'
    here.clock.sleep(24 * 3_600)
    (queues,) = [json.loads(shell(here)("--json").stdout)["queues"]]
    assert queues == {"default": {"jobs": 3, "renewed": 3, "fault": None}}


def test_a_dry_run_pushes_nothing_and_needs_no_queues(shell: Callable[[MemorySystem], Shell]) -> None:
    here = system()
    result = shell(here)("--older-than", "0s", "--dry-run", queues=None)
    assert (result.exit_code, result.stdout) == (0, "default\t3\t0\t\n")
    assert "3 jobs would get a new ticket" in result.stderr
    assert here.memory_queues["default"].bodies() == []


def test_one_queue_is_enough(shell: Callable[[MemorySystem], Shell]) -> None:
    here = system()
    assert shell(here)("--queue", "priority", "--older-than", "0s").stdout == ""
    assert shell(here)("--queue", "default", "--older-than", "0s").stdout == "default\t3\t3\t\n"


@pytest.mark.parametrize(
    ("arguments", "queues", "said"),
    [
        (["--queue", "gone"], '{"default": "https://sqs/d"}', "RINGFENCE_QUEUES names no gone; it has default"),
        ([], None, "RINGFENCE_QUEUES names none"),
        (["--older-than", "soon"], None, "not a duration"),
    ],
)
def test_wrong_usage_is_told(
    shell: Callable[[MemorySystem], Shell], arguments: list[str], queues: str | None, said: str
) -> None:
    result = shell(system())(*arguments, queues=queues)
    assert result.exit_code == 2
    assert said in result.stderr


def test_what_could_not_be_renewed_decides_the_exit_code(shell: Callable[[MemorySystem], Shell]) -> None:
    down = shell(system(queue_default=[unavailable("push", call=None)]))("--older-than", "0s")
    assert (down.exit_code, down.stdout) == (4, "default\t3\t0\tit takes no tickets\n")
    assert "default: push: injected" in down.stderr
    here = system(queue="priority")
    here.queues.pop("priority")
    unknown = shell(here)("--older-than", "0s")
    assert (unknown.exit_code, unknown.stdout) == (1, "priority\t3\t0\tthere is no such queue here\n")
    throttled = shell(system(ledger=[unavailable("unmarked", call=None)]))("--json")
    assert throttled.exit_code == 4
    assert json.loads(throttled.stderr)["error"]["kind"] == "Unavailable"


def test_the_settings_are_those_of_the_timers() -> None:
    settings = Settings(ledger_table="T", stream="S", queues={})
    assert (settings.reconcile_every_hours, settings.reconcile_after_hours) == (EVERY_HOURS, AFTER_HOURS)
