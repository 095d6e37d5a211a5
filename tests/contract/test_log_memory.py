"""The log contract on the engine in memory."""

import pytest

from ringfence.memory.log import MemoryLog
from ringfence.testing.log_contract import LogContract, Stored


@pytest.mark.parametrize("shards", [1, 3], scope="class")
class TestMemoryLog(LogContract):
    @pytest.fixture
    def log(self, shards: int) -> MemoryLog:
        return MemoryLog(shards)

    @pytest.fixture
    def stored(self, log: MemoryLog) -> Stored:
        return lambda: [record.data for record in log.read()]
