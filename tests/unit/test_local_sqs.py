"""The pollers of a queue, with a queue in memory: who asks it, and how often."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest

from ringfence.local.embedded_redis import EmbeddedRedis
from ringfence.local.event_sources import SqsMapping
from ringfence.local.invocation import Outcome
from ringfence.local.sources.pulse import Pulse
from ringfence.local.sources.sqs import SqsSource

MAPPING = SqsMapping(name="Tickets", function="Worker", arn="arn:aws:sqs:eu-west-1:000000000000:tickets", reports_failures=True)
POLLERS = 4
WAIT_SECONDS = 20


class Waiting(Pulse):
    """An idle poller waits for a beat, and for nothing else."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting = threading.Semaphore(0)

    def wait(self, since: int, idle_rounds: int) -> None:
        self.waiting.release()
        with self._changed:
            self._changed.wait_for(lambda: self._stopped or self._beats != since, WAIT_SECONDS)


class Sqs:
    """A queue that keeps count of its questions."""

    def __init__(self) -> None:
        self.messages: deque[str] = deque()
        self.asked = 0
        self.deleted: list[str] = []

    def get_queue_url(self, **_: Any) -> dict[str, str]:
        return {"QueueUrl": "url"}

    def receive_message(self, **_: Any) -> dict[str, Any]:
        self.asked += 1
        if not self.messages:
            return {}
        name = self.messages.popleft()
        return {"Messages": [{"MessageId": name, "ReceiptHandle": name, "Body": "{}"}]}

    def delete_message_batch(self, Entries: list[dict[str, str]], **_: Any) -> dict[str, Any]:
        self.deleted += [entry["ReceiptHandle"] for entry in Entries]
        return {}


class Here:
    """A source whose invocations take until they are let go."""

    def __init__(self) -> None:
        self.sqs, self.pulse = Sqs(), Waiting()
        self.begun, self.go = threading.Semaphore(0), threading.Semaphore(0)
        self.source = SqsSource(MAPPING, self.sqs, "eu-west-1", POLLERS, self._invoke, self.pulse)

    def _invoke(self, event: bytes) -> Outcome:
        self.begun.release()
        assert self.go.acquire(timeout=WAIT_SECONDS)
        return Outcome(b"")


@pytest.fixture
def here() -> Iterator[Here]:
    here = Here()
    here.source.start()
    yield here
    here.pulse.stop()
    here.go.release(100)
    here.source.join()


def test_of_an_empty_queue_one_poller_asks_once_for_each_beat(here: Here) -> None:
    for _ in range(10):
        assert here.pulse.waiting.acquire(timeout=WAIT_SECONDS)
        here.pulse.beat()
    assert here.pulse.waiting.acquire(timeout=WAIT_SECONDS)
    assert here.sqs.asked == 11


def test_as_many_batches_are_in_flight_as_there_are_pollers(here: Here) -> None:
    assert here.pulse.waiting.acquire(timeout=WAIT_SECONDS)
    here.sqs.messages.extend(f"m{n}" for n in range(POLLERS + 2))
    here.pulse.beat()
    for _ in range(POLLERS):
        assert here.begun.acquire(timeout=WAIT_SECONDS)
    assert len(here.sqs.messages) == 2
    here.go.release(POLLERS + 2)
    for _ in range(2):
        assert here.begun.acquire(timeout=WAIT_SECONDS)


def test_the_queues_that_redis_stands_in_for_are_those_of_the_function() -> None:
    given = {"RINGFENCE_QUEUES": '{"default": "https://sqs.eu-west-1.amazonaws.com/0/tickets"}'}
    stands_in_for = EmbeddedRedis.stands_in_for
    assert stands_in_for(MAPPING.arn, given)
    assert not stands_in_for(MAPPING.arn.replace("tickets", "uploads"), given)
    assert not stands_in_for(MAPPING.arn, {})
