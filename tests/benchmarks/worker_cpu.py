"""The CPU time that a worker adds to the SDK's own, for small jobs of guarantee once.

What a worker asks of DynamoDB is recorded once, with moto's answers. Then boto3 is given these answers where it would send:
the same worker runs again at the speed of memory, and beside it the same calls are made by boto3 alone.
"""

from __future__ import annotations

import io
import json
import statistics
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import boto3
from botocore.awsrequest import AWSPreparedRequest, AWSResponse

from ringfence.aws.ledger import DynamoLedger
from ringfence.gateway import Submission
from ringfence.memory.clock import ManualClock
from ringfence.ports import Lease
from ringfence.testing.system import MemorySystem

from .bill import PAYLOAD, TABLE, app, aws

JOBS = 10
"""A batch as Lambda hands it over."""

TURNS = 25


@dataclass(frozen=True, slots=True)
class WorkerCpu:
    """Microseconds a job; medians of some turns."""

    worker: float
    """A whole batch handled, the SDK included."""
    sdk: float
    """The same calls, made by boto3 alone."""

    @property
    def own(self) -> float:
        return self.worker - self.sdk


@dataclass(frozen=True, slots=True)
class _Recording:
    """What one batch asked of the ledger, all of it by UpdateItem: first the claim of a job, then its commit."""

    calls: Sequence[Mapping[str, Any]]
    """The parameters, in order."""
    answers: Mapping[str, Sequence[bytes]]
    """The bodies of the answers for each job, in order."""
    leases: Sequence[Lease]


def worker_cpu() -> WorkerCpu:
    recording = _record()
    client = boto3.session.Session("testing", "testing", region_name="us-east-1").client("dynamodb")
    replay = _Replay(recording.answers)
    client.meta.events.register("before-send.dynamodb", replay)
    ledger = DynamoLedger(client, TABLE, {}, ManualClock())
    system = MemorySystem(app(), wrap=lambda name, port: ledger if name == "ledger" else port)

    def work() -> None:
        replay.begin()
        done = system.worker().handle(system.queues["default"], recording.leases)
        assert len(done) == JOBS, "a recorded job did not end as it did before"

    def call() -> None:
        replay.begin()
        for parameters in recording.calls:
            client.update_item(**parameters)

    work(), call()
    taken: dict[Any, list[float]] = {work: [], call: []}
    for turn in range(TURNS):
        for each in (work, call) if turn % 2 else (call, work):
            began = time.process_time()
            each()
            taken[each].append((time.process_time() - began) / JOBS * 1e6)
    return WorkerCpu(worker=statistics.median(taken[work]), sdk=statistics.median(taken[call]))


def _record() -> _Recording:
    calls: list[Mapping[str, Any]] = []
    answers: defaultdict[str, list[bytes]] = defaultdict(list)
    with aws(ManualClock()) as (dynamodb, _, system):
        system.gateway.submit("tenant", [Submission(name="job", payload=PAYLOAD)] * JOBS)
        system.run_relay()
        leases = system.queues["default"].lease(JOBS, 30.0)
        events = dynamodb.meta.events
        events.register("before-parameter-build.dynamodb.UpdateItem", lambda params, **_: calls.append(dict(params)))
        events.register(
            "response-received.dynamodb.UpdateItem",
            lambda response_dict, **_: answers[_job_of(calls[-1])].append(response_dict["body"]),
        )
        assert len(system.worker().handle(system.queues["default"], leases)) == JOBS
    return _Recording(calls, answers, leases)


class _Replay:
    """Answers in the place of the network, each job's calls in their order."""

    def __init__(self, answers: Mapping[str, Sequence[bytes]]) -> None:
        self._answers = answers
        self.begin()

    def begin(self) -> None:
        self._next = {job: iter(bodies) for job, bodies in self._answers.items()}

    def __call__(self, request: AWSPreparedRequest, **_: object) -> AWSResponse:
        body = next(self._next[_job_of(json.loads(request.body))])
        headers = {"Content-Type": "application/x-amz-json-1.0", "Content-Length": str(len(body))}
        return AWSResponse(request.url, 200, headers, _Body(body))


class _Body(io.BytesIO):
    def stream(self, **_: object) -> Iterator[bytes]:
        yield self.read()


def _job_of(request: Mapping[str, Any]) -> str:
    return "/".join(str(value) for value in request["Key"].values())
