"""The example job index_module: a file's counts and its package's total, in the job's own transaction."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from jobs import app
from ringfence.aws import clients
from ringfence.job import Job, State
from ringfence.testing.port_faults import Crash as WorkerDied
from ringfence.testing.port_faults import Faulty, crash
from ringfence.testing.system import MemorySystem

TABLES = {"Modules": ["module"], "PackageTotals": ["package"]}
BUCKET = "files"


@pytest.fixture(autouse=True)
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name, value in {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "us-east-1",
        "RINGFENCE_BUCKET": BUCKET,
    }.items():
        monkeypatch.setenv(name, value)
    with mock_aws():
        clients.forget()
        bucket = clients.client("s3")
        bucket.create_bucket(Bucket=BUCKET)
        yield bucket
    clients.forget()


def system(*faults: Any) -> MemorySystem:
    return MemorySystem(app, tables=TABLES, wrap=lambda name, port: Faulty(port, faults) if name == "ledger" else port)


def index(here: MemorySystem, key: str) -> Job:
    job = here.submit("index_module", f'{{"key":"{key}"}}')
    here.run_relay()
    here.run_worker()
    return here.job(job.job_id)


def row(here: MemorySystem, table: str, name: str) -> Any:
    return here.memory_ledger.read_item(table, {TABLES[table][0]: name})


def test_files_of_a_package_have_a_row_each_and_one_total(s3: Any) -> None:
    s3.put_object(Bucket=BUCKET, Key="p/a.py", Body=b"import os\ndef f(): ...\n")
    s3.put_object(Bucket=BUCKET, Key="p/b.py", Body=b"class C: ...\n")
    here = system()
    assert index(here, "p/a.py").result == '{"lines":2,"classes":0,"functions":1,"imports":1}'
    assert index(here, "p/b.py").state is State.SUCCEEDED
    assert row(here, "Modules", "p/a.py") == {
        "module": "p/a.py", "package": "p", "lines": 2, "classes": 0, "functions": 1, "imports": 1, "times_indexed": 1,
    }  # fmt: skip
    assert row(here, "PackageTotals", "p") == {
        "package": "p", "modules": 2, "lines": 3, "classes": 1, "functions": 1, "imports": 1,
    }  # fmt: skip


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_worker_that_dies_around_its_commit_has_added_once_when_the_job_has_ended(s3: Any, when: Any) -> None:
    s3.put_object(Bucket=BUCKET, Key="p/a.py", Body=b"import os\n")
    here = system(crash("write", when=when, where=lambda change, effects=(), **_: bool(effects)))
    job = here.submit("index_module", '{"key":"p/a.py"}')
    here.run_relay()
    with pytest.raises(WorkerDied):
        here.run_worker(here.worker("the one that dies"))
    here.clock.advance(3600)  # type: ignore[attr-defined]
    here.run_worker(here.worker("another"))
    assert here.job(job.job_id).state is State.SUCCEEDED
    assert row(here, "Modules", "p/a.py")["times_indexed"] == 1
    assert row(here, "PackageTotals", "p")["modules"] == 1


def test_a_file_that_cannot_be_parsed_is_dead_with_the_parsers_message_and_leaves_no_row(s3: Any) -> None:
    s3.put_object(Bucket=BUCKET, Key="p/broken.py", Body=b"def f(:\n")
    here = system()
    job = index(here, "p/broken.py")
    assert (job.state, job.attempts) == (State.DEAD, 1)
    assert job.error == "p/broken.py cannot be parsed: SyntaxError: invalid syntax (broken.py, line 1)"
    assert row(here, "Modules", "p/broken.py") is None
    assert row(here, "PackageTotals", "p") is None


def test_a_file_that_is_not_there_is_dead_and_one_too_large_is_not_read_to_its_end(s3: Any) -> None:
    s3.put_object(Bucket=BUCKET, Key="huge.py", Body=b"#" * (3 * 1024 * 1024))
    here = system()
    assert index(here, "nowhere.py").error == "there is no nowhere.py in the bucket"
    assert "more than 1048576 bytes" in (index(here, "huge.py").error or "")


def test_a_file_that_the_worker_may_not_read_is_dead(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its role reads the prefix that the demo uploads to, and no other: trying again would change nothing."""

    def refuse(**_: Any) -> None:
        raise ClientError({"Error": {"Code": "AccessDenied", "Message": "Access Denied"}}, "GetObject")

    monkeypatch.setattr(s3, "get_object", refuse)
    job = index(system(), "aws/lambda/batch")
    assert (job.state, job.error) == (State.DEAD, "aws/lambda/batch is not among the files that jobs may read")


def test_a_bucket_out_of_reach_is_tried_again(s3: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RINGFENCE_BUCKET", "no-such-bucket")
    job = index(system(), "p/a.py")
    assert job.state is State.QUEUED
    assert "NoSuchBucket" in (job.error or "")
