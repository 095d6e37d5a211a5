"""The pytest plugin: it is there wherever Ringfence is installed, and imports nothing of it before a fixture is used.

Name your app and your tables once, in ``conftest.py``:

    @pytest.fixture
    def ringfence_app():
        return app

    @pytest.fixture
    def ringfence_tables():
        return {"Users": ["email"]}
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from ringfence.app import App
    from ringfence.testing.fault_report import FaultReport
    from ringfence.testing.system import MemorySystem

PROPERTY = "ringfence"
"""What a fault run tells travels in the test's report, also from one process of pytest-xdist to another."""


class Faults(Protocol):
    """What `ringfence_faults` is."""

    def __call__(self, name: str, payload: Any = None, **more: Any) -> FaultReport: ...


@pytest.fixture
def ringfence_app() -> App:
    """Your app. Define a fixture of this name, or set ``RINGFENCE_APP`` (``jobs:app``) as for a worker."""
    import os

    from ringfence.app_import import load_app

    spec = os.environ.get("RINGFENCE_APP")
    if spec is None:
        raise pytest.UsageError("define a fixture ringfence_app that returns your App, or set RINGFENCE_APP=module:attribute")
    return load_app(spec)


@pytest.fixture
def ringfence_tables() -> Mapping[str, Sequence[str]]:
    """Your tables and their key attributes, ``{"Users": ["email"]}``: define a fixture of this name, or there are none."""
    return {}


@pytest.fixture
def ringfence_system(ringfence_app: App, ringfence_tables: Mapping[str, Sequence[str]]) -> MemorySystem:
    """The whole queue in memory, with your jobs and tables: ``ringfence_system.run_job("signup", {...}).state``."""
    from ringfence.testing.system import MemorySystem

    return MemorySystem(ringfence_app, tables=ringfence_tables)


@pytest.fixture
def ringfence_faults(
    request: pytest.FixtureRequest, ringfence_app: App, ringfence_tables: Mapping[str, Sequence[str]]
) -> Faults:
    """`assert_effect_lands_once` with your app and tables: ``ringfence_faults("signup", {...})``."""
    from ringfence.testing.effect_lands_once import assert_effect_lands_once

    def faults(name: str, payload: Any = None, **more: Any) -> FaultReport:
        __tracebackhide__ = True
        given = {"tables": ringfence_tables, "only": request.config.getoption("ringfence_life"), **more}
        report = assert_effect_lands_once(ringfence_app, name, payload, **given)
        request.node.user_properties.append((PROPERTY, report.summary))
        return report

    return faults


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("ringfence").addoption(
        "--ringfence-life",
        metavar="LIFE",
        help="let ringfence_faults live this life only, as a report names it: crash-7, freeze-3, redelivery",
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    reports = [report for reports in terminalreporter.stats.values() for report in reports]
    told = [
        value
        for report in reports
        if getattr(report, "when", None) == "call"
        for name, value in report.user_properties
        if name == PROPERTY
    ]
    if told:
        terminalreporter.section("effects under faults")
        for line in told:
            terminalreporter.write_line(str(line))
