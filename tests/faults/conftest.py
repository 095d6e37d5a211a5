"""The whole system in processes that are killed and frozen, with leases of two seconds and jobs whose effect is a counter."""

from __future__ import annotations

import os
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from ringfence.job import Job, State
from ringfence.local.dev import Dev
from ringfence.local.pool import Replaced
from ringfence.testing.atomicity import anomalies
from ringfence.testing.dev_faults import DevFaults
from ringfence.testing.dev_system import FUNCTIONS, DevSystem
from ringfence.testing.emulator_kinds import IS_GIVEN, KINDS, startable
from ringfence.testing.gate import Gate

from .campaign.inside.orders import ORDERS_VARIABLE, Orders, OrdersFile
from .campaign.inside.recorder import HISTORY_VARIABLE, history_in
from .campaign.inside.traces import RUNS_VARIABLE, runs_in

ROOT = Path(__file__).parents[2]
APP = Path(__file__).with_name("fault_app")
CAMPAIGN = Path(__file__).parent / "campaign" / "inside"
LIBRARY = ROOT / "layers" / "ringfence" / "python"

EVERY = ("moto", "ministack") if os.environ.get("RINGFENCE_TEST_EVERY_EMULATOR") else ("ministack",)
EMULATORS = KINDS if IS_GIVEN else EVERY
"""The last one runs all tests, the others the few that are marked. moto comes first because it takes longest to start: what
pytest-xdist moves to an idle process is at the end, so only one of them starts it."""

LEASE_SECONDS = 2
ORDERS = "orders.json"


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "every_emulator: run on each emulator, and not only on the last")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "running" in metafunc.fixturenames:
        every = metafunc.definition.get_closest_marker("every_emulator") is not None
        metafunc.parametrize("running", EMULATORS if every else EMULATORS[-1:], indirect=True, scope="package")


@pytest.fixture(scope="package")
def campaign_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where a campaign's orders are, its jobs note that they ran, and every process what it does."""
    folder = tmp_path_factory.mktemp("campaign")
    for each in (runs_in(folder), history_in(folder)):
        each.mkdir()
    OrdersFile(folder / ORDERS).give(Orders())
    return folder


@pytest.fixture(scope="package")
def running(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, campaign_folder: Path
) -> Iterator[DevSystem]:
    """The system on one emulator, once that has shown itself atomic."""
    faults = DevFaults(tmp_path_factory.mktemp("faults"), FUNCTIONS)
    replaced: list[Replaced] = []
    function_env = {
        name: {
            "RINGFENCE_LEASE_SECONDS": str(LEASE_SECONDS),
            "RINGFENCE_APP": "every_job:app",
            "PYTHONPATH": os.pathsep.join([str(APP), str(CAMPAIGN), str(LIBRARY)]),
            "_HANDLER": "instrumented.handler",
            ORDERS_VARIABLE: str(campaign_folder / ORDERS),
            RUNS_VARIABLE: str(runs_in(campaign_folder)),
            HISTORY_VARIABLE: str(history_in(campaign_folder)),
            "POWERTOOLS_LOG_LEVEL": "DEBUG",
            **faults.environments[name],
        }
        for name in FUNCTIONS
    }
    dev = Dev(
        ROOT / "template.yaml",
        emulator=startable(request.param),
        function_env=function_env,
        # The least there is. A message whose worker dies before it has shortened its visibility is hidden for so long.
        parameters={"WorkerTimeoutSeconds": "60"},
        timers_every_seconds=0.5,
        run_folder=tmp_path_factory.mktemp("run"),
        on_replaced=replaced.append,
    )
    with dev:
        found = anomalies(dev.endpoint.client("dynamodb"), dev.endpoint.client("sqs"))
        if found:
            pytest.fail(f"test bed unsound ({request.param}): {'; '.join(found)}")
        with DevSystem(dev, faults, replaced) as system:
            yield system


@pytest.fixture
def system(running: DevSystem) -> Iterator[DevSystem]:
    """The system with all its processes alive and no fault in wait; nobody stays frozen."""
    running.wait_at_full_strength()
    yield running
    running.faults.clear()


@pytest.fixture
def key() -> str:
    """An idempotency key nobody has used."""
    return uuid.uuid4().hex


@pytest.fixture
def gate(tmp_path: Path) -> Iterator[Gate]:
    """A closed gate."""
    with Gate(tmp_path / "gate") as closed:
        yield closed


@pytest.fixture
def counted_once(system: DevSystem) -> Callable[[Job], None]:
    """Checks an ended job: its effect is there once, from the owner of its last token, and stays so to the last ticket."""

    def check(ended: Job) -> None:
        system.wait_drained()
        assert system.job(ended.job_id) == ended
        assert (ended.state, ended.result) == (State.SUCCEEDED, f'{{"token":{ended.token}}}'), ended.error
        assert system.ledger.read_item("PackageTotals", {"package": ended.job_id}) == {"package": ended.job_id, "runs": 1}

    return check
