"""What the tests of security share: an API over the memory engines, with two tenants."""

from __future__ import annotations

import pytest

from ringfence import App, Context, Dead
from ringfence.testing.memory_api import MemoryApi
from ringfence.testing.system import MemorySystem

from .fuzzing import Fuzz


def app() -> App:
    jobs = App()

    @jobs.job("echo")
    def echo(ctx: Context, said: str = "") -> dict[str, str]:
        return {"said": said}

    @jobs.job("fail")
    def fail(ctx: Context, reason: str = "no") -> None:
        raise Dead(reason)

    return jobs


def new_api() -> MemoryApi:
    return MemoryApi(MemorySystem(app()))


@pytest.fixture
def api() -> MemoryApi:
    return new_api()


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "fuzz: made-up input for a share of RINGFENCE_FUZZ_SECONDS (see fuzzing.py)")


@pytest.fixture
def fuzz(request: pytest.FixtureRequest) -> Fuzz:
    return Fuzz.of(request)
