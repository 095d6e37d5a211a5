"""What becomes of batches: partial failures, bisecting, retries, age, and the schedule expressions."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from ringfence.local.invocation import Outcome
from ringfence.local.sources.batch_response import failed_items
from ringfence.local.sources.kinesis_batch import MAX_EVENT_BYTES, Piece, Record, after, event_of, fitting, too_old
from ringfence.local.sources.schedule import pause_of
from ringfence.local.template import BadTemplate

NOW = datetime(2026, 11, 30, 12, 0, tzinfo=UTC)


def records(*names: str, arrived: datetime = NOW, data: bytes = b"") -> tuple[Record, ...]:
    return tuple(Record(name, "key", data, arrived) for name in names)


def names(pieces: tuple[Piece, ...]) -> list[str]:
    return ["".join(record.sequence_number for record in piece.records) for piece in pieces]


# --- what a function reports ----------------------------------------------------------------------------------------------


def reported(payload: Any) -> set[str] | None:
    return failed_items(Outcome(json.dumps(payload).encode()), ["a", "b"], True)


@pytest.mark.parametrize("payload", [None, {}, {"batchItemFailures": []}, {"batchItemFailures": None}, {"other": 1}])
def test_nothing_reported_is_success(payload: Any) -> None:
    assert reported(payload) == set()


def test_reported_items_are_the_failed_ones() -> None:
    assert reported({"batchItemFailures": [{"itemIdentifier": "b"}]}) == {"b"}


@pytest.mark.parametrize(
    "payload",
    [
        {"batchItemFailures": [{"itemIdentifier": ""}]},
        {"batchItemFailures": [{"itemIdentifier": None}]},
        {"batchItemFailures": [{"itemidentifier": "a"}]},
        {"batchItemFailures": [{"itemIdentifier": "c"}]},
        {"batchItemFailures": "a"},
        "text",
    ],
)
def test_a_report_that_lambda_does_not_understand_fails_the_whole_batch(payload: Any) -> None:
    assert reported(payload) is None


def test_a_function_error_fails_the_whole_batch_whatever_it_says() -> None:
    assert failed_items(Outcome(b'{"batchItemFailures":[]}', "Unhandled"), ["a"], True) is None


def test_a_report_that_was_not_asked_for_is_not_read() -> None:
    assert failed_items(Outcome(b'{"batchItemFailures":[{"itemIdentifier":"a"}]}'), ["a"], False) == set()


# --- a stream's batch -----------------------------------------------------------------------------------------------------


def test_success_leaves_nothing_to_do() -> None:
    step = after(Piece(records("a", "b")), set(), bisects=True, maximum_retries=-1)
    assert (step.todo, step.discarded, step.pause) == ((), None, False)


def test_the_rest_from_the_first_failure_on_is_a_new_batch_at_once() -> None:
    step = after(Piece(records("a", "b", "c", "d"), failures=3), {"b", "d"}, bisects=False, maximum_retries=5)
    assert names(step.todo) == ["bcd"]
    assert (step.todo[0].failures, step.pause) == (0, False)


def test_a_batch_whose_first_record_failed_is_retried_whole_after_a_pause() -> None:
    step = after(Piece(records("a", "b")), {"a"}, bisects=True, maximum_retries=-1)
    assert (names(step.todo), step.todo[0].failures, step.pause) == (["ab"], 1, True)


def test_a_function_error_bisects_without_costing_a_retry() -> None:
    step = after(Piece(records("a", "b", "c"), failures=1), None, bisects=True, maximum_retries=1)
    assert names(step.todo) == ["a", "bc"]
    assert [piece.failures for piece in step.todo] == [1, 1]
    assert not step.pause


def test_a_function_error_without_bisecting_retries_the_batch() -> None:
    step = after(Piece(records("a", "b")), None, bisects=False, maximum_retries=-1)
    assert (names(step.todo), step.pause) == (["ab"], True)


def test_a_single_record_is_given_up_after_its_retries_and_never_with_minus_one() -> None:
    one = Piece(records("a"), failures=2)
    assert after(one, None, bisects=True, maximum_retries=3).discarded is None
    given_up = after(one, None, bisects=True, maximum_retries=2)
    assert given_up.discarded is not None
    assert (names((given_up.discarded,)), given_up.todo) == (["a"], ())
    assert after(Piece(records("a"), failures=10_000), None, bisects=True, maximum_retries=-1).discarded is None


def test_records_past_their_age_are_parted_from_the_others() -> None:
    piece = Piece(records("a", "b", arrived=NOW - timedelta(seconds=61)) + records("c", arrived=NOW - timedelta(seconds=59)))
    old, rest = too_old(piece, NOW, 60)
    assert old is not None
    assert rest is not None
    assert names((old, rest)) == ["ab", "c"]
    assert too_old(Piece(records("a", arrived=NOW - timedelta(days=300))), NOW, -1)[0] is None
    assert too_old(Piece(records("a", arrived=NOW - timedelta(seconds=61))), NOW, 60)[1] is None


def test_a_batch_stays_below_what_an_invocation_may_carry() -> None:
    large = records("a", "b", "c", "d", "e", "f", "g", "h", data=b"x" * (1024 * 1024))
    taken = fitting(large, 100)
    assert 1 < taken < 8
    assert len(json.dumps(event_of(Piece(large[:taken]), "arn:aws:kinesis:eu-west-1:0:stream/s", "shard"))) <= MAX_EVENT_BYTES
    assert fitting(records("a", data=b"x" * (10 * 1024 * 1024)), 100) == 1
    assert fitting(records("a", "b", "c"), 2) == 2


def test_a_stream_event_looks_as_lambdas_does() -> None:
    (one,) = event_of(Piece(records("49", data=b"hi")), "arn:aws:kinesis:eu-west-1:0:stream/s", "shardId-7")["Records"]
    assert one["kinesis"]["data"] == "aGk="
    assert (one["eventID"], one["awsRegion"], one["eventSource"]) == ("shardId-7:49", "eu-west-1", "aws:kinesis")


# --- schedules ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("expression", "seconds"), [("rate(1 minute)", 60), ("rate(5 minutes)", 300), ("rate(2 days)", 172800)]
)
def test_a_rate_is_a_pause(expression: str, seconds: float) -> None:
    assert pause_of(expression)(NOW) == seconds


@pytest.mark.parametrize(
    ("expression", "next_moment"),
    [
        ("cron(* * * * ? *)", datetime(2026, 11, 30, 12, 1, tzinfo=UTC)),
        ("cron(0/15 * * * ? *)", datetime(2026, 11, 30, 12, 15, tzinfo=UTC)),
        ("cron(30 9 ? * MON-FRI *)", datetime(2026, 12, 1, 9, 30, tzinfo=UTC)),
        ("cron(0 12 * * ? *)", datetime(2026, 12, 1, 12, 0, tzinfo=UTC)),
        ("cron(0 0 29 FEB ? *)", datetime(2028, 2, 29, 0, 0, tzinfo=UTC)),
        ("cron(5,35 8-10 1 JAN,JUL ? *)", datetime(2027, 1, 1, 8, 5, tzinfo=UTC)),
    ],
)
def test_a_cron_expression_names_its_next_moment(expression: str, next_moment: datetime) -> None:
    assert pause_of(expression)(NOW) == (next_moment - NOW).total_seconds()


@pytest.mark.parametrize(
    "expression", ["rate(1 fortnight)", "cron(* * L * ? *)", "cron(61 * * * ? *)", "at(2030-01-01T00:00:00)", ""]
)
def test_a_schedule_that_cannot_be_imitated_is_refused(expression: str) -> None:
    with pytest.raises(BadTemplate):
        pause_of(expression)
