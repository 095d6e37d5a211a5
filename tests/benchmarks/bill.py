"""What jobs of guarantee once cost: ledger write units and AWS calls.

The calls go through boto3 to moto in this process, which stores what they write; none leaves it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
from botocore.config import Config
from moto import mock_aws
from samtranslator.yaml_helper import yaml_parse

from ringfence import App, Context
from ringfence.aws.ledger import DynamoLedger
from ringfence.aws.queue import SqsQueue
from ringfence.gateway import Submission
from ringfence.memory.clock import ManualClock
from ringfence.ports import Clock
from ringfence.testing.system import MemorySystem

from .write_units import Metered

TEMPLATE = Path(__file__).parents[2] / "template.yaml"
TABLE = "ledger"
PAYLOAD = '{"id":12345,"kind":"email.send","to":"user@example.com","tpl":"welcome-42","n":7}'
SQS_BATCH = 10


@dataclass(frozen=True, slots=True)
class Bill:
    """Per job."""

    write_units: float
    units_by_write: Mapping[str, float]
    """``row``, or the index that was written."""
    calls: Mapping[str, float]


def app() -> App:
    """One small job without effects."""
    made = App()

    @made.job("job")
    def job(ctx: Context, id: int, kind: str, to: str, tpl: str, n: int) -> dict[str, int]:
        return {"id": id}

    return made


@contextmanager
def aws(clock: Clock) -> Iterator[tuple[Any, Any, MemorySystem]]:
    """The ledger's table as the template declares it, a queue, and a system over both: (DynamoDB client, SQS client, system).

    The clients count their calls: ``client.calls``.
    """
    with mock_aws():
        session = boto3.session.Session("testing", "testing", region_name="us-east-1")
        config = Config(retries={"mode": "standard", "total_max_attempts": 1})
        dynamodb, sqs = session.client("dynamodb", config=config), session.client("sqs", config=config)
        declared = yaml_parse(TEMPLATE.read_text())["Resources"]["LedgerTable"]["Properties"]
        shape = {name: declared[name] for name in ("KeySchema", "AttributeDefinitions", "GlobalSecondaryIndexes")}
        dynamodb.create_table(TableName=TABLE, BillingMode="PAY_PER_REQUEST", **shape)
        url = sqs.create_queue(QueueName="default")["QueueUrl"]
        metered, counted = Metered(dynamodb, TABLE), Counted(sqs)
        ports = {
            "ledger": DynamoLedger(metered, TABLE, {}, clock),
            "queue:default": SqsQueue(counted, "default", url, clock=clock),
        }
        yield metered, counted, MemorySystem(app(), clock=clock, wrap=lambda name, port: ports.get(name, port))


class Counted:
    """A client that counts its calls."""

    def __init__(self, client: Any) -> None:
        self._client = client
        self.calls: Counter[str] = Counter()

    def __getattr__(self, operation: str) -> Any:
        def call(**request: Any) -> Any:
            self.calls[operation] += 1
            return getattr(self._client, operation)(**request)

        return self._client.meta if operation == "meta" else call


def bill(jobs: int) -> Bill:
    """The whole life of so many jobs that are submitted, relayed and run together, on SQS."""
    with aws(ManualClock()) as (dynamodb, sqs, system):
        system.gateway.submit("tenant", [Submission(name="job", payload=PAYLOAD)] * jobs)
        system.run_relay()
        while system.run_worker(most=SQS_BATCH):
            pass
        calls = Counter({f"dynamodb.{name}": count for name, count in dynamodb.calls.items()})
        calls.update({f"sqs.{name}": count for name, count in sqs.calls.items()})
        return Bill(
            write_units=sum(dynamodb.units.values()) / jobs,
            units_by_write={name: count / jobs for name, count in dynamodb.units.items()},
            calls={name: count / jobs for name, count in sorted(calls.items())},
        )
