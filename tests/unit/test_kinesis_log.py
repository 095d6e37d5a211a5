"""The Kinesis adapter against a scripted client: partial failures, throttling, lost replies, and giving up in time."""

import json
import random
from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError, ConnectTimeoutError, ParamValidationError, ReadTimeoutError

from ringfence import App
from ringfence.aws.log import ATTEMPTS, BUDGET_SECONDS, KinesisLog
from ringfence.memory.clock import ManualClock
from ringfence.memory.telemetry import MemoryTelemetry
from ringfence.ports import LogEntry
from ringfence.testing.memory_api import MemoryApi
from ringfence.testing.system import MemorySystem

THROTTLED = "ProvisionedThroughputExceededException"


class ScriptedKinesis:
    """Stores what it accepts. Before each call ``faults`` may name keys to refuse, raise, or let time pass."""

    def __init__(self, *faults: Callable[[], set[str]]) -> None:
        self.faults = list(faults)
        self.requests: list[list[str]] = []
        self.stored: list[str] = []

    def put_records(self, *, StreamName: str, Records: list[dict[str, Any]]) -> dict[str, Any]:
        assert StreamName == "log"
        self.requests.append([record["PartitionKey"] for record in Records])
        refused = self.faults.pop(0)() if self.faults else set()
        return {"Records": [self._answer(record["PartitionKey"], refused) for record in Records]}

    def _answer(self, key: str, refused: set[str]) -> dict[str, Any]:
        if key in refused:
            return {"ErrorCode": THROTTLED, "ErrorMessage": "Rate exceeded for shard shardId-000000000000"}
        self.stored.append(key)
        return {"ShardId": "shardId-000000000000", "SequenceNumber": f"4959{key}"}


def refuse(*keys: str) -> Callable[[], set[str]]:
    return lambda: set(keys)


def raising(error: Exception) -> Callable[[], set[str]]:
    def fault() -> set[str]:
        raise error

    return fault


def client_error(code: str, status: int = 400) -> ClientError:
    return ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "PutRecords")


def entries(count: int, size: int = 10) -> list[LogEntry]:
    return [LogEntry(b"x" * size, str(number)) for number in range(count)]


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def telemetry() -> MemoryTelemetry:
    return MemoryTelemetry()


def log_of(client: Any, clock: ManualClock, telemetry: MemoryTelemetry | None = None) -> KinesisLog:
    return KinesisLog(client, "log", clock, random.Random(7), telemetry)


def test_c05_only_the_failed_entries_are_sent_again_and_answers_keep_their_places(clock: ManualClock) -> None:
    client = ScriptedKinesis(refuse("3", "7"))
    assert log_of(client, clock).append(entries(10)) == [f"4959{number}" for number in range(10)]
    assert client.requests == [[str(number) for number in range(10)], ["3", "7"]]
    assert len(client.stored) == 10


def test_c05_an_entry_that_fails_for_ever_is_none_and_the_others_are_in(clock: ManualClock, telemetry: MemoryTelemetry) -> None:
    client = ScriptedKinesis(*[refuse("7")] * 100)
    sequences = log_of(client, clock, telemetry).append(entries(10))
    assert sequences == [None if number == 7 else f"4959{number}" for number in range(10)]
    assert 2 <= len(client.requests) <= ATTEMPTS
    assert clock.monotonic() <= BUDGET_SECONDS
    (told,) = telemetry.named("aws_call_failed")
    assert told == {"operation": "PutRecords", "stream": "log", "reason": THROTTLED, "count": 1}


def test_c05_an_answer_without_a_sequence_number_is_no_promise(clock: ManualClock) -> None:
    class Silent(ScriptedKinesis):
        def _answer(self, key: str, refused: set[str]) -> dict[str, Any]:
            return {"ShardId": "shardId-000000000000"}

    assert log_of(Silent(), clock).append(entries(2)) == [None, None]


@pytest.mark.parametrize("for_ever", [False, True])
def test_c05_whoever_was_not_appended_is_asked_to_come_again_and_nobody_else(clock: ManualClock, for_ever: bool) -> None:
    """Entries 3 and 7 once, or entry 7 for ever."""
    client = ScriptedKinesis()
    if for_ever:
        client.faults = [lambda: set(client.requests[0][7:8])] * 100
    else:
        client.faults = [lambda: {client.requests[0][3], client.requests[0][7]}]
    api = MemoryApi(MemorySystem(App(), clock=clock, wrap=lambda name, port: log_of(client, clock) if name == "log" else port))
    jobs = [{"name": "a", "idempotency_key": f"k{number}", "ordering_key": f"o{number}"} for number in range(10)]
    answer = api.request("POST", "/v1/jobs", json.dumps({"jobs": jobs}), api.key())
    accepted = [number for number, entry in enumerate(answer.document["jobs"]) if entry["status"] == 202]
    assert accepted == [number for number in range(10) if not (for_ever and number == 7)]
    assert sorted(client.stored) == sorted(client.requests[0][number] for number in accepted)
    if for_ever:
        refused = answer.document["jobs"][7]
        assert refused["status"] == 503
        alone = api.request("POST", "/v1/jobs", json.dumps(jobs[7]), api.key())
        assert (alone.status, alone.headers["retry-after"]) == (503, "1")
        client.faults = []
        again = api.request("POST", "/v1/jobs", json.dumps(jobs[7]), api.key())
        assert (again.status, len(client.stored)) == (202, 10)


def test_the_pauses_grow_and_are_jittered(clock: ManualClock) -> None:
    client = ScriptedKinesis(*[refuse("0")] * 100)
    log = log_of(client, clock)
    log.append(entries(1))
    first = clock.monotonic()
    log.append(entries(1))
    assert clock.monotonic() - first != pytest.approx(first)


@pytest.mark.parametrize(
    "error",
    [
        client_error(THROTTLED),
        client_error("InternalFailure", 500),
        client_error("KMSThrottlingException"),
        ConnectTimeoutError(endpoint_url="http://kinesis"),
        ReadTimeoutError(endpoint_url="http://kinesis"),
    ],
)
def test_a_call_that_fails_is_made_again(clock: ManualClock, error: Exception) -> None:
    client = ScriptedKinesis(raising(error))
    assert log_of(client, clock).append(entries(2)) == ["49590", "49591"]
    assert clock.monotonic() > 0


def test_a_chunk_that_fails_leaves_the_answers_of_the_others_alone(clock: ManualClock) -> None:
    client = ScriptedKinesis(refuse(), raising(client_error(THROTTLED)), refuse("1000"))
    sequences = log_of(client, clock).append(entries(1_001))
    assert sequences == [f"4959{number}" for number in range(1_001)]
    assert [len(request) for request in client.requests] == [500, 500, 1, 500, 1]


@pytest.mark.parametrize("code", ["ResourceNotFoundException", "AccessDeniedException", "ValidationException"])
def test_a_no_that_will_stay_a_no_is_not_asked_for_again(clock: ManualClock, telemetry: MemoryTelemetry, code: str) -> None:
    client = ScriptedKinesis(raising(client_error(code)))
    assert log_of(client, clock, telemetry).append(entries(2)) == [None, None]
    assert len(client.requests) == 1
    assert telemetry.named("aws_call_failed")[0]["reason"] == code


def test_it_never_raises_for_a_service_out_of_reach_and_gives_up_in_time(clock: ManualClock) -> None:
    def hang() -> set[str]:
        clock.advance(2)
        raise ReadTimeoutError(endpoint_url="http://kinesis")

    client = ScriptedKinesis(*[hang] * 100)
    assert log_of(client, clock).append(entries(1_000)) == [None] * 1_000
    assert clock.monotonic() <= BUDGET_SECONDS + 2


def test_requests_are_split_by_count_and_by_bytes_keys_included(clock: ManualClock) -> None:
    client = ScriptedKinesis()
    assert None not in log_of(client, clock).append(entries(501))
    assert None not in log_of(client, clock).append(entries(20, size=1_000_000))
    assert [len(request) for request in client.requests] == [500, 1, 4, 4, 4, 4, 4]


def test_a_fault_of_the_program_is_raised(clock: ManualClock) -> None:
    client = ScriptedKinesis(raising(ParamValidationError(report="wrong type")))
    with pytest.raises(ParamValidationError):
        log_of(client, clock).append(entries(1))
