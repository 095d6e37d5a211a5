"""What the DynamoDB ledger sends and keeps: how many requests, how large a row, which index entries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from ringfence import transitions
from ringfence.aws.itemsize import item_bytes
from ringfence.aws.layout import ROW_BYTES
from ringfence.aws.ledger import DynamoLedger
from ringfence.change import Refused, Written
from ringfence.effects import Effect, Put, Update
from ringfence.errors import Poisoned, Rejected
from ringfence.job import Job, Progress
from ringfence.memory.clock import ManualClock
from ringfence.testing.given import Given

DAY_SECONDS = 24 * 3600


@pytest.fixture
def sent(store: Any) -> Iterator[list[tuple[str, bytes]]]:
    """Every request from now on: the operation and the body."""
    requests: list[tuple[str, bytes]] = []

    def note(model: Any, params: dict[str, Any], **_: Any) -> None:
        requests.append((model.name, params["body"]))

    store.client.meta.events.register("before-call.dynamodb", note)
    yield requests
    store.client.meta.events.unregister("before-call.dynamodb", note)


def raw_items(store: Any, job: Job) -> dict[str, dict[str, Any]]:
    """All items under the job's key, by sort key."""
    reply = store.client.query(
        TableName=store.ledger_table,
        KeyConditionExpression="pk = :id",
        ExpressionAttributeValues={":id": {"S": job.job_id}},
    )
    return {item["sk"]["S"]: item for item in reply["Items"]}


# --- requests ------------------------------------------------------------------------------------------------------------


def test_a_job_without_effects_costs_one_request_a_step(given: Given, sent: list[tuple[str, bytes]]) -> None:
    job = given.queued("[" + "1" * 598 + "]")
    job = given.claimed(job)
    given.done(given.success(job, "[]"))
    assert [operation for operation, _ in sent] == ["PutItem", "UpdateItem", "UpdateItem"]


def test_a_large_payload_is_written_once_and_not_read_again_by_its_owner(given: Given, sent: list[tuple[str, bytes]]) -> None:
    job = given.running("[" + "1" * 5_000 + "]")
    job = given.done(transitions.heartbeat(job, write_id=given.mark(), lease_until=1, progress=None))
    given.done(given.success(job))
    assert [operation for operation, _ in sent] == ["PutItem", "PutItem", "UpdateItem", "UpdateItem", "UpdateItem"]


def test_another_process_reads_a_large_payload_once(
    given: Given, store: Any, clock: ManualClock, sent: list[tuple[str, bytes]]
) -> None:
    queued = given.queued("[" + "1" * 5_000 + "]")
    worker = DynamoLedger(store.client, store.ledger_table, store.user_tables, clock)
    del sent[:]
    claimed = worker.write(given.claim(queued))
    assert isinstance(claimed, Written)
    worker.write(given.success(claimed.job))
    assert [operation for operation, _ in sent] == ["UpdateItem", "GetItem", "UpdateItem"]
    assert b'"ConsistentRead": true' in sent[1][1]


def test_a_refused_claim_needs_no_second_read(given: Given, sent: list[tuple[str, bytes]], ledger: DynamoLedger) -> None:
    running = given.running()
    del sent[:]
    assert ledger.write(given.claim(running)) == Refused(running)
    assert [operation for operation, _ in sent] == ["UpdateItem"]


def test_a_transaction_sent_again_is_the_same_to_the_byte(
    given: Given, ledger: DynamoLedger, clock: ManualClock, sent: list[tuple[str, bytes]]
) -> None:
    """DynamoDB refuses a token it has seen with other content, so nothing in the request may hang on the time."""
    change = given.success(given.running("[" + "1" * 500 + "]"), "[" + "2" * 500 + "]")
    effects: list[Effect] = [
        Put(table="Users", item={"email": "a", "tags": {"x", "y", "z"}, "n": 0.1}, unless_exists=True),
        Update(table="Visits", key={"email": "a", "day": "1"}, add={"n": 1}, version=0),
    ]
    for _ in range(2):
        ledger.write(change, effects, request_token="t" * 36)
        clock.advance(7 * DAY_SECONDS)
    first, second = (body for operation, body in sent if operation == "TransactWriteItems")
    assert first == second


def test_reads_of_rows_and_users_items_are_strongly_consistent(
    given: Given, ledger: DynamoLedger, sent: list[tuple[str, bytes]]
) -> None:
    job = given.queued()
    del sent[:]
    ledger.get(job.job_id)
    ledger.read_item("Users", {"email": "a"})
    assert [b'"ConsistentRead": true' in body for _, body in sent] == [True, True]


# --- rows ----------------------------------------------------------------------------------------------------------------


def a_full_life(given: Given, payload_bytes: int, result: str) -> Iterator[Job]:
    """Every kind of write that widens a row: due mark, claims, progress, three remembered attempts, an error, a result."""
    payload = "[" + "1" * (payload_bytes - 2) + "]"
    job = given.scheduled(in_seconds=0, payload=payload, name="send_invoice")
    yield job
    for _ in range(3):
        job = given.claimed(job)
        yield job
        beat = transitions.heartbeat(job, write_id=given.mark(), lease_until=job.lease_until or 0, progress=Progress(90, 120))
        job = given.done(beat)
        yield job
        now = given.clock.now() + 29_999
        job = given.done(transitions.retry_soon(job, "Timeout: 503", write_id=given.mark(), now=now, run_at=given.clock.now()))
        yield job
    job = given.claimed(job)
    yield job
    yield given.done(given.success(job, result))


@pytest.mark.parametrize("payload_bytes", [20, 300, 600])
@pytest.mark.parametrize("result", ["null", '{"email":"ada@example.org"}', "[" + "1" * 500 + "]"])
def test_a_row_stays_under_one_kb_through_its_whole_life(given: Given, store: Any, payload_bytes: int, result: str) -> None:
    """The bill counts units of 1 KB. Sizes by the rules of `itemsize`, which names DynamoDB's page."""
    for job in a_full_life(given, payload_bytes, result):
        assert item_bytes(raw_items(store, job)["j"]) < ROW_BYTES


@pytest.mark.parametrize(("payload_bytes", "beside_the_row"), [(600, 0), (601, 1)])
def test_a_payload_of_600_bytes_lies_in_the_row(given: Given, store: Any, payload_bytes: int, beside_the_row: int) -> None:
    job = given.queued("[" + "1" * (payload_bytes - 2) + "]")
    assert len(raw_items(store, job)) == 1 + beside_the_row


def test_a_payload_goes_apart_where_long_names_leave_no_room(given: Given, store: Any) -> None:
    job = given.queued("[" + "1" * 500 + "]", name="n" * 100, tenant="t" * 100)
    assert len(raw_items(store, job)) == 2
    assert item_bytes(raw_items(store, job)["j"]) < ROW_BYTES


def test_a_text_apart_outlives_the_time_its_job_is_due(given: Given, store: Any, clock: ManualClock) -> None:
    in_seconds = 300 * DAY_SECONDS
    items = raw_items(store, given.scheduled(in_seconds=in_seconds, payload="[" + "1" * 5_000 + "]"))
    (text,) = (item for sort_key, item in items.items() if sort_key != "j")
    assert int(text["ttl"]["N"]) == clock.now() // 1000 + in_seconds + 400 * DAY_SECONDS
    assert "ttl" not in items["j"]


def test_a_job_whose_payload_is_gone_never_runs_but_can_be_buried(given: Given, store: Any, clock: ManualClock) -> None:
    """`Poisoned` tells the owner; a refusal still returns the row, so that the rules end the job when its attempts are up."""
    job = given.queued("[" + "1" * 5_000 + "]", max_attempts=1)
    (sort_key,) = raw_items(store, job).keys() - {"j"}
    store.client.delete_item(TableName=store.ledger_table, Key={"pk": {"S": job.job_id}, "sk": {"S": sort_key}})
    worker = DynamoLedger(store.client, store.ledger_table, store.user_tables, clock)
    claim = given.claim(job)
    with pytest.raises(Poisoned):
        worker.write(claim)
    with pytest.raises(Poisoned):
        worker.get(job.job_id)
    refused = worker.write(given.claim(job))
    assert isinstance(refused, Refused)
    assert refused.seen is not None
    assert refused.seen.payload is None
    bury = transitions.bury_used_up(refused.seen, write_id=given.mark(), now=clock.now(), expires_at=given.expiry())
    with pytest.raises(Poisoned):
        worker.write(bury)
    assert raw_items(store, job)["j"]["s"] == {"S": "d"}


# --- index entries -------------------------------------------------------------------------------------------------------


def index_keys(store: Any, job: Job) -> set[str]:
    return {"lk", "dk", "xk"} & raw_items(store, job)["j"].keys()


def test_a_row_is_in_the_sparse_indexes_only_while_it_belongs_there(given: Given, store: Any) -> None:
    job = given.scheduled(in_seconds=0)
    assert index_keys(store, job) == {"lk", "dk"}
    job = given.claimed(job)
    now, expires_at = given.clock.now(), given.expiry()
    job = given.done(transitions.give_up(job, "x", write_id=given.mark(), now=now, expires_at=expires_at))
    assert index_keys(store, job) == {"lk", "xk"}
    job = given.done(transitions.redrive(job, write_id=given.mark(), now=now, due_id=given.mark()))
    assert index_keys(store, job) == {"lk", "dk"}
    job = given.claimed(given.done(transitions.clear_mark(job, write_id=given.mark())))
    assert index_keys(store, job) == {"lk"}
    assert index_keys(store, given.done(given.success(job))) == {"lk"}


def test_the_listing_entry_never_changes(given: Given, store: Any) -> None:
    job = given.queued()
    entry = {name: raw_items(store, job)["j"][name] for name in ("lk", "c")}
    dead = given.done(
        transitions.bury_unreadable(job, "x", write_id=given.mark(), now=given.clock.now(), expires_at=given.expiry())
    )
    assert {name: raw_items(store, dead)["j"][name] for name in ("lk", "c")} == entry


def test_dead_jobs_are_found_by_their_index(given: Given, store: Any) -> None:
    dead = given.dead(tenant="a#b")
    reply = store.client.query(
        TableName=store.ledger_table,
        IndexName="dead",
        KeyConditionExpression="xk = :mine",
        ExpressionAttributeValues={":mine": raw_items(store, dead)["j"]["xk"]},
    )
    assert [entry["pk"]["S"] for entry in reply["Items"]] == [dead.job_id]
    assert raw_items(store, dead)["j"]["xk"]["S"].startswith("a%23b#")


# --- what a job may not reach --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("as_named", ["ledger", "Alias"])
def test_a_job_may_not_touch_the_ledgers_own_table(given: Given, store: Any, clock: ManualClock, as_named: str) -> None:
    """Its role may write there, for its own commit: nothing but this stands between a job and other jobs' rows."""
    ledger = DynamoLedger(store.client, store.ledger_table, {"Alias": store.ledger_table}, clock)
    victim, job = given.queued(), given.running()
    effect = Put(table=as_named, item={"pk": victim.job_id, "sk": "j"})
    with pytest.raises(Rejected):
        ledger.write(given.success(job), [effect], request_token=given.mark())
    with pytest.raises(Rejected):
        ledger.read_item(as_named, {"pk": victim.job_id, "sk": "j"})
    assert ledger.get(victim.job_id) == victim
    assert ledger.get(job.job_id) == job


def test_a_table_that_is_not_listed_is_used_by_its_own_name(given: Given, store: Any, ledger: DynamoLedger) -> None:
    physical = store.user_tables["Users"]
    effect = Put(table=physical, item={"email": "a"})
    ledger.write(given.success(given.running()), [effect], request_token=given.mark())
    assert ledger.read_item("Users", {"email": "a"}) == {"email": "a"}


def test_a_change_with_effects_names_the_row_it_saw(given: Given, ledger: DynamoLedger) -> None:
    blind = replace(given.success(given.running()), seen=None)
    with pytest.raises(ValueError, match="must name the row it saw"):
        ledger.write(blind, [Put(table="Users", item={"email": "a"})], request_token=given.mark())
