"""`ringfence replay`: the relay's failed batches go from the bucket back into the log."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest
from botocore.exceptions import ClientError, EndpointConnectionError
from click.testing import CliRunner, Result

from ringfence.aws.failed_batches import PREFIX, S3FailedBatches
from ringfence.cli import replay as command
from ringfence.cli.main import main
from ringfence.local.sources.failed_batches import FailedBatches
from ringfence.local.sources.kinesis_batch import Piece, Record
from ringfence.memory.clock import ManualClock
from ringfence.ports import LogEntry
from ringfence.replay import Replayer
from ringfence.wire import JobRecord, encode_records

ARN = "arn:aws:kinesis:us-east-1:0:stream/log"


class Bucket:
    """S3 as far as it is asked here, two keys a page."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.refuses: dict[str, Exception] = {}

    def put_object(self, *, Bucket: str, Key: str, Body: bytes) -> None:
        self.objects[Key] = Body

    def list_objects_v2(self, *, Bucket: str, Prefix: str, ContinuationToken: str = "") -> dict[str, Any]:
        self._refuse("list")
        left = sorted(key for key in self.objects if key.startswith(Prefix) and key > ContinuationToken)
        more = {"IsTruncated": True, "NextContinuationToken": left[1]} if len(left) > 2 else {"IsTruncated": False}
        return {**({"Contents": [{"Key": key} for key in left[:2]]} if left else {}), **more}

    def get_object(self, *, Bucket: str, Key: str) -> dict[str, Any]:
        return {"Body": io.BytesIO(self.objects[Key])}

    def delete_object(self, *, Bucket: str, Key: str) -> None:
        self._refuse("delete")
        del self.objects[Key]

    def _refuse(self, what: str) -> None:
        if what in self.refuses:
            raise self.refuses[what]


class Log:
    """Takes a record only at the time that ``refuses`` says of it: 2 is after it was refused twice."""

    def __init__(self, clock: ManualClock) -> None:
        self.taken: list[LogEntry] = []
        self.refuses: dict[bytes, float] = {}
        self.clock = clock

    def append(self, entries: Sequence[LogEntry]) -> list[str | None]:
        return [self._take(entry) for entry in entries]

    def _take(self, entry: LogEntry) -> str | None:
        if self.refuses.get(entry.data, 0) > 0:
            self.refuses[entry.data] -= 1
            return None
        self.taken.append(entry)
        return str(len(self.taken))


class Here:
    """A bucket, a log, and a shell before them."""

    def __init__(self) -> None:
        self.bucket, self.clock = Bucket(), ManualClock()
        self.log = Log(self.clock)
        self.telemetry: Any = None
        self.settings: Mapping[str, str] = {}

    @property
    def replayer(self) -> Replayer:
        batches = S3FailedBatches(self.bucket, self.settings["RINGFENCE_BUCKET"], self.settings["RINGFENCE_STREAM"])
        return Replayer(batches, self.log, self.clock, Random(1))

    def gave_up(self, *datas: bytes, shard: str = "shard-1", arn: str = ARN) -> str:
        """As the event source of `ringfence dev` writes it, and so as Lambda does. Returns its key."""
        before = set(self.bucket.objects)
        records = tuple(Record(str(n), f"key-{n}", data, datetime(2026, 11, 5, tzinfo=UTC)) for n, data in enumerate(datas))
        FailedBatches(self.bucket, "b", arn, "arn:f", mapping_id="m").put(shard, Piece(records, 3), "RecordAgeExceeded", None)
        (key,) = set(self.bucket.objects) - before
        return key

    def shell(self, *arguments: str) -> Result:
        return CliRunner().invoke(main, ["replay", "--bucket", "b", "--stream", "log", *arguments])


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> Here:
    here = Here()

    def runtime_of(_table: str, _endpoint_url: str | None, environment: Mapping[str, str]) -> Here:
        here.settings = environment
        return here

    monkeypatch.setattr(command, "runtime_of", runtime_of)
    return here


def record(*job_ids: str) -> bytes:
    jobs = [
        JobRecord(
            job_id=job_id,
            tenant="acme",
            queue="default",
            name="noop",
            payload="{}",
            payload_sha256="0" * 64,
            created_at=1,
            max_attempts=5,
        )
        for job_id in job_ids
    ]
    ((data, _),) = encode_records(jobs)
    return data


def test_every_record_goes_back_as_it_was_and_its_batch_is_removed(here: Here) -> None:
    here.gave_up(record("a", "b"), b"\x00 nobody can read this", shard="shard-1")
    here.gave_up(record("c"), shard="shard-2")
    here.gave_up(record("d"), shard="shard-3")
    result = here.shell("--json")
    assert result.exit_code == 0
    assert {(entry.partition_key, entry.data) for entry in here.log.taken} == {
        ("key-0", record("a", "b")),
        ("key-1", b"\x00 nobody can read this"),
        ("key-0", record("c")),
        ("key-0", record("d")),
    }
    assert here.bucket.objects == {}
    told = [json.loads(line) for line in result.stdout.splitlines()]
    assert [(each["records"], each["jobs"], each["why"]) for each in told] == [
        (2, 2, "RecordAgeExceeded"),
        (1, 1, "RecordAgeExceeded"),
        (1, 1, "RecordAgeExceeded"),
    ]
    assert told[0]["arrived_at"] == "2026-11-05T00:00:00.000Z"
    assert "3 failed batches with 4 jobs went back into log" in result.stderr


def test_records_of_a_batch_that_the_log_throttles_are_sent_again_and_only_those(here: Here) -> None:
    here.gave_up(b"one", b"two", b"three")
    here.log.refuses[b"two"] = 2
    assert here.shell().exit_code == 0
    assert [entry.data for entry in here.log.taken] == [b"one", b"three", b"two"]


def test_a_batch_that_the_log_does_not_take_stays_and_what_was_done_before_is_told(here: Here) -> None:
    here.gave_up(record("a"), shard="shard-1")
    kept = here.gave_up(b"never", shard="shard-2")
    here.log.refuses[b"never"] = 1e9
    result = here.shell()
    assert result.exit_code == 4
    assert set(here.bucket.objects) == {kept}
    assert "1 failed batches with 1 jobs went back" in result.stderr
    assert f"the log did not take 1 of 1 records of {kept}" in result.stderr


def test_a_dry_run_shows_and_changes_nothing(here: Here) -> None:
    key = here.gave_up(record("a"))
    result = here.shell("--dry-run")
    assert (result.exit_code, here.log.taken, set(here.bucket.objects)) == (0, [], {key})
    assert result.stdout.splitlines()[-1].split("\t") == [key, "1", "1", "2026-11-05T00:00:00.000Z", "RecordAgeExceeded"]
    assert "would go back" in result.stderr


def test_a_limit_takes_only_so_many(here: Here) -> None:
    for n in range(3):
        here.gave_up(record(f"j{n}"), shard=f"shard-{n}")
    assert here.shell("--limit", "2").exit_code == 0
    assert (len(here.log.taken), len(here.bucket.objects)) == (2, 1)


@pytest.mark.parametrize(
    ("body", "why"),
    [
        (b"", "is no failed batch"),
        (b"[1]", "is no failed batch"),
        (b'{"deep": ' + b"[" * 5_000 + b"]" * 5_000 + b"}", "is no failed batch"),
        (b'{"KinesisBatchInfo": {"streamArn": "s/log"}, "payload": "{"}', "is no failed batch"),
        (
            b'{"KinesisBatchInfo": {"streamArn": "s/log"}, "payload": "{\\"Records\\": [{\\"kinesis\\": {}}]}"}',
            "is no failed batch",
        ),
        (
            b'{"KinesisBatchInfo": {"streamArn": "s/log"}, "payload":'
            b' "{\\"Records\\": [{\\"kinesis\\": {\\"partitionKey\\": \\"k\\", \\"data\\": \\"?\\"}}]}"}',
            "is no failed batch",
        ),
        (
            b'{"KinesisBatchInfo": {"streamArn": "s/other"}, "payload": "{\\"Records\\": []}"}',
            "is of the stream other, not of log",
        ),
    ],
)
def test_what_is_no_batch_of_this_log_is_told_and_stays_and_the_rest_goes_on(here: Here, body: bytes, why: str) -> None:
    strange = f"{PREFIX}m/a-file"
    here.bucket.objects[strange] = body
    here.gave_up(record("a"), shard="shard-2")
    result = here.shell()
    assert (result.exit_code, len(here.log.taken), set(here.bucket.objects)) == (1, 1, {strange})
    assert f"{strange} {why}" in result.stderr


def test_other_files_of_the_bucket_are_not_looked_at(here: Here) -> None:
    here.bucket.objects["modules/a.py"] = b"pass"
    result = here.shell()
    assert (result.exit_code, set(here.bucket.objects)) == (0, {"modules/a.py"})
    assert "0 failed batches" in result.stderr


def refused(code: str, status: int) -> ClientError:
    return ClientError({"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}, "ListObjectsV2")  # type: ignore[typeddict-item]


@pytest.mark.parametrize(
    ("failure", "exit_code", "said"),
    [
        (refused("NoSuchBucket", 404), 1, "cannot list bucket b: NoSuchBucket"),
        (refused("AccessDenied", 403), 1, "cannot list bucket b: AccessDenied"),
        (refused("SlowDown", 503), 4, "cannot list bucket b: SlowDown"),
        (EndpointConnectionError(endpoint_url="http://x"), 4, "cannot list bucket b"),
    ],
)
def test_a_bucket_that_cannot_be_asked_is_named(here: Here, failure: Exception, exit_code: int, said: str) -> None:
    here.bucket.refuses["list"] = failure
    result = here.shell()
    assert result.exit_code == exit_code
    assert said in result.stderr


def test_a_batch_that_cannot_be_removed_is_in_the_log_all_the_same_and_may_come_twice(here: Here) -> None:
    here.gave_up(record("a"))
    here.bucket.refuses["delete"] = refused("AccessDenied", 403)
    assert here.shell().exit_code == 1
    del here.bucket.refuses["delete"]
    assert here.shell().exit_code == 0
    assert [entry.data for entry in here.log.taken] == [record("a")] * 2


def test_a_bucket_and_a_stream_must_be_named(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RINGFENCE_BUCKET", "RINGFENCE_STREAM"):
        monkeypatch.delenv(name, raising=False)
    result = CliRunner().invoke(main, ["replay"])
    assert (result.exit_code, "--bucket" in result.stderr) == (2, True)
