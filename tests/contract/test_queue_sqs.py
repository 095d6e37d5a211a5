"""The queue contract on SQS, on moto in process. What moto does not enforce is injected in tests/unit/test_sqs_queue.py."""

from collections.abc import Iterator

import boto3
import pytest
from moto import mock_aws

from ringfence.aws.queue import SqsQueue
from ringfence.memory.clock import ManualClock
from ringfence.ports import Queue
from ringfence.testing.queue_contract import PassSeconds, QueueContract

from .sqs_on_moto import live_by

SESSION = boto3.session.Session("testing", "testing", region_name="us-east-1")


class TestSqsQueue(QueueContract):
    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    def queue(self, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[Queue]:
        live_by(clock, monkeypatch)
        with mock_aws():
            client = SESSION.client("sqs")
            url = client.create_queue(QueueName="default")["QueueUrl"]
            yield SqsQueue(client, "default", url, clock=clock)

    @pytest.fixture
    def pass_seconds(self, clock: ManualClock) -> PassSeconds:
        return lambda seconds: clock.advance(seconds + 0.001)
