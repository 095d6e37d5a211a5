"""The log contract on Kinesis, on moto in process. Failures of single records are in tests/unit/test_kinesis_log.py."""

import random
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from moto import mock_aws

from ringfence.aws.log import KinesisLog
from ringfence.memory.clock import ManualClock
from ringfence.ports import Log
from ringfence.testing.log_contract import LogContract, Stored

SESSION = boto3.session.Session("testing", "testing", region_name="us-east-1")


@pytest.mark.parametrize("shards", [1, 3], scope="class")
class TestKinesisLog(LogContract):
    @pytest.fixture
    def client(self, shards: int) -> Iterator[Any]:
        with mock_aws():
            client = SESSION.client("kinesis")
            client.create_stream(StreamName="log", ShardCount=shards)
            yield client

    @pytest.fixture
    def log(self, client: Any) -> Log:
        return KinesisLog(client, "log", ManualClock(), random.Random(1))

    @pytest.fixture
    def stored(self, client: Any) -> Stored:
        return lambda: [data for shard in client.list_shards(StreamName="log")["Shards"] for data in _read(client, shard)]


def _read(client: Any, shard: dict[str, Any]) -> list[bytes]:
    shard_id = shard["ShardId"]
    iterator = client.get_shard_iterator(StreamName="log", ShardId=shard_id, ShardIteratorType="TRIM_HORIZON")["ShardIterator"]
    data: list[bytes] = []
    while True:
        reply = client.get_records(ShardIterator=iterator)
        if not reply["Records"]:
            return data
        data += [record["Data"] for record in reply["Records"]]
        iterator = reply["NextShardIterator"]
