"""Records of a stream reach a function in order; a failure holds what comes after it and nothing before."""

from __future__ import annotations

import json
import os
import signal
from datetime import UTC, datetime

from ringfence.local.sources.failed_batches import FailedBatches
from ringfence.local.sources.kinesis_batch import Piece, Record

from .conftest import App


def test_records_arrive_in_order(app: App) -> None:
    names = [app.name() for _ in range(25)]
    app.put(*({"id": name} for name in names))
    history = app.given("read", names, [1] * 25)
    assert [line["id"] for line in history] == names
    assert max(line["batch"] for line in history) == 10


def test_a_reported_failure_is_tried_again_with_what_follows_and_without_what_came_before(app: App) -> None:
    names = [app.name() for _ in range(4)]
    app.put({"id": names[0]}, {"id": names[1], "do": "fail", "times": 2}, {"id": names[2]}, {"id": names[3]})
    history = [line["id"] for line in app.given("read", names, [1, 3, 1, 1])]
    assert history == [names[0], names[1], names[1], names[1], names[2], names[3]]


def test_an_error_halves_the_batch_until_the_record_is_alone(app: App) -> None:
    names = [app.name() for _ in range(4)]
    app.put(*({"id": name} for name in names[:3]), {"id": names[3], "do": "raise", "times": 3})
    history = app.given("read", names, [1, 1, 1, 4])
    assert [line["batch"] for line in history if line["id"] == names[3]] == [4, 2, 1, 1]
    # Its neighbours ran again with each larger batch that failed, and were done with as soon as theirs succeeded.
    assert [sum(line["id"] == name for line in history) for name in names] == [2, 2, 3, 4]


def test_a_killed_process_costs_a_repetition_and_no_record(app: App) -> None:
    names = [app.name() for _ in range(3)]
    app.put({"id": names[0]}, {"id": names[1], "do": "hang"}, {"id": names[2]})
    victim = app.given("read", names[:2], [1, 1])[-1]["pid"]
    os.kill(victim, signal.SIGKILL)
    history = app.given("read", names, [2, 2, 1])
    assert [line["id"] for line in history][:2] == names[:2]
    assert history[-1]["pid"] != victim
    firsts = [next(n for n, line in enumerate(history) if line["id"] == name) for name in names]
    assert firsts == sorted(firsts)


def test_after_a_split_records_go_on_being_read(app: App) -> None:
    """C07. That children come after their parents is tested elsewhere: MiniStack throws a split shard's records away, moto puts
    them into its children once more, and new ones into the closed shard."""
    stream = app.environment["STREAM"]
    before = [app.name() for _ in range(3)]
    app.put(*({"id": name} for name in before))
    app.given("read", before, [1] * 3)
    shards = app.kinesis.list_shards(StreamName=stream)["Shards"]
    shard = next(each for each in shards if "EndingSequenceNumber" not in each["SequenceNumberRange"])
    middle = (int(shard["HashKeyRange"]["StartingHashKey"]) + int(shard["HashKeyRange"]["EndingHashKey"])) // 2
    app.kinesis.split_shard(StreamName=stream, ShardToSplit=shard["ShardId"], NewStartingHashKey=str(middle))
    after = [app.name() for _ in range(8)]
    for n, name in enumerate(after):
        app.put({"id": name}, key=f"key-{n}")
    app.given("read", after, [1] * 8)


def test_what_is_given_up_is_kept_in_the_bucket(app: App) -> None:
    bucket, s3 = app.dev.resources["Bucket"], app.dev.endpoint.client("s3")
    destination = FailedBatches(s3, bucket, "arn:aws:kinesis:us-east-1:0:stream/s", "arn:f")
    destination.put(
        "shard-1", Piece((Record("7", "k", b"bytes", datetime.now(UTC)),), 3), "RetryAttemptsExhausted", "Unhandled"
    )
    (item,) = s3.list_objects_v2(Bucket=bucket, Prefix=f"aws/lambda/{destination.mapping_id}/shard-1/")["Contents"]
    document = json.loads(s3.get_object(Bucket=bucket, Key=item["Key"])["Body"].read())
    assert document["requestContext"]["approximateInvokeCount"] == 3
    assert json.loads(document["payload"])["Records"][0]["kinesis"]["sequenceNumber"] == "7"
