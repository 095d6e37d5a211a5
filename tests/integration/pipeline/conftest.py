"""The template's whole system for a module's tests: on each emulator, or on the one that AWS_ENDPOINT_URL names."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ringfence.aws import clients
from ringfence.local.dev import Dev
from ringfence.runtime import Runtime
from ringfence.settings import Settings
from ringfence.testing.emulator_kinds import KINDS, startable

ROOT = Path(__file__).parents[3]


@pytest.fixture(scope="package", params=KINDS)
def dev(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Dev]:
    """A system, running for as long as tests use it: its start is most of what one would wait for."""
    # Twenty requests at once would start twelve processes of the gateway. They wait for each other in four just as well.
    processes = {"GatewayFunction": 4}
    with Dev(
        ROOT / "template.yaml",
        emulator=startable(request.param),
        processes=processes,
        run_folder=tmp_path_factory.mktemp("run"),
    ) as running:
        yield running


@pytest.fixture(scope="module")
def here(dev: Dev) -> Iterator[Runtime]:
    """The core in this process, over the same stores as the functions."""
    environment = dev.environment()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            if name.startswith("AWS_"):
                patch.setenv(name, value)
        clients.forget()
        yield Runtime(Settings.from_environment(environment))
    clients.forget()
