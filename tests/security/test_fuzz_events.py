"""What comes in from outside is read without a crash: it is a request and gets its answer, or it is set aside and told of."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from hypothesis import strategies as st

from ringfence import App, Context, Retry
from ringfence.aws.events import UnknownQueue, WrongEvent
from ringfence.errors import Poisoned, Rejected
from ringfence.job import State
from ringfence.listing import Query
from ringfence.memory.clock import ManualClock
from ringfence.memory.ledger import MemoryLedger
from ringfence.redis.messages import leases_in, with_deliveries
from ringfence.redis.packing import ERRORS
from ringfence.replay import UnreadableBatch
from ringfence.testing.given import Given
from ringfence.testing.memory_api import event_of
from ringfence.testing.system import MemorySystem
from ringfence.wire import MAX_RECORD_BYTES, decode_record, decode_ticket

from .buckets import event_of as event_of_records
from .buckets import failed_batches, invocation
from .conftest import app
from .fuzzing import Fuzz
from .handlers import Deployed
from .made_up import JSON, ODD_TEXTS, bytes_of, exactly, mostly, nearly, texts_of

pytestmark = pytest.mark.fuzz

NOW = 1_700_000_000_000

RECORD = {
    "v": 1,
    "jobs": [
        {
            "job_id": "a" * 26,
            "tenant": "default",
            "queue": "default",
            "name": "echo",
            "payload": '{"said":"x"}',
            "payload_sha256": "0" * 64,
            "created_at": NOW,
            "max_attempts": 3,
            "run_at": NOW + 1_000,
            "registered": False,
            "traceparent": "00-" + "1" * 32 + "-" + "2" * 16 + "-01",
            "guarantee": "once",
        }
    ],
}
TICKET = {
    "ticket_id": "b" * 16,
    "job_id": "a" * 26,
    "tenant": "default",
    "name": "echo",
    "v": 1,
    "traceparent": "00-" + "1" * 32 + "-" + "2" * 16 + "-01",
}
CARRIED = {**TICKET, "payload": '{"said":"x"}', "max_attempts": 3, "created_at": NOW}

RECORDS = bytes_of(texts_of(nearly(RECORD)))
TICKETS = texts_of(mostly(1, nearly(TICKET), nearly(CARRIED)))


# --- formats ---------------------------------------------------------------------------------------------------------


def test_a_log_record_is_read_or_poisoned(fuzz: Fuzz) -> None:
    def check(data: bytes) -> None:
        with suppress(Poisoned):
            jobs = decode_record(data)
            assert len(msgspec.json.encode(jobs)) < 8 * MAX_RECORD_BYTES
            for job in jobs:
                job.job_id.encode("ascii")

    fuzz(RECORDS, check)


def test_a_ticket_is_read_or_poisoned(fuzz: Fuzz) -> None:
    def check(body: str) -> None:
        with suppress(Poisoned):
            ticket = decode_ticket(body)
            ticket.job_id.encode("ascii")

    fuzz(TICKETS, check)


CURSOR = ["f" * 16, NOW, "a" * 26]


def test_a_cursor_leads_somewhere_in_its_own_listing_or_is_refused(fuzz: Fuzz) -> None:
    query = Query("mine", ["default"], State.DEAD)
    digest = query._digest()
    fields = st.tuples(
        mostly(6, st.just(digest), st.just(CURSOR[0]), ODD_TEXTS),
        mostly(3, st.just(NOW), st.integers(-(10**40), 10**40), st.floats(), JSON),
        mostly(3, st.just(CURSOR[2]), ODD_TEXTS, JSON),
    ).map(list)
    written = texts_of(fields).map(lambda text: base64.urlsafe_b64encode(text.encode("utf-8", "surrogatepass")).decode())
    cursors = st.one_of(written, written.map(lambda text: text.rstrip("=")), st.text(), ODD_TEXTS)

    def check(cursor: str) -> None:
        with suppress(Rejected):
            position = query.position_of(cursor)
            # As a store can take them: DynamoDB's numbers have 38 digits, its keys are texts of UTF-8.
            assert 0 <= position.at < 10**15
            assert 1 <= len(position.job_id.encode()) <= 64

    fuzz(cursors, check)


def test_what_lies_in_redis_becomes_a_lease_that_can_be_acknowledged(fuzz: Fuzz) -> None:
    heads = st.sampled_from(["", "0123456789abc\x1f", "\x1f", "short\x1f"])
    bodies = st.builds(str.__add__, heads, bytes_of(TICKETS).map(lambda raw: raw.decode("utf-8", ERRORS)))

    def check(members: list[str]) -> None:
        reply = ["1700000000000", "0", "0", *(part for member in members for part in (member, 2))]
        leases = leases_in(reply, "default")
        assert with_deliveries(leases) == [part for member in members for part in (member, "2")]
        assert all(lease.message_id and lease.receipt for lease in leases)

    fuzz(st.lists(bodies, max_size=4), check)


# --- the gateway's event -----------------------------------------------------------------------------------------------


def answered(here: Deployed, event: Any) -> None:
    """Whatever it was, the answer is one that API Gateway takes, and blames nobody here."""
    answer = here.invoke("gateway", event)
    assert json.loads(json.dumps(answer)) == answer
    assert 200 <= answer["statusCode"] < 500, answer
    assert all(isinstance(value, str) and value.isprintable() for value in answer["headers"].values())
    if answer["statusCode"] >= 400:
        assert json.loads(answer["body"])["status"] == answer["statusCode"]
        assert answer["headers"]["Content-Type"] == "application/problem+json"


def http_event(key: str) -> dict[str, Any]:
    headers = {"authorization": f"Bearer {key}", "content-type": "application/json", "idempotency-key": "k"}
    return event_of("POST", "/v1/jobs?limit=1", headers, '{"name":"echo","payload":{"said":"x"}}')


def test_an_event_of_any_shape_is_answered(fuzz: Fuzz) -> None:
    """Only Lambda's own permission lets anybody send one that no gateway made; it ends in an answer all the same."""
    here = Deployed(MemorySystem(app()))
    fuzz(nearly(http_event(here.key())), lambda event: answered(here, event))


def test_a_request_of_any_text_is_answered(fuzz: Fuzz) -> None:
    here = Deployed(MemorySystem(app()))
    key = here.key()
    paths = st.sampled_from(["/v1/jobs", "/v1/jobs/" + "a" * 26, "/v1/queues/default", "/v1/quarantine", "/"]) | st.text().map(
        "/v1/jobs/{}".format
    )
    headers = st.dictionaries(
        st.sampled_from(["idempotency-key", "traceparent", "if-none-match", "host", "origin", "Authorization"]),
        st.text() | ODD_TEXTS,
    )
    bodies = texts_of(nearly({"name": "echo", "payload": {"a": [1]}, "max_attempts": 3, "run_at": "2030-01-01T00:00:00Z"}))
    requests = st.fixed_dictionaries(
        {
            "method": st.sampled_from(["GET", "POST", "PATCH", "DELETE", "", "get"]),
            "path": paths,
            "query": st.text() | st.sampled_from(["limit=1", "limit=1&limit=1", "cursor=%00", "wait=1", "a=%ff", "&" * 100]),
            "headers": headers,
            "body": st.none() | bodies | bytes_of(bodies) | st.text(),
            "in_base64": st.booleans(),
        }
    )

    def check(made_up: Mapping[str, Any]) -> None:
        event = event_of(made_up["method"], "/", {"authorization": f"Bearer {key}", **made_up["headers"]}, made_up["body"])
        event |= {"rawPath": made_up["path"], "rawQueryString": made_up["query"]}
        if made_up["in_base64"]:
            event["isBase64Encoded"] = True
        answered(here, event)

    fuzz(requests, check)


# --- the events of batches ---------------------------------------------------------------------------------------------


def batches(record: Mapping[str, Any]) -> st.SearchStrategy[Any]:
    """Events of some such records, and others that are nearly that."""
    right = st.lists(exactly(record), max_size=4).map(lambda records: {"Records": records})
    return mostly(1, right, nearly({"Records": [record, record]}))


def records_of(event: Any) -> list[Any] | None:
    records = event.get("Records") if isinstance(event, dict) else None
    return records if isinstance(records, list) else None


def is_handle(value: Any) -> bool:
    """A text of visible characters: what else cannot be given back to where it came from."""
    return isinstance(value, str) and bool(value) and all("!" <= character <= "~" for character in value)


def refused_as_a_whole(here: Deployed, function: str, event: Any, error: type[Exception]) -> None:
    """It says what is wrong, and nothing of the event was handled: all of it will come again."""
    rows = here.system.memory_ledger.all_jobs()
    with pytest.raises(error) as refusal:
        here.invoke(function, event)
    assert str(refusal.value).isprintable()
    assert here.system.telemetry.events == []
    assert here.system.quarantine.items() == []
    assert here.system.memory_ledger.all_jobs() == rows


# --- the relay's event -------------------------------------------------------------------------------------------------


def in_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


KINESIS_RECORD = {
    "eventSource": "aws:kinesis",
    "eventID": "shardId-000000000006:1",
    "kinesis": {
        "data": mostly(8, RECORDS.map(in_base64), st.text(), ODD_TEXTS),
        "sequenceNumber": st.integers(0, 10**100).map(str),
        "partitionKey": "p",
    },
}


def has_a_sequence_number(record: Any) -> bool:
    kinesis = record.get("kinesis") if isinstance(record, dict) else None
    number = kinesis.get("sequenceNumber") if isinstance(kinesis, dict) else None
    return is_handle(number) and number.isdigit() and len(number) <= 129


def is_a_record_of_ours(data: Any) -> bool:
    try:
        decode_record(base64.b64decode(data, validate=True))
    except (Poisoned, TypeError, ValueError):
        return False
    return True


def test_c08_a_batch_of_the_log_is_relayed_or_set_aside_and_never_holds_the_shard(fuzz: Fuzz) -> None:
    def check(event: Any) -> None:
        here, records = Deployed(MemorySystem(app())), records_of(event)
        if records is None or not all(map(has_a_sequence_number, records)):
            refused_as_a_whole(here, "relay", event, WrongEvent)
            return
        assert here.invoke("relay", event) == {"batchItemFailures": []}
        assert here.system.telemetry.named("relay_held") == []
        set_aside = here.system.quarantine.items()
        assert all(item.reason for item in set_aside)
        poison = [record["kinesis"] for record in records if not is_a_record_of_ours(record["kinesis"].get("data"))]
        assert {kinesis["sequenceNumber"] for kinesis in poison} <= {item.position for item in set_aside}

    fuzz(batches(KINESIS_RECORD), check)


# --- the worker's event --------------------------------------------------------------------------------------------------

SQS_RECORD = {
    "messageId": st.integers(0).map("m{}".format),
    "receiptHandle": st.integers(0).map("r{}".format),
    "body": TICKETS,
    "attributes": {"ApproximateReceiveCount": st.integers(1, 1_000).map(str)},
    "eventSource": "aws:sqs",
    "eventSourceARN": st.sampled_from(["default", "default", "default", "priority"]).map("arn:aws:sqs:eu-west-1:1:{}".format),
}


ROW = Given(MemoryLedger(ManualClock()), ManualClock()).row(job_id="a" * 26, name="echo", payload='{"said":"x"}')
"""Of the job that the right tickets name."""


def is_a_message(record: Any) -> bool:
    return (
        isinstance(record, dict)
        and all(is_handle(record.get(name)) for name in ("messageId", "receiptHandle"))
        and isinstance(record.get("eventSourceARN"), str)
    )


def is_a_ticket(body: Any) -> bool:
    try:
        decode_ticket(body)
    except (Poisoned, TypeError):
        return False
    return True


def test_c24_a_batch_of_messages_is_worked_on_or_set_aside(fuzz: Fuzz) -> None:
    """None is left over: what cannot be read is quarantined and acknowledged, or it would come again for days."""

    def check(event: Any) -> None:
        here, records = Deployed(MemorySystem(app())), records_of(event)
        here.system.memory_ledger.register(ROW)
        if records is None or not all(map(is_a_message, records)):
            refused_as_a_whole(here, "worker", event, WrongEvent)
            return
        if not all(record["eventSourceARN"].rpartition(":")[2] in here.queues for record in records):
            refused_as_a_whole(here, "worker", event, UnknownQueue)
            return
        assert here.invoke("worker", event) == {"batchItemFailures": []}
        assert here.system.telemetry.named("message_failed") == []
        poison = {record["messageId"] for record in records if not is_a_ticket(record.get("body"))}
        assert poison <= {item.position for item in here.system.quarantine.items()}

    fuzz(batches(SQS_RECORD), check)


# --- what timers find ------------------------------------------------------------------------------------------------------


def test_what_sqs_gave_up_on_is_revived_or_set_aside(fuzz: Fuzz) -> None:
    """The event of a schedule says nothing that timers read; what they read is the last resort."""

    def check(made_up: tuple[Any, list[str]]) -> None:
        event, bodies = made_up
        here = Deployed(MemorySystem(app()))
        for body in bodies:
            here.system.last_resort.put(body)
        assert here.invoke("timers", event)["drained"] == len(bodies)
        assert here.system.last_resort.depth().ready == 0

    fuzz(st.tuples(nearly({"source": "aws.events", "time": "2026-11-05T12:00:00Z"}), st.lists(TICKETS, max_size=3)), check)


# --- what a mapping has given up -----------------------------------------------------------------------------------------


def test_a_failed_batch_is_read_again_or_told_to_be_none(fuzz: Fuzz) -> None:
    """`ringfence replay` goes on with the next one."""
    events = texts_of(nearly(event_of_records(json.dumps(RECORD).encode(), b"x")))
    bodies = bytes_of(texts_of(nearly(invocation(events))))

    def check(body: bytes) -> None:
        batches = failed_batches(body)
        (name,) = batches.names()
        with suppress(UnreadableBatch):
            batch = batches.read(name)
            assert 0 <= batch.jobs() <= len(batch.entries)
            assert all(isinstance(entry.data, bytes) and isinstance(entry.partition_key, str) for entry in batch.entries)

    fuzz(bodies, check)


PYTHON = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | ODD_TEXTS
    | st.binary()
    | st.just(object)
    | st.just({1}),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.integers(), inner, max_size=3) | st.tuples(inner)
    ),
    max_leaves=6,
)
"""What a job may think of saving."""


def test_whatever_a_job_saves_it_finds_again_behind_the_line_of_its_queue_or_is_told_so(fuzz: Fuzz) -> None:
    def check(saved: Any) -> None:
        found: list[Any] = []
        jobs = App()

        @jobs.job("save", max_attempts=2)
        def save(ctx: Context) -> None:
            if ctx.attempt == 2:
                found.append(ctx.last_checkpoint)
                return
            ctx.checkpoint(saved)
            raise Retry("from there")

        system = MemorySystem(jobs)
        system.queue_settings.change("default", {"rate_per_second": 1.0})
        job_id = system.submit("save").job_id
        system.run_relay()
        system.run_worker()
        kept = system.job(job_id)
        for paused in (True, False):
            system.queue_settings.change("default", {"paused": paused})
            system.clock.sleep(120)
            system.timers.run()
            assert system.job(job_id).in_line == (paused and kept.checkpoint is not None)
            system.run_worker()
        ended = system.job(job_id)
        assert system.telemetry.named("message_failed") == []
        if kept.checkpoint is None:
            assert (ended.state, found, bool(ended.error)) == (State.DEAD, [], True)
        else:
            assert ended.state is State.SUCCEEDED
            assert [json.dumps(each) for each in found] == [json.dumps(json.loads(kept.checkpoint))]

    fuzz(PYTHON, check)
