"""What tests of every kind may use."""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain, groupby, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from botocore.loaders import JSONFileLoader
from xdist.scheduler import LoadScopeScheduling

from ringfence.local.redis_binaries import redis_server as find_redis_server
from ringfence.testing.redis_kinds import KINDS, binary_of

if TYPE_CHECKING:
    from ringfence.testing.redis_server import RedisServer


class TogetherWithTheirSystem(LoadScopeScheduling):
    """Tests that share a running system run in one process, and so do those of a module, which share what they prepare.

    The name of the emulator is the first of a test's parameters where its fixture starts a system for all of a folder.
    """

    ALONE = ("tests/simulator/", "tests/model/")
    """Long tests that share nothing: each goes to whoever is free."""

    _by_module = True

    def schedule(self) -> None:
        if self.collection is None and self.collection_is_completed:
            modules = {nodeid.partition("::")[0] for tests in self.registered_collections.values() for nodeid in tests}
            self._by_module = len(modules) > 2 * len(self.nodes)
            self.config.option.loadscopereorder = False
        super().schedule()

    def _split_scope(self, nodeid: str) -> str:
        module, _, test = nodeid.partition("::")
        if system := re.search(r"\[(redis beside )?(given|ministack|moto)\b", test):
            return module.rpartition("/")[0] + system[0]
        return module if self._by_module and not module.startswith(self.ALONE) else nodeid


def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> TogetherWithTheirSystem:
    return TogetherWithTheirSystem(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The integration tests first, a few of which take long: the many small ones fill the end of the run.

    Where processes share the tests, the simulator's stand among them: those compute, while these wait most of their time.
    """
    items.sort(key=lambda item: "integration" not in item.path.parts)
    if hasattr(config, "workerinput"):
        simulated = [item for item in items if "simulator" in item.path.parts]
        others = [item for item in items if "simulator" not in item.path.parts]
        modules = [list(module) for _, module in groupby(others, key=lambda item: item.path)]
        waiting = sum("integration" in module[0].path.parts for module in modules)
        shares = [simulated[place::waiting] for place in range(waiting)] or [simulated]
        items[:] = chain.from_iterable(chain(*pair) for pair in zip_longest(modules, shares, fillvalue=[]))


@pytest.hookimpl(trylast=True)
def pytest_collection_finish() -> None:
    """What all tests have in common stays to the end, so no collection of garbage need look at it: a tenth of their time."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def botocores_models_are_read_once() -> Iterator[None]:
    """And not by every session that a test makes. What botocore merges into them is the same each time."""
    with pytest.MonkeyPatch.context() as patch:
        read = JSONFileLoader().load_file
        patch.setattr(JSONFileLoader, "load_file", staticmethod(cache(read)))
        yield


@pytest.fixture
def no_emulator_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """For tests that bring their own emulator, or moto into this process: nothing leads their clients elsewhere.

    ``AWS_ENDPOINT_URL`` would, and moto only answers what is sent to AWS.
    """
    for name in [name for name in os.environ if name.startswith(("AWS_ENDPOINT_URL", "LOCALSTACK_")) or name == "AWS_PROFILE"]:
        monkeypatch.delenv(name)


@pytest.fixture(scope="session")
def redis_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisServer]:
    """A Redis that nobody kills or fills: give your queues names of their own (`RedisServer.queue` does)."""
    # redis-py takes long to import, and most runs have no test that needs it.
    from ringfence.testing.redis_server import RedisServer

    with RedisServer(find_redis_server(), tmp_path_factory.mktemp("redis")) as server:
        yield server


@pytest.fixture(scope="session")
def redis_nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sequence[RedisServer]]:
    """The nodes of a Redis Cluster that nobody kills or fills."""
    from ringfence.testing.redis_server import redis_cluster

    with redis_cluster(find_redis_server(), tmp_path_factory.mktemp("cluster")) as nodes:
        yield nodes


@pytest.fixture(params=KINDS)
def redis_binary(request: pytest.FixtureRequest) -> Path:
    """Each kind of Redis server in turn, for tests that start their own."""
    return binary_of(request.param)
