"""Which engine a queue is on is configuration: the URL says it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError

import ringfence
from ringfence.aws import clients
from ringfence.aws.limiter import DynamoLimiter
from ringfence.aws.queue import SqsQueue
from ringfence.aws.queue_url import queue_url
from ringfence.errors import Unavailable
from ringfence.redis.limiter import RedisLimiter
from ringfence.redis.queue import RedisQueue
from ringfence.runtime import Runtime
from ringfence.settings import Misconfigured, Settings

CANARY = "hunter2-canary"
SQS_URL = "https://sqs.eu-central-1.amazonaws.com/123456789012/jobs"


class Sqs:
    """Answers GetQueueUrl."""

    def __init__(self, fault: Exception | None = None) -> None:
        self.fault = fault
        self.asked: list[str] = []

    def get_queue_url(self, QueueName: str) -> dict[str, Any]:
        self.asked.append(QueueName)
        if self.fault is not None:
            raise self.fault
        return {"QueueUrl": f"https://sqs.example/{QueueName}"}


def refusal(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": "no"}}, "GetQueueUrl")


@pytest.fixture
def sqs(monkeypatch: pytest.MonkeyPatch) -> Sqs:
    """In place of boto3's client."""
    stub = Sqs()
    monkeypatch.setattr(clients, "client", lambda service, long_poll=False: stub)
    return stub


def runtime(**queues: str) -> Runtime:
    return Runtime(Settings(ledger_table="ledger", stream="log", queues=queues))


def test_the_url_chooses_the_engine(sqs: Sqs) -> None:
    queues = runtime(default=SQS_URL, named="sqs://jobs", fast="redis://127.0.0.1:1/payments").queues

    assert [type(queues[name]) for name in ("default", "named", "fast")] == [SqsQueue, SqsQueue, RedisQueue]
    assert [queue.name for queue in queues.values()] == ["default", "named", "fast"]
    assert sqs.asked == ["jobs"]


def test_the_limiter_of_a_queue_is_where_the_queue_is(sqs: Sqs) -> None:
    limiters = runtime(default=SQS_URL, named="sqs://jobs", fast="redis://127.0.0.1:1/payments").limiters

    assert [type(limiters[name]) for name in ("default", "named", "fast")] == [DynamoLimiter, DynamoLimiter, RedisLimiter]
    assert limiters["default"] is limiters["named"], "one process sees what it reserved in either"


def test_queues_of_one_redis_share_its_connections(sqs: Sqs) -> None:
    queues = runtime(a="redis://h/a", b="redis://h:6379/b", c="redis://h/c?db=1", d="redis://:pw@h/d").queues
    connections = [queue._connection for queue in queues.values() if isinstance(queue, RedisQueue)]

    assert connections[0] is connections[1]
    assert len({id(connection) for connection in connections}) == 3


def test_the_name_in_redis_is_the_last_part_of_the_path(sqs: Sqs) -> None:
    queue = runtime(default="redis://h/team/payments").queues["default"]

    assert isinstance(queue, RedisQueue)
    assert "{payments}" in queue.messages_key


@pytest.mark.parametrize("url", ["reds://jobs:{}@h/q", "sqs://", "{}x", "redis://jobs:{}@h", "amqp://{}@h/q"])
def test_an_engine_that_is_none_is_refused_without_telling_what_was_given(url: str, sqs: Sqs) -> None:
    """C42: a slip in the scheme is no reason to print the password behind it."""
    here = runtime(default=url.format(CANARY))

    with pytest.raises(Misconfigured) as refused:
        _ = here.queues
    assert CANARY not in str(refused.value)


def test_settings_that_are_shown_do_not_tell_passwords() -> None:
    """C42"""
    assert CANARY not in repr(Settings(ledger_table="t", stream="s", queues={"default": f"redis://:{CANARY}@h/q"}))


@pytest.mark.parametrize("code", ["AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist"])
def test_a_name_that_sqs_does_not_know_is_a_fault_of_the_settings(code: str) -> None:
    with pytest.raises(Misconfigured, match="'jobs'"):
        queue_url(Sqs(refusal(code)), "sqs://jobs")


@pytest.mark.parametrize("fault", [refusal("AccessDenied"), EndpointConnectionError(endpoint_url="https://sqs.example")])
def test_an_sqs_that_does_not_answer_may_answer_later(fault: Exception) -> None:
    with pytest.raises(Unavailable, match="jobs"):
        queue_url(Sqs(fault), "sqs://jobs")


WITHOUT_REDIS_PY = """
import sys
sys.modules["redis"] = None
from ringfence.runtime import Runtime
from ringfence.settings import Misconfigured, Settings
try:
    Runtime(Settings(ledger_table="t", stream="s", queues={"default": "redis://h/q"})).queues
except Misconfigured as fault:
    print(fault)
"""


def test_a_redis_without_redis_py_is_said_plainly() -> None:
    ran = python(WITHOUT_REDIS_PY)

    assert "redis is not installed" in ran.stdout, ran.stderr


def test_nothing_of_redis_is_imported_where_every_queue_is_on_sqs() -> None:
    code = f"""
import sys
from ringfence.runtime import Runtime
from ringfence.settings import Settings
Runtime(Settings(ledger_table="t", stream="s", queues={{"default": "{SQS_URL}"}})).queues
print(sorted(name for name in sys.modules if "redis" in name))
"""
    assert python(code).stdout == "[]\n"


def python(code: str) -> subprocess.CompletedProcess[str]:
    library = Path(ringfence.__file__).parent.parent
    environment = {"PYTHONPATH": str(library), "AWS_DEFAULT_REGION": "eu-central-1"}
    return subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=60)
