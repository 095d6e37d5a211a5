"""The stream's event source against a small stream of its own: order, resharding, expired iterators, what is given up."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from queue import SimpleQueue
from typing import Any

import pytest
from botocore.exceptions import ClientError

from ringfence.local.event_sources import KinesisMapping
from ringfence.local.invocation import Outcome
from ringfence.local.sources.failed_batches import FailedBatches
from ringfence.local.sources.kinesis import KinesisSource
from ringfence.local.sources.pulse import Pulse

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)
ARN = "arn:aws:kinesis:eu-west-1:000000000000:stream/s"


class Stream:
    """Shards of records, as the three calls of Kinesis that the source makes tell of them."""

    def __init__(self) -> None:
        self.shards: dict[str, list[str]] = {}
        self.parents: dict[str, list[str]] = {}
        self.closed: set[str] = set()
        self.arrived = NOW
        self.never_ends = False
        """moto goes on giving iterators for a shard that was closed."""
        self.expired_calls = 0
        self.asked: list[dict[str, Any]] = []

    def add(self, shard: str, *records: str, parents: tuple[str, ...] = ()) -> None:
        self.shards.setdefault(shard, []).extend(records)
        self.parents.setdefault(shard, list(parents))

    def list_shards(self, **asked: Any) -> dict[str, Any]:
        if "NextToken" in asked:
            return {"Shards": [self._shard(name) for name in list(self.shards)[1:]]}
        token = {"NextToken": "more"} if len(self.shards) > 1 else {}
        return {"Shards": [self._shard(next(iter(self.shards)))], **token}

    def _shard(self, name: str) -> dict[str, Any]:
        shard: dict[str, Any] = {"ShardId": name, "SequenceNumberRange": {"StartingSequenceNumber": "0"}}
        if name in self.closed:
            shard["SequenceNumberRange"]["EndingSequenceNumber"] = "9"
        keys = ("ParentShardId", "AdjacentParentShardId")
        return shard | dict(zip(keys, self.parents[name], strict=False))

    def get_shard_iterator(self, **asked: Any) -> dict[str, Any]:
        self.asked.append(asked)
        records = self.shards[asked["ShardId"]]
        match asked["ShardIteratorType"]:
            case "TRIM_HORIZON":
                at = 0
            case "LATEST":
                at = len(records)
            case _:
                at = int(asked["StartingSequenceNumber"]) + 1
        return {"ShardIterator": f"{asked['ShardId']} {at}"}

    def get_records(self, ShardIterator: str, Limit: int) -> dict[str, Any]:
        if self.expired_calls:
            self.expired_calls -= 1
            raise ClientError({"Error": {"Code": "ExpiredIteratorException", "Message": "old"}}, "GetRecords")
        shard, at = ShardIterator.split()
        first = int(at)
        found = [
            {"SequenceNumber": str(n), "PartitionKey": "k", "Data": data.encode(), "ApproximateArrivalTimestamp": self.arrived}
            for n, data in enumerate(self.shards[shard][first : first + Limit], first)
        ]
        after = first + len(found)
        ends = shard in self.closed and after == len(self.shards[shard]) and not self.never_ends
        return {"Records": found, "MillisBehindLatest": 0, **({} if ends else {"NextShardIterator": f"{shard} {after}"})}


class Bucket:
    def __init__(self) -> None:
        self.put: SimpleQueue[dict[str, Any]] = SimpleQueue()

    def put_object(self, **item: Any) -> None:
        self.put.put(item)


class Function:
    """Records what it was given, shard and data; answers what ``answers`` say, then success."""

    def __init__(self) -> None:
        self.given: SimpleQueue[tuple[str, list[str]]] = SimpleQueue()
        self.answers: list[Outcome] = []

    def __call__(self, event: bytes) -> Outcome:
        import base64

        records = json.loads(event)["Records"]
        data = [base64.b64decode(record["kinesis"]["data"]).decode() for record in records]
        self.given.put((records[0]["eventID"].split(":")[0], data))
        return self.answers.pop(0) if self.answers else Outcome(b"null")

    def batches(self, count: int) -> list[list[str]]:
        return [self.given.get(timeout=20)[1] for _ in range(count)]


class Bench:
    def __init__(self) -> None:
        self.stream, self.function, self.bucket, self.pulse = Stream(), Function(), Bucket(), Pulse()
        self.source: KinesisSource | None = None

    def start(self, **mapping: Any) -> KinesisSource:
        settings = {"starting_position": "TRIM_HORIZON", "reports_failures": True, "failed_batches_bucket": "b", **mapping}
        read = KinesisMapping(name="m", function="F", arn=ARN, **settings)
        failed = FailedBatches(self.bucket, read.failed_batches_bucket, ARN, "arn:f")
        self.source = KinesisSource(read, self.stream, self.function, failed, self.pulse, lambda: NOW)
        self.source.start()
        return self.source


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    yield made
    made.pulse.stop()
    if made.source is not None:
        made.source.join()


def failure(*numbers: str) -> Outcome:
    return Outcome(json.dumps({"batchItemFailures": [{"itemIdentifier": number} for number in numbers]}).encode())


ERROR = Outcome.failed("Unhandled", "as asked")


def test_a_shard_is_read_in_order_in_batches(bench: Bench) -> None:
    bench.stream.add("s1", "a", "b", "c", "d", "e")
    bench.start(batch_size=2)
    assert bench.function.batches(3) == [["a", "b"], ["c", "d"], ["e"]]


def test_latest_passes_over_what_was_there(bench: Bench) -> None:
    bench.stream.add("s1", "old")
    source = bench.start(starting_position="LATEST")
    wait_until(lambda: bool(bench.stream.asked))
    bench.stream.add("s1", "new")
    bench.pulse.beat()
    assert bench.function.batches(1) == [["new"]]
    assert source.mapping.starting_position == "LATEST"


def test_the_checkpoint_is_the_last_record_that_is_done_with(bench: Bench) -> None:
    bench.stream.add("s1", "a", "b", "c")
    bench.function.answers = [failure("1")]
    source = bench.start()
    assert bench.function.batches(2) == [["a", "b", "c"], ["b", "c"]]
    wait_until(lambda: source.checkpoints == {"s1": "2"})


def test_an_error_bisects_down_to_the_record_and_gives_only_that_one_up(bench: Bench) -> None:
    bench.stream.add("s1", "a", "b", "poison", "d")
    bench.function.answers = [ERROR, Outcome(b"null"), ERROR, ERROR]
    source = bench.start(bisects=True, maximum_retries=0)
    assert bench.function.batches(5) == [["a", "b", "poison", "d"], ["a", "b"], ["poison", "d"], ["poison"], ["d"]]
    kept = bench.bucket.put.get(timeout=20)
    document = json.loads(kept["Body"])
    assert kept["Bucket"] == "b"
    assert kept["Key"].startswith(f"aws/lambda/{source.failed.mapping_id}/s1/")
    assert document["requestContext"]["condition"] == "RetryAttemptsExhausted"
    assert document["KinesisBatchInfo"]["startSequenceNumber"] == "2"
    assert document["KinesisBatchInfo"]["batchSize"] == 1
    assert json.loads(document["payload"])["Records"][0]["kinesis"]["data"] == "cG9pc29u"
    assert bench.bucket.put.empty()


def test_records_past_their_age_are_kept_in_the_bucket_and_not_given_to_the_function(bench: Bench) -> None:
    bench.stream.add("s1", "a", "b")
    bench.stream.arrived = NOW - timedelta(seconds=61)
    source = bench.start(maximum_age_seconds=60)
    document = json.loads(bench.bucket.put.get(timeout=20)["Body"])
    assert (document["requestContext"]["condition"], document["KinesisBatchInfo"]["batchSize"]) == ("RecordAgeExceeded", 2)
    wait_until(lambda: source.checkpoints == {"s1": "1"})
    assert bench.function.given.empty()


@pytest.mark.parametrize("never_ends", [False, True])
def test_c07_children_are_read_after_both_their_parents(bench: Bench, never_ends: bool) -> None:
    bench.stream.add("p1", "a")
    bench.stream.add("p2", "b")
    bench.stream.add("c", "z", parents=("p1", "p2"))
    bench.stream.closed = {"p1", "p2"}
    bench.stream.never_ends = never_ends
    bench.start()
    order = [bench.function.given.get(timeout=20) for _ in range(3)]
    assert sorted(order[:2]) == [("p1", ["a"]), ("p2", ["b"])]
    assert order[2] == ("c", ["z"])


def test_c07_a_child_waits_while_its_parent_is_being_retried(bench: Bench) -> None:
    bench.stream.add("p", "a")
    bench.stream.add("c", "z", parents=("p",))
    bench.stream.closed = {"p"}
    bench.function.answers = [ERROR, ERROR]
    bench.start()
    assert [bench.function.given.get(timeout=20)[0] for _ in range(4)] == ["p", "p", "p", "c"]


KEYS_OWN = [f"{number:04}" for number in range(2_000)]


def reshard_half_way(stream: Stream, how: str) -> None:
    """Two thousand records of one key, in their order; half-way its shard is split, or merged with its neighbour."""
    first, second = KEYS_OWN[:1_000], KEYS_OWN[1_000:]
    stream.add("p", *first)
    stream.closed = {"p", "neighbour"}
    if how == "split":
        stream.add("c", *second, parents=("p",))
        stream.add("sibling", "other", parents=("p",))
    else:
        stream.add("neighbour", "other")
        stream.add("c", *second, parents=("p", "neighbour"))


@pytest.mark.parametrize("how", ["split", "merge"])
def test_c07_across_a_reshard_every_record_of_a_key_is_read_in_its_order(bench: Bench, how: str) -> None:
    reshard_half_way(bench.stream, how)
    source = bench.start()
    assert [record for batch in bench.function.batches(21) for record in batch if record != "other"] == KEYS_OWN
    wait_until(lambda: source.checkpoints.items() >= {"p": "999", "c": "999"}.items())


@pytest.mark.parametrize("how", ["split", "merge"])
def test_c07_a_consumer_that_ends_amid_a_reshard_is_followed_by_one_that_misses_nothing(bench: Bench, how: str) -> None:
    """As `ringfence dev` is, whose checkpoints end with it: its successor begins anew. On AWS it is Lambda that keeps them."""
    reshard_half_way(bench.stream, how)
    bench.start()
    seen = [record for batch in bench.function.batches(4) for record in batch]
    bench.pulse.stop()
    assert bench.source is not None
    bench.source.join()
    while not bench.function.given.empty():
        seen += bench.function.given.get()[1]
    bench.pulse = Pulse()
    bench.start()
    seen += [record for batch in bench.function.batches(21) for record in batch]
    assert [record for record in dict.fromkeys(seen) if record != "other"] == KEYS_OWN


def test_c11_what_was_put_before_the_mapping_was_there_is_read(bench: Bench) -> None:
    """From the position that the template gives the relay, as its own test says."""
    bench.stream.add("s1", *map(str, range(10)))
    bench.start(starting_position="TRIM_HORIZON")
    assert bench.function.batches(1) == [list(map(str, range(10)))]


def test_a_child_whose_parent_is_forgotten_is_read(bench: Bench) -> None:
    bench.stream.add("c", "z", parents=("long-gone",))
    bench.start()
    assert bench.function.batches(1) == [["z"]]


def test_an_expired_iterator_is_replaced_by_one_after_the_last_record(bench: Bench) -> None:
    bench.stream.add("s1", "a")
    bench.start()
    assert bench.function.batches(1) == [["a"]]
    bench.stream.expired_calls = 1
    bench.stream.add("s1", "b")
    bench.pulse.beat()
    assert bench.function.batches(1) == [["b"]]
    assert bench.stream.asked[-1]["ShardIteratorType"] == "AFTER_SEQUENCE_NUMBER"


def wait_until(look: Callable[[], bool]) -> None:
    """Other threads get there by themselves; fails if they do not."""
    tries = threading.Event()
    for _ in range(2000):
        if look():
            return
        tries.wait(0.005)
    raise AssertionError("it never came to be")
