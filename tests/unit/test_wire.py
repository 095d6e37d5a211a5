"""The log record and the ticket: packed within their limits, read back exactly, refused with a reason."""

from __future__ import annotations

import gzip
import json
import time

import msgspec
import pytest

from ringfence import transitions
from ringfence.errors import Poisoned
from ringfence.job import Guarantee
from ringfence.wire import (
    MAX_JOBS_PER_RECORD,
    MAX_RECORD_BYTES,
    JobRecord,
    Ticket,
    decode_record,
    decode_ticket,
    encode_records,
    encode_ticket,
    new_ticket,
)


def record(number: int = 0, payload: str = "{}") -> JobRecord:
    return JobRecord(
        job_id=f"job{number}",
        tenant="default",
        queue="default",
        name="noop",
        payload=payload,
        payload_sha256="0" * 64,
        created_at=1,
        max_attempts=5,
    )


def test_many_jobs_ride_in_one_record_in_their_order() -> None:
    jobs = [record(number) for number in range(250)]
    packed = list(encode_records(jobs))
    assert [len(part) for _, part in packed] == [MAX_JOBS_PER_RECORD, MAX_JOBS_PER_RECORD, 50]
    assert [job for data, _ in packed for job in decode_record(data)] == jobs


def test_a_record_is_ascii_and_within_its_bytes_whatever_the_payload() -> None:
    payload = json.dumps("😀" * 8_000, ensure_ascii=False)
    packed = list(encode_records([record(number, payload) for number in range(10)]))
    assert len(packed) > 1
    assert all(len(data) <= MAX_RECORD_BYTES and data.isascii() for data, _ in packed)
    assert {job.payload for data, _ in packed for job in decode_record(data)} == {payload}


@pytest.mark.parametrize("payload", ['"\\u0001\\ud83d\\ude00"', '"\U0001f600é\u2028"', '{"a": "\\\\"}', '"\x7f"'])
def test_the_payload_text_survives_the_record_to_the_letter(payload: str) -> None:
    ((data, _),) = encode_records([record(payload=payload)])
    assert decode_record(data)[0].payload == payload


def test_escaping_megabytes_takes_no_seconds() -> None:
    started = time.process_time()
    list(encode_records([record(payload='"' + "é" * 30_000 + '"') for _ in range(60)]))
    assert time.process_time() - started < 1.0


def encode_one(**fields: object) -> bytes:
    good = json.loads(next(encode_records([record()]))[0])["jobs"][0]
    return json.dumps({**good, **fields}).encode()


POISON = {
    "empty": b"",
    "gzip": gzip.compress(b"{}"),
    "aggregated by the KPL": b"\xf3\x89\x9a\xc2\x0a\x01a",
    "an array": b"[]",
    "invalid UTF-8": b'{"v":1,"jobs":["\xff"]}',
    "a future version": b'{"v":99,"jobs":[]}',
    "no version": b'{"jobs":[]}',
    "no job id": b'{"v":1,"jobs":[{"tenant":"t"}]}',
    "wrong types": b'{"v":"1","jobs":{}}',
    "nested without end": b"[" * 100_000,
    "an id no store takes": b'{"v":1,"jobs":[' + encode_one(job_id="x" * 3_000) + b"]}",
    "the key of something that is no job": b'{"v":1,"jobs":[' + encode_one(job_id="key#0") + b"]}",
    "an empty id": b'{"v":1,"jobs":[' + encode_one(job_id="") + b"]}",
    "a hash that is none": b'{"v":1,"jobs":[' + encode_one(payload_sha256="zz") + b"]}",
    "a payload no ledger takes": b'{"v":1,"jobs":[' + encode_one(payload="x" * 40_000) + b"]}",
}


@pytest.mark.parametrize("data", POISON.values(), ids=POISON.keys())
def test_c08_poison_in_the_log_is_refused_with_a_reason(data: bytes) -> None:
    with pytest.raises(Poisoned) as fault:
        decode_record(data)
    assert fault.value.reason


def test_readers_take_the_next_version_before_writers_emit_it() -> None:
    assert decode_record(b'{"v":2,"jobs":[],"new":1}') == []
    assert decode_ticket('{"v":2,"ticket_id":"t","job_id":"j","tenant":"x","new":true}').job_id == "j"


def test_a_ticket_comes_back_as_it_went() -> None:
    ticket = Ticket(ticket_id="t1", job_id="j1", tenant="ténant", name="signup", traceparent="00-a-b-01")
    body = encode_ticket(ticket)
    assert body.isascii()
    decoded = decode_ticket(body)
    assert {name: getattr(decoded, name) for name in ticket.__struct_fields__} == {
        name: getattr(ticket, name) for name in ticket.__struct_fields__
    }


def test_a_job_without_a_row_rides_in_its_ticket_to_the_letter() -> None:
    job = msgspec.structs.replace(record(payload='{"é": 1.0, "x": [1E5]}'), guarantee=Guarantee.AT_LEAST_ONCE)
    (data, _), *_ = encode_records([job])
    (back,) = decode_record(data)
    assert back == job
    ticket = decode_ticket(encode_ticket(new_ticket("t", back)))
    assert (ticket.payload, ticket.max_attempts, ticket.created_at) == (job.payload, 5, 1)


def test_a_job_with_a_row_is_only_named() -> None:
    once = record(payload='{"large": true}')
    for job in (once, transitions.accept(once, write_id="w", due_id="d")):
        assert "large" not in encode_ticket(new_ticket("t", job))


FOREIGN = {
    "hello": ("hello", None),
    "empty": ("", None),
    "an array": ("[]", None),
    "an empty object": ("{}", None),
    "wrong types": ('{"v":1,"ticket_id":1,"job_id":"j7","tenant":"t"}', "j7"),
    "a future version": ('{"v":999,"ticket_id":"t","job_id":"j8","tenant":"t"}', "j8"),
    "no version": ('{"ticket_id":"t","job_id":"j9","tenant":"t"}', "j9"),
    "a megabyte of digits": ("1" * 1_000_000, None),
    "an S3 event": ('{"Records":[{"eventSource":"aws:s3","s3":{"object":{"key":"k"}}}]}', None),
    "a lone surrogate": ('"\ud800"', None),
    "the key of something that is no job": ('{"v":1,"ticket_id":"t","job_id":"key#0","tenant":"t"}', "key#0"),
    "a payload and nothing with it": ('{"v":1,"ticket_id":"t","job_id":"j5","tenant":"t","payload":"{}"}', "j5"),
    "an endless ticket id": ('{"v":1,"ticket_id":"' + "t" * 5_000 + '","job_id":"j6","tenant":"t"}', "j6"),
}


@pytest.mark.parametrize(("body", "job_id"), FOREIGN.values(), ids=FOREIGN.keys())
def test_c24_a_foreign_message_is_refused_and_its_job_named_if_it_can_be(body: str, job_id: str | None) -> None:
    with pytest.raises(Poisoned) as fault:
        decode_ticket(body)
    assert fault.value.job_id == job_id
