"""Every call that a function makes is one that its role allows: the real code over moto, its calls held against the template.

No emulator asks IAM, so nothing else would tell before the first deployment.
"""

from __future__ import annotations

import ast
import base64
import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest
from moto import mock_aws

from ringfence import aws
from ringfence.aws import clients
from ringfence.aws.events import reads_from_event
from ringfence.effects import Effect
from ringfence.http import api
from ringfence.http.auth import SCOPES, new_key
from ringfence.job import Guarantee
from ringfence.memory.clock import ManualClock
from ringfence.ports import Lease
from ringfence.runtime import Runtime
from ringfence.settings import Settings
from ringfence.testing.memory_api import event_of
from ringfence.wire import JobRecord, encode_records, encode_ticket, new_ticket

from .aws_requests import OF_TRANSACTION, requests_of
from .conftest import Stack, rendered
from .policies import Request, allows
from .test_iam_actions import granted

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_DEFAULT_REGION": "us-east-1",
    "POWERTOOLS_METRICS_NAMESPACE": "Ringfence",
    "RINGFENCE_APP": "jobs:app",
    "RINGFENCE_BUCKET": "Bucket",
    "RINGFENCE_LEDGER_TABLE": "LedgerTable",
    "RINGFENCE_STREAM": "LogStream",
    "RINGFENCE_WAIT_CAP_SECONDS": "1",
    # moto's threads are not atomic: a transaction that it takes back takes back what others have written meanwhile.
    "RINGFENCE_WORKER_THREADS": "1",
}
SERVICES = ("dynamodb", "kinesis", "s3", "sqs")
LARGE = "x" * 5_000


class Deployment:
    """The template's resources on moto, named as in the template, and a runtime for each function."""

    def __init__(self, stack: Stack, monkeypatch: pytest.MonkeyPatch) -> None:
        self.stack, self.clock = stack, ManualClock()
        self.calls: list[tuple[str, Request]] = []
        self.operations: set[tuple[str, str]] = set()
        self._role: str | None = None
        self._read_so_far: str | None = None
        self._create(stack)
        urls = {
            name: self.sqs.get_queue_url(QueueName=queue)["QueueUrl"]
            for name, queue in {**stack.queues, "last-resort": "LastResortQueue"}.items()
        }
        monkeypatch.setenv("RINGFENCE_LAST_RESORT_QUEUE", urls.pop("last-resort"))
        monkeypatch.setenv("RINGFENCE_QUEUES", json.dumps(urls))
        monkeypatch.setenv("RINGFENCE_TABLES", json.dumps(dict(stack.tables)))
        self.settings = Settings.from_environment(_environment())
        self.gateway, self.relaying, self.worker, self.timers = (Runtime(self.settings) for _ in range(4))
        for runtime in (self.gateway, self.relaying, self.worker, self.timers):
            runtime.clock = self.clock
        self.secret, key = new_key(self.gateway.ids, self.clock, tenant="acme", scopes=frozenset(SCOPES))
        self.gateway.keys.add(key)

    @property
    def sqs(self) -> Any:
        return clients.client("sqs")

    @contextmanager
    def acting_as(self, role: str) -> Iterator[None]:
        """What is called within, in whatever thread, is noted as this role's."""
        self._role = role
        try:
            yield
        finally:
            self._role = None

    def request(self, method: str, target: str, document: Any = None, **headers: str) -> Any:
        named = {"authorization": f"Bearer {self.secret}", **{key.replace("_", "-"): value for key, value in headers.items()}}
        event = event_of(method, target, named, None if document is None else json.dumps(document))
        with self.acting_as("GatewayRole"):
            answer = api.handle(event, None, self.gateway)
        assert answer["statusCode"] < 300, answer
        return json.loads(answer["body"])

    def submit(self, name: str, payload: Any, **more: Any) -> str:
        return str(self.request("POST", "/v1/jobs", {"name": name, "payload": payload, **more})["job_id"])

    def relay(self) -> None:
        kinesis = clients.client("kinesis")
        (shard,) = kinesis.list_shards(StreamName="LogStream")["Shards"]
        start = (
            {"ShardIteratorType": "TRIM_HORIZON"}
            if self._read_so_far is None
            else {"ShardIteratorType": "AFTER_SEQUENCE_NUMBER", "StartingSequenceNumber": self._read_so_far}
        )
        iterator = kinesis.get_shard_iterator(StreamName="LogStream", ShardId=shard["ShardId"], **start)["ShardIterator"]
        records = kinesis.get_records(ShardIterator=iterator)["Records"]
        self._read_so_far = records[-1]["SequenceNumber"]
        event = {
            "Records": [
                {
                    "eventID": f"{shard['ShardId']}:{record['SequenceNumber']}",
                    "kinesis": {
                        "data": base64.b64encode(record["Data"]).decode(),
                        "sequenceNumber": record["SequenceNumber"],
                    },
                }
                for record in records
            ]
        }
        with self.acting_as("RelayRole"):
            assert self.relaying.relay.handle(reads_from_event(event)) is None

    def work(self, queue: str = "default") -> None:
        url = self.settings.queues[queue]
        received = self.sqs.receive_message(
            QueueUrl=url, MaxNumberOfMessages=10, MessageSystemAttributeNames=["ApproximateReceiveCount"]
        )
        leases = [
            Lease(
                body=message["Body"],
                receipt=message["ReceiptHandle"],
                deliveries=int(message["Attributes"]["ApproximateReceiveCount"]),
                message_id=message["MessageId"],
                queue=queue,
            )
            for message in received.get("Messages", [])
        ]
        with self.acting_as("WorkerRole"):
            self.worker.worker.handle(self.worker.queues[queue], leases)

    def time_passes(self, seconds: float) -> dict[str, int]:
        self.clock.advance(seconds)
        with self.acting_as("TimersRole"):
            return self.timers.timers.run()

    def state(self, job_id: str) -> str:
        return str(self.request("GET", f"/v1/jobs/{job_id}")["state"])

    def _create(self, stack: Stack) -> None:
        made = {service: clients.client(service) for service in SERVICES}
        for name, table in stack.of_type("AWS::DynamoDB::Table").items():
            wanted = ("KeySchema", "AttributeDefinitions", "GlobalSecondaryIndexes")
            defined = {key: table[key] for key in wanted if key in table}
            made["dynamodb"].create_table(TableName=name, BillingMode="PAY_PER_REQUEST", **defined)
        for queue in stack.of_type("AWS::SQS::Queue"):
            made["sqs"].create_queue(QueueName=queue)
        made["kinesis"].create_stream(StreamName="LogStream", ShardCount=1)
        made["s3"].create_bucket(Bucket="Bucket")
        for service, client in made.items():
            client.meta.events.register(f"provide-client-params.{service}", self._note)

    def _note(self, params: Mapping[str, Any], model: Any, **_: Any) -> None:
        if self._role is not None:
            service = str(model.service_model.service_name)
            self.operations.add((service, model.name))
            self.calls += [(self._role, request) for request in requests_of(service, model.name, params)]


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(("RINGFENCE_", "POWERTOOLS_"))}


@pytest.fixture(scope="module")
def deployment() -> Iterator[Deployment]:
    with pytest.MonkeyPatch.context() as patch, mock_aws():
        for name in ("AWS_ENDPOINT_URL", "LOCALSTACK_HOST", "AWS_PROFILE"):
            patch.delenv(name, raising=False)
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        clients.forget()
        yield Deployment(rendered(()), patch)
    clients.forget()


@pytest.fixture(scope="module")
def calls(deployment: Deployment) -> list[tuple[str, Request]]:
    """What was called while every function did everything it does."""
    live_through_everything(deployment)
    return deployment.calls


def live_through_everything(here: Deployment) -> None:
    clients.client("dynamodb").put_item(
        TableName="AccountsTable", Item={"account_id": {"S": "a1"}, "balance_cents": {"N": "9000"}}
    )
    clients.client("s3").put_object(Bucket="Bucket", Key="modules/p/a.py", Body=b"import os\n")

    for queue in here.stack.queues:
        here.request("PATCH", f"/v1/queues/{queue}", {"high_water_mark": 1_000})
    urgent = here.submit("charge", {"account_id": "a1"}, queue="priority")
    here.relay()
    here.request("PATCH", "/v1/queues/priority", {"paused": True})
    here.clock.advance(60)  # by now everybody has heard of it
    here.request("GET", "/v1/queues")
    parked = here.submit("signup", {"email": "eve@example.com", "name": "Eve"}, queue="priority")
    here.request("POST", "/v1/jobs", {"jobs": [{"name": "charge", "payload": {}, "queue": "priority"}] * 30})
    here.relay()
    ended = [
        here.submit("signup", {"email": "ada@example.com", "name": "Ada"}, idempotency_key="k1"),
        here.submit("charge", {"account_id": "a1"}),
        here.submit("index_module", {"key": "modules/p/a.py"}),
    ]
    here.submit("signup", {"email": "ada@example.com", "name": "Ada"}, idempotency_key="k1")
    dead = here.submit("signup", {"large": LARGE})
    later = here.submit("signup", {"email": "bob@example.com", "name": "Bob"}, delay_seconds=3600)
    for _ in range(2):  # without rows, and so parked together
        here.submit("charge", {"account_id": "none"}, queue="priority", guarantee="at-least-once")
    cancelled = here.submit("charge", {"account_id": "a1"}, delay_seconds=60)
    here.request("POST", "/v1/jobs", {"jobs": [{"name": "charge", "payload": {"account_id": "none"}}] * 3})
    here.request("POST", f"/v1/jobs/{cancelled}/cancel")

    of_another_time = JobRecord(
        job_id=urgent,
        tenant="acme",
        queue="gone",
        name="charge",
        payload="{}",
        payload_sha256="0" * 64,
        created_at=1,
        max_attempts=1,
    )
    for data in (b"poison", *(data for data, _ in encode_records([of_another_time]))):
        clients.client("kinesis").put_record(StreamName="LogStream", Data=data, PartitionKey="p")
    carried = new_ticket("t", msgspec.structs.replace(of_another_time, job_id="c", guarantee=Guarantee.AT_LEAST_ONCE))
    for body in (
        "not a ticket",
        encode_ticket(msgspec.structs.replace(carried, name="unknown", max_attempts=2)),
        encode_ticket(carried),
        json.dumps({"v": 99, "job_id": here.submit("charge", {"account_id": "a1"}, delay_seconds=60)}),
    ):
        here.sqs.send_message(QueueUrl=here.settings.queues["default"], MessageBody=body)
    here.relay()
    for _ in range(3):
        here.work()
    assert {here.state(job_id) for job_id in ended} == {"succeeded"}
    assert (here.state(dead), here.state(cancelled)) == ("dead", "cancelled")

    here.request("POST", f"/v1/jobs/{dead}/redrive", {"payload": {"large": LARGE}})
    here.request("PATCH", "/v1/queues/priority", {"paused": False, "rate_per_second": 1.0, "high_water_mark": 1_000})
    here.sqs.send_message(QueueUrl=str(here.settings.last_resort_queue), MessageBody="not a ticket")
    for _ in range(3):
        here.time_passes(3600)
    here.work()
    here.work("priority")
    assert here.state(later) == "succeeded"
    assert here.state(parked) == "succeeded"
    for target in ("/v1/jobs?state=dead", "/v1/jobs?queue=default&limit=2", "/v1/quarantine", "/v1/queues/priority"):
        assert here.request("GET", target)


@pytest.mark.parametrize("role", ["GatewayRole", "RelayRole", "WorkerRole", "TimersRole"])
def test_every_call_of_a_function_is_allowed_by_its_role(calls: list[tuple[str, Request]], stack: Stack, role: str) -> None:
    made = [request for by, request in calls if by == role]
    refused = {(request.action, request.resource) for request in made if not allows(stack, role, request)}

    assert made
    assert refused == set()


@pytest.mark.parametrize("role", ["GatewayRole", "RelayRole", "WorkerRole", "TimersRole"])
def test_a_role_grants_nothing_that_its_function_does_not_call(
    calls: list[tuple[str, Request]], stack: Stack, role: str
) -> None:
    """But for what Lambda does with it, and what the worker's jobs may ask for; each of these is needed, or it would hide
    what is granted in vain. What is called of one queue is called of each."""
    queues = set(stack.queues.values())

    def is_called(action: str, resource: str) -> bool:
        named = queues if resource in queues else {resource}
        return any(
            by == role and request.action == action and any(fnmatchcase(request.resource, name) for name in named)
            for by, request in calls
        )

    given = {(action, resource) for action, resources in granted(stack, role).items() for resource in resources}
    left = {grant for grant in given if not is_called(*grant)}
    by_others = {other: {grant for grant in left if is_of(other, *grant)} for other in OF_OTHERS[role](stack)}

    assert left == set().union(*by_others.values())
    assert {other for other, grants in by_others.items() if not grants} == set()


def is_of(other: Other, action: str, resource: str) -> bool:
    return other in (action, (action, resource), (resource,))


Other = str | tuple[str, ...]
"""What somebody else than the function calls: an action, an action on one resource, or any on one resource."""

BY_LAMBDA: set[Other] = {
    *("logs:CreateLogStream", "logs:PutLogEvents"),
    *("xray:PutTelemetryRecords", "xray:PutTraceSegments"),
}
OF_OTHERS: Mapping[str, Callable[[Stack], set[Other]]] = {
    "GatewayRole": lambda _: BY_LAMBDA,
    "RelayRole": lambda _: {
        *BY_LAMBDA,
        # https://docs.aws.amazon.com/lambda/latest/dg/services-kinesis-create.html
        *("kinesis:DescribeStream", "kinesis:DescribeStreamSummary", "kinesis:GetRecords"),
        *("kinesis:GetShardIterator", "kinesis:ListShards"),
        # https://docs.aws.amazon.com/lambda/latest/dg/kinesis-on-failure-destination.html
        *("s3:ListBucket", "s3:PutObject"),
    },
    "WorkerRole": lambda stack: {
        *BY_LAMBDA,
        # https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-configure.html
        *("sqs:ReceiveMessage", "sqs:DeleteMessage", "sqs:GetQueueAttributes"),
        "sqs:GetQueueUrl",  # `ringfence worker`, which may run as this role
        ("dynamodb:ConditionCheckItem", "LedgerTable"),  # `ctx.write`
        *((table,) for table in stack.tables.values()),  # see the next test
        ("s3:ListBucket", "Bucket"),
    },
    "TimersRole": lambda _: BY_LAMBDA,
}


OF_JOBS = {f"dynamodb:{operation}" for operation in (*OF_TRANSACTION.values(), "GetItem")}
"""What effects are made of, and a read."""


def test_jobs_may_do_to_their_tables_what_the_context_offers_and_nothing_else(stack: Stack) -> None:
    grants = granted(stack, "WorkerRole")
    assert {kind.__name__ for kind in get_args(Effect)} == {name.replace("ConditionCheck", "Check") for name in OF_TRANSACTION}
    for table in stack.tables.values():
        assert {action for action, resources in grants.items() if table in resources} == OF_JOBS


def test_every_call_in_the_code_is_among_those_that_were_made(deployment: Deployment, calls: list[tuple[str, Request]]) -> None:
    """One that nothing above leads to would be held against no role."""
    made = {operation for _, operation in deployment.operations}
    named = set(operations_in_the_code())

    assert named > {"PutRecords", "SendMessageBatch", "TransactWriteItems"}
    assert named - made == OF_OPERATORS


OF_OPERATORS = {"GetQueueUrl", "ListObjectsV2", "DeleteObject"}
"""Called with credentials of one's own: by a process that names its queues otherwise than template.yaml does, and by
`ringfence replay`."""


def operations_in_the_code() -> Iterator[str]:
    """The operation of each call of a method that a client of boto3 has, whatever the client is called."""
    methods: dict[str, str] = {}
    for service in SERVICES:
        methods |= clients.client(service).meta.method_to_api_mapping
    generic = {"close", "get_paginator", "get_waiter", "can_paginate", "generate_presigned_url"}
    for file in Path(aws.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Attribute)
                and node.attr in methods.keys() - generic
                and "client" in ast.unparse(node.value)
            ):
                yield methods[node.attr]
