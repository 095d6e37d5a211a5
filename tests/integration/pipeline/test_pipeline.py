"""One job and many, from HTTP to their effect, with real processes over a real emulator."""

from __future__ import annotations

import gzip
import json
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from typing import TypeVar

import pytest
from click.testing import CliRunner

from ringfence import Client, jsontext
from ringfence.cli.main import main
from ringfence.client import JobRequest, RawJson
from ringfence.job import State
from ringfence.local.dev import Dev
from ringfence.local.sources.failed_batches import FailedBatches
from ringfence.local.sources.kinesis_batch import Piece, Record
from ringfence.runtime import Runtime
from ringfence.wire import JobRecord, encode_records

Seen = TypeVar("Seen")


@pytest.fixture
def client(dev: Dev) -> Iterator[Client]:
    with Client(dev.api_url) as made:
        yield made


def soon(look: Callable[[], Seen | bool | None], what: str, within_seconds: float = 30.0) -> Seen:
    """What ``look`` finds, as soon as it finds something true."""
    deadline = time.monotonic() + within_seconds
    while time.monotonic() < deadline:
        found = look()
        if found:
            return found
        time.sleep(0.05)
    raise AssertionError(f"not within {within_seconds} s: {what}")


def unique(word: str) -> str:
    return f"{word}-{uuid.uuid4().hex[:12]}@example.com"


def test_a_job_goes_in_over_http_and_both_its_rows_are_there_once(client: Client, here: Runtime) -> None:
    email = unique("ada")
    submitted = client.submit("signup", {"email": email, "name": "Ada"})
    ended = client.wait(submitted.job_id, timeout_seconds=60)
    assert (ended.state, ended.token, ended.attempts) == ("succeeded", 1, 1)
    assert here.ledger.read_item("Users", {"email": email}) is not None
    assert here.ledger.read_item("Profiles", {"email": email}) is not None


def test_the_same_key_twenty_times_at_once_is_one_job_and_one_charge(client: Client, dev: Dev, here: Runtime) -> None:
    account = uuid.uuid4().hex
    funds = {"account_id": {"S": account}, "balance_cents": {"N": "20000"}, "version": {"N": "1"}}
    dev.endpoint.client("dynamodb").put_item(TableName=here.settings.tables["Accounts"], Item=funds)
    payload = {"account_id": account, "amount_cents": 5_000}
    with ThreadPoolExecutor(20) as pool:
        submitted = list(pool.map(lambda _: client.submit("charge", payload, idempotency_key=account), range(20)))
    (job_id,) = {each.job_id for each in submitted}
    ended = client.wait(job_id, timeout_seconds=60)
    assert ended.state == "succeeded", ended.error
    row = here.ledger.read_item("Accounts", {"account_id": account})
    assert row is not None
    assert row["balance_cents"] == 15_000
    with pytest.raises(Exception, match="idempotency key"):
        client.submit("charge", {**payload, "amount_cents": 1}, idempotency_key=account)


EXACT = [
    "9007199254740993",
    "1e300",
    "-0.0",
    "1E5",
    "1.0",
    "1" + "0" * 300,
    '"\\u0000\\u001b[31m\\u202e\\ud83d\\ude00 \u2028 é"',
    '{"a":' * 31 + "[]" + "}" * 31,
    '[0.1,0.30000000000000004,{"":null}]',
]


@pytest.mark.parametrize("text", EXACT, ids=range(len(EXACT)))
def test_values_survive_to_the_letter_and_so_does_their_hash(client: Client, here: Runtime, text: str) -> None:
    submitted = client.submit("nobody-runs-this", RawJson(text), delay_seconds=3_600)
    row = here.ledger.get(submitted.job_id)
    assert row is not None
    shown = client.get(submitted.job_id).document
    assert (row.payload, bytes(shown.payload or b"").decode()) == (text, text)
    assert row.payload_sha256 == shown.payload_sha256 == jsontext.sha256(text)


def test_many_jobs_in_one_request_all_end(client: Client) -> None:
    outcomes = client.submit_many(
        [JobRequest(name="signup", payload={"email": unique(f"m{n}"), "name": "M"}) for n in range(30)]
    )
    for outcome in outcomes:
        assert not isinstance(outcome, Exception)
        assert client.wait(outcome.job_id, timeout_seconds=60).state == "succeeded"


def test_c08_poison_in_the_log_rests_in_the_quarantine_while_its_neighbours_run(
    client: Client, dev: Dev, here: Runtime
) -> None:
    kinesis = dev.endpoint.client("kinesis")
    poison = [gzip.compress(uuid.uuid4().bytes), b'{"v":99,"jobs":[]}', b"[]", b"\xf3\x89\x9a\xc2KPL"]
    good = []
    for bad in poison:
        kinesis.put_record(StreamName=here.settings.stream, Data=bad, PartitionKey="p")
        good.append(client.submit("signup", {"email": unique("good"), "name": "G"}))
    for submitted in good:
        assert client.wait(submitted.job_id, timeout_seconds=60).state == "succeeded"

    def kept() -> bool:
        return set(poison) <= {item.data for item in here.quarantine.items()}

    soon(kept, "all poison in the quarantine")
    assert all(item.reason and item.position for item in here.quarantine.items())


def test_c24_foreign_messages_are_quarantined_by_a_worker_that_lives_on(client: Client, dev: Dev, here: Runtime) -> None:
    sqs, url = dev.endpoint.client("sqs"), here.settings.queues["default"]
    mark = uuid.uuid4().hex
    foreign = [f"hello {mark}", f'["{mark}"]', f'{{"{mark}":1}}', f'{{"v":999,"ticket_id":"{mark}","job_id":"j","tenant":"t"}}']
    before = set(dev.pids("WorkerFunction"))
    for body in foreign:
        sqs.send_message(QueueUrl=url, MessageBody=body)
    good = client.submit("signup", {"email": unique("good"), "name": "G"})
    assert client.wait(good.job_id, timeout_seconds=60).state == "succeeded"
    soon(lambda: {body.encode() for body in foreign} <= {item.data for item in here.quarantine.items()}, "all quarantined")
    assert before <= set(dev.pids("WorkerFunction"))


def unregistered(here: Runtime) -> tuple[JobRecord, bytes]:
    """A job whose row could not be written, and the record that it would be in the log."""
    record = JobRecord(
        job_id=here.ids.job(),
        tenant="default",
        queue="priority",
        name="signup",
        payload=json.dumps({"email": unique("un"), "name": "U"}),
        payload_sha256="0" * 64,
        created_at=here.clock.now(),
        max_attempts=5,
        registered=False,
    )
    ((data, _),) = encode_records([record])
    return record, data


def test_an_unregistered_record_in_the_log_is_registered_and_run(dev: Dev, here: Runtime) -> None:
    record, data = unregistered(here)
    dev.endpoint.client("kinesis").put_record(StreamName=here.settings.stream, Data=data, PartitionKey="p")
    row = soon(lambda: (job := here.ledger.get(record.job_id)) and job.state.terminal and job, "the job has ended")
    assert row.state is State.SUCCEEDED


def test_what_the_relay_gave_up_runs_once_it_is_replayed(dev: Dev, here: Runtime) -> None:
    record, data = unregistered(here)
    s3, bucket = dev.endpoint.client("s3"), here.settings.bucket
    given_up = Piece((Record("7", "p", data, datetime.now(UTC)),), 3)
    stream_arn = f"arn:aws:kinesis:us-east-1:0:stream/{here.settings.stream}"
    FailedBatches(s3, bucket, stream_arn, "arn:f").put("shard-1", given_up, "RecordAgeExceeded", None)
    replayed = CliRunner().invoke(main, ["replay", "--json"], env=dict(dev.environment()))
    assert (replayed.exit_code, json.loads(replayed.stdout)["jobs"]) == (0, 1)
    row = soon(lambda: (job := here.ledger.get(record.job_id)) and job.state.terminal and job, "the job has ended")
    assert row.state is State.SUCCEEDED
    assert "Contents" not in s3.list_objects_v2(Bucket=bucket, Prefix="aws/lambda/")


def test_a_job_without_a_row_gets_one_when_it_dies_and_is_redriven_like_any_other(client: Client, here: Runtime) -> None:
    payload = {"email": unique("grace"), "name": "Grace"}
    job_id = client.submit("signup", payload, guarantee="at-least-once").job_id
    dead = soon(lambda: here.ledger.get(job_id), "a row of the job whose effects are refused")
    assert (dead.state, dead.token, jsontext.sha256(dead.payload or "")) == (State.DEAD, 0, dead.payload_sha256)
    assert "guarantee at-least-once" in str(dead.error)
    client.redrive(job_id)
    ended = client.wait(job_id, timeout_seconds=60)
    assert (ended.state, ended.token, ended.payload) == ("succeeded", 1, payload)


def test_a_delayed_job_is_not_early_and_a_dead_one_is_redriven_with_a_mended_payload(client: Client, here: Runtime) -> None:
    delayed = client.submit("signup", {"email": unique("later"), "name": "L"}, delay_seconds=2)
    wrong = client.submit("signup", {"email": 7})
    dead = client.wait(wrong.job_id, timeout_seconds=60)
    assert dead.state == "dead"
    assert "$.email" in (dead.error or "")
    client.redrive(wrong.job_id, {"email": unique("mended"), "name": "M"})
    redriven = soon(lambda: (job := here.ledger.get(wrong.job_id)) and job.state is State.SUCCEEDED and job, "redriven")
    assert redriven.token == 2
    client.wait(delayed.job_id, timeout_seconds=60)
    row = here.ledger.get(delayed.job_id)
    assert row is not None
    assert (row.started_at or 0) >= row.created_at + 2_000


def test_a_job_cancelled_before_it_is_due_never_runs(client: Client, here: Runtime) -> None:
    submitted = client.submit("signup", {"email": unique("never"), "name": "N"}, delay_seconds=60)
    assert client.cancel(submitted.job_id).state == "cancelled"
    row = here.ledger.get(submitted.job_id)
    assert row is not None
    assert (row.state, row.started_at) == (State.CANCELLED, None)
