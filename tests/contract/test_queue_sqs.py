"""The queue contract on SQS, on moto in process. What moto does not enforce is injected in tests/unit/test_sqs_queue.py."""

import itertools
from collections.abc import Iterator

import boto3
import moto.sqs.models
import pytest
from moto import mock_aws

from ringfence.aws.queue import SqsQueue
from ringfence.memory.clock import ManualClock
from ringfence.ports import Queue
from ringfence.testing.queue_contract import PassSeconds, QueueContract

SESSION = boto3.session.Session("testing", "testing", region_name="us-east-1")


class TestSqsQueue(QueueContract):
    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    def queue(self, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Queue]:
        # moto's queues live by the same clock, so that no test has to wait. A little passes at each look: moto shows a message
        # only after its time, not at it.
        looks = itertools.count()
        monkeypatch.setattr(moto.sqs.models, "unix_time", lambda: clock.now() / 1000)
        monkeypatch.setattr(moto.sqs.models, "unix_time_millis", lambda: clock.now() + next(looks) / 1000)
        with mock_aws():
            client = SESSION.client("sqs")
            url = client.create_queue(QueueName="default")["QueueUrl"]
            yield SqsQueue(client, "default", url, clock=clock)

    @pytest.fixture
    def pass_seconds(self, clock: ManualClock) -> PassSeconds:
        return lambda seconds: clock.advance(seconds + 0.001)
