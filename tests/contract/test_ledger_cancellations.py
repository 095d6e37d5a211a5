"""Transactions that DynamoDB cancels: decided once, by the position of the reason (C35). moto never says most of it, so each
answer is injected in front of boto3."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from ringfence.aws.ledger import DynamoLedger
from ringfence.change import Refused, Written, apply
from ringfence.effects import Check, Effect, Put, Update
from ringfence.errors import EffectRefused, Rejected, RingfenceError, Unavailable
from ringfence.job import Job
from ringfence.testing.given import Given
from ringfence.testing.sdk_faults import SdkFault, connect_timeout, inject, read_timeout, refused

KEY = {"email": "ada@example.org"}
EFFECTS: list[Effect] = [Update(table="Users", key=KEY, add={"count": 1})]

NONE = {"Code": "None"}
CONFLICT = {"Code": "TransactionConflict", "Message": "Transaction is ongoing for the item"}
THROTTLED = {"Code": "ThrottlingError", "Message": "Throughput exceeds the current capacity of your table or index"}
EXCEEDED = {"Code": "ProvisionedThroughputExceeded"}
CHECK_FAILED = {"Code": "ConditionalCheckFailed", "Message": "The conditional request failed"}
INVALID = {"Code": "ValidationError", "Message": "Item size to update has exceeded the maximum allowed size"}


@pytest.fixture
def count(ledger: DynamoLedger) -> Callable[[], int]:
    """How often the effect has landed."""
    return lambda: (ledger.read_item("Users", KEY) or {}).get("count", 0)


def cancelled(*reasons: dict[str, Any]) -> SdkFault:
    return refused("TransactionCanceledException", CancellationReasons=list(reasons))


def row_of(store: Any, job: Job) -> dict[str, Any]:
    """The row as a failed condition returns it."""
    item: dict[str, Any] = store.client.get_item(TableName=store.ledger_table, Key={"pk": {"S": job.job_id}, "sk": {"S": "j"}})[
        "Item"
    ]
    return item


PASSING: dict[str, SdkFault] = {
    "effect in conflict": cancelled(NONE, CONFLICT),
    "row in conflict": cancelled(CONFLICT, NONE),
    "throttled": cancelled(NONE, THROTTLED),
    "row throttled": cancelled(THROTTLED, NONE),
    "capacity exceeded": cancelled(EXCEEDED, CONFLICT),
    "request throttled": refused("ThrottlingException"),
    "request over capacity": refused("ProvisionedThroughputExceededException"),
    "account limit": refused("RequestLimitExceeded"),
    "in progress": refused("TransactionInProgressException"),
    "their fault": refused("InternalServerError", status=500),
    "no connection": connect_timeout(),
    "reply lost": read_timeout(),
}


@pytest.mark.parametrize("fault", PASSING.values(), ids=PASSING)
def test_what_passes_is_unavailable_and_the_same_commit_lands_later_once(
    given: Given, ledger: DynamoLedger, store: Any, count: Callable[[], int], fault: SdkFault
) -> None:
    job, token = given.running(), given.mark()
    change = given.success(job, "[1]")
    with inject(store.client, "TransactWriteItems", [fault]), pytest.raises(Unavailable):
        ledger.write(change, EFFECTS, request_token=token)
    assert ledger.write(change, EFFECTS, request_token=token) == Written(apply(change, job))
    assert count() == 1


@pytest.mark.parametrize("others", [NONE, CONFLICT, THROTTLED, CHECK_FAILED, INVALID], ids=lambda reason: reason["Code"])
def test_a_row_that_refuses_decides_alone(
    given: Given, ledger: DynamoLedger, store: Any, count: Callable[[], int], others: dict[str, Any]
) -> None:
    late = given.running()
    current = given.taken_over(late)
    fault = cancelled({**CHECK_FAILED, "Item": row_of(store, current)}, others)
    with inject(store.client, "TransactWriteItems", [fault]) as injection:
        assert ledger.write(given.success(late), EFFECTS, request_token=given.mark()) == Refused(current)
        assert ledger.write_effects(given.success(late), EFFECTS, request_token=given.mark()) == Refused(current)
    assert injection.attempts == 2, "a failed condition is decided at once, not sent again"
    assert count() == 0


def test_a_row_that_is_not_there_refuses_without_an_item(given: Given, ledger: DynamoLedger, store: Any) -> None:
    with inject(store.client, "TransactWriteItems", [cancelled(CHECK_FAILED, NONE)]):
        assert ledger.write(given.success(given.running()), EFFECTS, request_token=given.mark()) == Refused(None)


def test_our_own_commit_is_recognised_in_the_row_that_refuses(given: Given, ledger: DynamoLedger, store: Any) -> None:
    """The SDK repeats a commit whose reply was lost, after ten minutes or on a store that forgets tokens."""
    change = given.success(given.running(), "[1]")
    written = given.done(change)
    fault = cancelled({**CHECK_FAILED, "Item": row_of(store, written)}, CHECK_FAILED)
    with inject(store.client, "TransactWriteItems", [fault]):
        assert ledger.write(change, EFFECTS, request_token=given.mark()) == Written(written)


@pytest.mark.parametrize("rows", [NONE, CONFLICT, THROTTLED], ids=lambda reason: reason["Code"])
@pytest.mark.parametrize(
    ("effect", "version_conflict"),
    [
        (Put(table="Users", item=KEY, unless_exists=True), False),
        (Check(table="Users", key=KEY), False),
        (Put(table="Users", item=KEY, version=3), True),
        (Update(table="Users", key=KEY, set={"n": 1}, version=0), True),
    ],
    ids=["unless exists", "check", "put version", "update version"],
)
def test_a_condition_of_an_effect_wins_over_conflicts(
    given: Given, ledger: DynamoLedger, store: Any, rows: dict[str, Any], effect: Effect, version_conflict: bool
) -> None:
    fault = cancelled(rows, CONFLICT, CHECK_FAILED)
    effects = [Put(table="Visits", item={**KEY, "day": "1"}), effect]
    with inject(store.client, "TransactWriteItems", [fault]), pytest.raises(EffectRefused) as refusal:
        ledger.write(given.success(given.running()), effects, request_token=given.mark())
    assert refusal.value.version_conflict == version_conflict
    assert "Users" in refusal.value.effect


@pytest.mark.parametrize(
    "fault",
    [
        cancelled(NONE, INVALID),
        cancelled(CONFLICT, INVALID),
        cancelled(NONE, {"Code": "ItemCollectionSizeLimitExceeded"}),
        refused("ValidationException", "One or more parameter values were invalid"),
        refused("ResourceNotFoundException", "Requested resource not found"),
    ],
    ids=["validation", "validation in conflict", "collection size", "request", "no such table"],
)
def test_what_can_never_be_carried_out_is_the_jobs_fault(
    given: Given, ledger: DynamoLedger, store: Any, fault: SdkFault
) -> None:
    job = given.running()
    with inject(store.client, "TransactWriteItems", [fault]), pytest.raises(Rejected) as refusal:
        ledger.write(given.success(job), EFFECTS, request_token=given.mark())
    assert refusal.value.kind == "bad-effect"
    assert ledger.get(job.job_id) == job


@pytest.mark.parametrize("fault", [refused("AccessDeniedException"), cancelled(NONE, NONE), cancelled(INVALID, NONE)])
def test_a_mistake_of_ours_is_told_as_it_came(given: Given, ledger: DynamoLedger, store: Any, fault: SdkFault) -> None:
    with inject(store.client, "TransactWriteItems", [fault]), pytest.raises(ClientError):
        ledger.write(given.success(given.running()), EFFECTS, request_token=given.mark())


# --- a token used for other content --------------------------------------------------------------------------------------

MISMATCH = refused("IdempotentParameterMismatchException")


def test_after_a_mismatch_the_row_may_show_our_own_write(given: Given, ledger: DynamoLedger, store: Any) -> None:
    change = given.success(given.running())
    written = given.done(change)
    with inject(store.client, "TransactWriteItems", [MISMATCH]):
        assert ledger.write(change, EFFECTS, request_token=given.mark()) == Written(written)


def test_after_a_mismatch_the_row_may_refuse(given: Given, ledger: DynamoLedger, store: Any) -> None:
    late = given.running()
    current = given.taken_over(late)
    with inject(store.client, "TransactWriteItems", [MISMATCH]):
        assert ledger.write(given.success(late), EFFECTS, request_token=given.mark()) == Refused(current)


def test_after_any_other_mismatch_nothing_is_claimed(given: Given, ledger: DynamoLedger, store: Any) -> None:
    job = given.running()
    with inject(store.client, "TransactWriteItems", [MISMATCH]), pytest.raises(RingfenceError, match="two different"):
        ledger.write(given.success(job), EFFECTS, request_token=given.mark())
    assert ledger.get(job.job_id) == job
