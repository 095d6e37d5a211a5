"""What Lambda's mappings hand over becomes what the core reads, or is refused as a whole with its fault."""

from __future__ import annotations

import copy
from functools import reduce
from typing import Any

import pytest

from ringfence.aws.events import UnknownQueue, WrongEvent, leases_from_event, reads_from_event
from ringfence.errors import Poisoned
from ringfence.ports import Lease
from ringfence.relay import Read
from ringfence.wire import decode_ticket

# As in https://docs.aws.amazon.com/lambda/latest/dg/with-kinesis.html and https://docs.aws.amazon.com/lambda/latest/dg/with-sqs.html
KINESIS: dict[str, Any] = {
    "kinesis": {
        "kinesisSchemaVersion": "1.0",
        "partitionKey": "1",
        "sequenceNumber": "49590338271490256608559692538361571095921575989136588898",
        "data": "SGVsbG8=",
        "approximateArrivalTimestamp": 1545084650.987,
    },
    "eventSource": "aws:kinesis",
    "eventID": "shardId-000000000006:49590338271490256608559692538361571095921575989136588898",
    "eventSourceARN": "arn:aws:kinesis:us-east-2:123456789012:stream/lambda-stream",
}
SQS: dict[str, Any] = {
    "messageId": "059f36b4-87a3-44ab-83d2-661975830a7d",
    "receiptHandle": "AQEBwJnKyrHigUMZj6rYigCgxlaS3SLy0a...",
    "body": '{"v":1}',
    "attributes": {"ApproximateReceiveCount": "3", "SentTimestamp": "1545082649183"},
    "messageAttributes": {},
    "eventSource": "aws:sqs",
    "eventSourceARN": "arn:aws:sqs:us-east-2:123456789012:my-queue",
    "awsRegion": "us-east-2",
}
QUEUES = {"default": "https://sqs.us-east-2.amazonaws.com/123456789012/my-queue", "fast": "redis://h/jobs"}
TOO_DEEP: Any = reduce(lambda inner, _: [inner], range(50_000), [])

ABSENT = object()


def with_part(record: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """A batch of the record and of one that has another value at this path."""
    other = copy.deepcopy(record)
    *above, name = path.split(".")
    within = reduce(lambda part, key: part[key], above, other)
    if value is ABSENT:
        del within[name]
    else:
        within[name] = value
    return {"Records": [record, other]}


def is_told(refusal: WrongEvent, source: str, part: str) -> bool:
    """Whether a refusal names the source, the part that is wrong, and in which of the two records."""
    return all(told in str(refusal) for told in (f"no event of {source}", part, "$.Records[1]"))


# --- the log's ---------------------------------------------------------------------------------------------------------


def test_a_record_of_the_log_is_its_bytes_its_number_and_its_shard() -> None:
    number = KINESIS["kinesis"]["sequenceNumber"]
    assert reads_from_event({"Records": [KINESIS]}) == [Read(b"Hello", number, "shardId-000000000006")]


@pytest.mark.parametrize("data", ["@@@", "SGVsbG8", "é", "\ud800", 5, ["SGVsbG8="], {"a": 1}, True, TOO_DEEP])
def test_c08_data_that_is_no_base64_is_a_read_with_its_fault(data: Any) -> None:
    good, bad = reads_from_event(with_part(KINESIS, "kinesis.data", data))
    assert (good.fault, good.sequence) == (None, bad.sequence)
    assert bad.fault
    assert bad.data


@pytest.mark.parametrize("data", [ABSENT, None, ""])
def test_c08_a_record_without_data_is_an_empty_one(data: Any) -> None:
    _, empty = reads_from_event(with_part(KINESIS, "kinesis.data", data))
    assert (empty.data, empty.fault) == (b"", None)


@pytest.mark.parametrize("event_id", [ABSENT, None, "", 5, [], ":1", "with a space:1", "\ud800:1", TOO_DEEP])
def test_a_shard_that_is_not_told_is_unknown(event_id: Any) -> None:
    good, other = reads_from_event(with_part(KINESIS, "eventID", event_id))
    assert (good.shard, other.shard) == ("shardId-000000000006", "unknown")


@pytest.mark.parametrize("number", [ABSENT, None, "", " ", "12 ", "-1", "0x1", "١", "9" * 130, 5, ["1"], {}])
def test_a_record_without_a_number_cannot_be_checkpointed_and_its_batch_is_refused(number: Any) -> None:
    with pytest.raises(WrongEvent) as refusal:
        reads_from_event(with_part(KINESIS, "kinesis.sequenceNumber", number))
    assert is_told(refusal.value, "Kinesis", "sequenceNumber")


# --- a queue's ---------------------------------------------------------------------------------------------------------


def test_a_message_is_a_lease_of_the_queue_that_its_arn_names() -> None:
    expected = Lease(SQS["body"], SQS["receiptHandle"], 3, SQS["messageId"], "default")
    assert leases_from_event({"Records": [SQS]}, QUEUES) == [expected]


@pytest.mark.parametrize("body", [ABSENT, None, 5, ["{}"], {"ticket_id": "t", "job_id": "j", "tenant": "", "v": 1}, TOO_DEEP])
def test_c24_a_body_that_is_no_text_is_one_that_is_no_ticket(body: Any) -> None:
    good, bad = leases_from_event(with_part(SQS, "body", body), QUEUES)
    assert (good.body, good.receipt) == (SQS["body"], bad.receipt)
    with pytest.raises(Poisoned):
        decode_ticket(bad.body)


COUNTS = [ABSENT, None, "", "0", "-1", "1.5", "1e3", "٣", "9" * 5_000, 3, ["3"]]


@pytest.mark.parametrize("count", COUNTS)
def test_a_count_of_receives_that_is_none_is_one(count: Any) -> None:
    assert leases_from_event(with_part(SQS, "attributes.ApproximateReceiveCount", count), QUEUES)[1].deliveries == 1


@pytest.mark.parametrize("attributes", [ABSENT, None, "", 5, ["ApproximateReceiveCount"]])
def test_a_message_without_attributes_came_once(attributes: Any) -> None:
    assert leases_from_event(with_part(SQS, "attributes", attributes), QUEUES)[1].deliveries == 1


@pytest.mark.parametrize("part", ["messageId", "receiptHandle", "eventSourceARN"])
@pytest.mark.parametrize("value", [ABSENT, None, 5, ["x"], {}])
def test_a_message_that_could_not_be_given_back_is_refused_with_its_batch(part: str, value: Any) -> None:
    with pytest.raises(WrongEvent) as refusal:
        leases_from_event(with_part(SQS, part, value), QUEUES)
    assert is_told(refusal.value, "SQS", part)


@pytest.mark.parametrize("part", ["messageId", "receiptHandle"])
@pytest.mark.parametrize("value", ["", " ", "a b", "\n", "é", "\ud800"])
def test_an_id_or_a_receipt_is_visible_ascii(part: str, value: str) -> None:
    with pytest.raises(WrongEvent) as refusal:
        leases_from_event(with_part(SQS, part, value), QUEUES)
    assert is_told(refusal.value, "SQS", part)


@pytest.mark.parametrize("queues", [{"fast": "redis://h/my-queue"}, {"other": "sqs://other"}, {}])
def test_an_event_of_a_queue_that_the_settings_do_not_name_says_so(queues: dict[str, str]) -> None:
    """One on Redis is never taken for one on SQS."""
    with pytest.raises(UnknownQueue, match="'my-queue'"):
        leases_from_event({"Records": [SQS]}, queues)
    assert leases_from_event({"Records": [SQS]}, {**queues, "named": "sqs://my-queue"})[0].queue == "named"


# --- of neither --------------------------------------------------------------------------------------------------------

NO_EVENTS = [{}, [], None, "", 5, {"records": []}, {"Records": None}, {"Records": {}}, {"Records": [None]}, {"\ud800": 1}]


@pytest.mark.parametrize("event", [*NO_EVENTS, {"Records": [[]]}, {"Records": "SGVsbG8="}, {"Records": TOO_DEEP}])
def test_what_is_no_batch_at_all_is_refused(event: Any) -> None:
    for read in (reads_from_event, lambda made_up: leases_from_event(made_up, QUEUES)):
        with pytest.raises(WrongEvent, match=r"this is no event of (Kinesis|SQS): ."):
            read(event)


def test_each_source_refuses_the_others_events() -> None:
    with pytest.raises(WrongEvent, match="`kinesis`"):
        reads_from_event({"Records": [SQS]})
    with pytest.raises(WrongEvent, match="`messageId`"):
        leases_from_event({"Records": [KINESIS]}, QUEUES)


def test_an_empty_batch_is_one() -> None:
    assert reads_from_event({"Records": []}) == leases_from_event({"Records": []}, QUEUES) == []


@pytest.mark.parametrize(("data", "kept"), [({"a": "\ud800"}, b'{"a": "\\ud800"}'), ("eA==!", b"eA==!")])
def test_what_stood_in_the_place_of_base64_is_kept_for_the_quarantine(data: Any, kept: bytes) -> None:
    assert reads_from_event(with_part(KINESIS, "kinesis.data", data))[1].data == kept


def test_a_name_that_is_no_unicode_is_refused_with_its_event() -> None:
    with pytest.raises(WrongEvent, match="this is no event of Kinesis"):
        reads_from_event({"Records": [{**KINESIS, "\ud800": None}]})
    with pytest.raises(WrongEvent, match="this is no event of SQS"):
        leases_from_event({"Records": [{**SQS, "\ud800": None}]}, QUEUES)
