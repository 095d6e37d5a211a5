"""The queue contract on the engine in memory."""

import pytest

from ringfence.memory.clock import ManualClock
from ringfence.memory.queue import MemoryQueue
from ringfence.ports import Queue
from ringfence.testing.queue_contract import PassSeconds, QueueContract, ReceiptContract


class TestMemoryQueue(QueueContract, ReceiptContract):
    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    def queue(self, clock: ManualClock) -> Queue:
        return MemoryQueue("default", clock)

    @pytest.fixture
    def pass_seconds(self, clock: ManualClock) -> PassSeconds:
        return lambda seconds: clock.advance(seconds + 0.001)
