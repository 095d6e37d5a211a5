"""What DynamoDB answers when it cannot or will not. moto never says it, so it is injected in front of boto3."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from botocore.exceptions import ClientError

from ringfence import transitions
from ringfence.aws.ledger import DynamoLedger
from ringfence.change import Refused, Written, apply
from ringfence.errors import Unavailable
from ringfence.memory.clock import ManualClock
from ringfence.ports import Group
from ringfence.testing.given import Given
from ringfence.testing.sdk_faults import SdkFault, connect_timeout, inject, read_timeout, refused

REFUSALS_THAT_PASS: dict[str, SdkFault] = {
    "throttled": refused("ThrottlingException"),
    "over capacity": refused("ProvisionedThroughputExceededException"),
    "in a transaction": refused("TransactionConflictException"),
    "written elsewhere": refused("ReplicatedWriteConflictException"),
    "their fault": refused("InternalServerError", status=500),
    "no connection": connect_timeout(),
    "reply lost": read_timeout(),
}
passing = pytest.mark.parametrize("fault", REFUSALS_THAT_PASS.values(), ids=REFUSALS_THAT_PASS)


@passing
def test_a_claim_that_met_a_passing_fault_is_sent_again_and_counts_once(
    given: Given, ledger: DynamoLedger, store: Any, fault: SdkFault
) -> None:
    job = given.queued()
    change = given.claim(job)
    with inject(store.client, "UpdateItem", [fault]), pytest.raises(Unavailable):
        ledger.write(change)
    assert ledger.write(change) == Written(apply(change, job))


@passing
def test_a_registration_that_met_a_passing_fault_is_sent_again(
    given: Given, ledger: DynamoLedger, store: Any, fault: SdkFault
) -> None:
    job = given.row()
    with inject(store.client, "PutItem", [fault]), pytest.raises(Unavailable):
        ledger.register(job)
    assert ledger.register(job) is None
    assert ledger.get(job.job_id) == job


@pytest.mark.parametrize("lost", [connect_timeout(), read_timeout()], ids=["before", "after"])
def test_no_row_names_a_text_that_may_not_be_there(given: Given, ledger: DynamoLedger, store: Any, lost: SdkFault) -> None:
    job = given.row("[" + "1" * 5_000 + "]")
    with inject(store.client, "PutItem", [lost]) as injection, pytest.raises(Unavailable):
        ledger.register(job)
    assert injection.attempts == 1, "the row is not sent when its text was not written for certain"
    assert ledger.get(job.job_id) is None
    assert ledger.register(job) is None
    assert ledger.get(job.job_id) == job


def test_a_result_apart_that_could_not_be_written_leaves_the_job_running(
    given: Given, ledger: DynamoLedger, store: Any
) -> None:
    job = given.running()
    change = given.success(job, "[" + "1" * 5_000 + "]")
    with inject(store.client, "PutItem", [refused("ThrottlingException")]), pytest.raises(Unavailable):
        ledger.write(change)
    assert ledger.get(job.job_id) == job
    assert ledger.write(change) == Written(apply(change, job))


def test_a_written_row_whose_text_cannot_be_read_just_now_is_found_to_be_ours(
    given: Given, store: Any, clock: ManualClock
) -> None:
    job = given.queued("[" + "1" * 5_000 + "]")
    worker = DynamoLedger(store.client, store.ledger_table, store.user_tables, clock)
    change = given.claim(job)
    with inject(store.client, "GetItem", [refused("ThrottlingException")]), pytest.raises(Unavailable):
        worker.write(change)
    assert worker.write(change) == Written(apply(change, job))


@pytest.mark.parametrize(
    ("operation", "read"),
    [
        ("GetItem", lambda ledger: ledger.get("x")),
        ("GetItem", lambda ledger: ledger.read_item("Users", {"email": "a"})),
        ("Query", lambda ledger: ledger.due(0, 0, 1)),
        ("Query", lambda ledger: ledger.line("default", 1)),
        ("Query", lambda ledger: ledger.groups("default", 1)),
        ("Query", lambda ledger: ledger.list_jobs("acme", ["default"])),
    ],
    ids=["get", "read_item", "due", "line", "groups", "list_jobs"],
)
def test_reads_that_meet_a_throttle_are_unavailable(
    ledger: DynamoLedger, store: Any, operation: str, read: Callable[[DynamoLedger], object]
) -> None:
    with inject(store.client, operation, [refused("ThrottlingException")]), pytest.raises(Unavailable):
        read(ledger)


@pytest.mark.parametrize(("operation", "left"), [("PutItem", 0), ("UpdateItem", 1), ("DeleteItem", 3)])
def test_a_group_that_meets_a_throttle_or_loses_its_reply_is_written_again(
    ledger: DynamoLedger, store: Any, operation: str, left: int
) -> None:
    group = Group("default", 1_700_000_000_000, ["a", "b", "c"])

    def write() -> None:
        ledger.leave_line(group, left) if left else ledger.join_line(group)

    if left:
        ledger.join_line(group)
    before = ledger.groups("default", 1)
    with inject(store.client, operation, [refused("ThrottlingException")]), pytest.raises(Unavailable):
        write()
    assert ledger.groups("default", 1) == before
    with inject(store.client, operation, [read_timeout()]), pytest.raises(Unavailable):
        write()
    write()
    assert [there.left for there in ledger.groups("default", 1)] == ([] if left == 3 else [left])


def test_a_denied_claim_is_told_as_it_came(given: Given, ledger: DynamoLedger, store: Any) -> None:
    with inject(store.client, "UpdateItem", [refused("AccessDeniedException")]), pytest.raises(ClientError):
        ledger.write(given.claim(given.queued()))


def test_a_late_reply_of_an_owner_who_was_since_replaced_is_a_refusal(given: Given, ledger: DynamoLedger, store: Any) -> None:
    """The write landed, its reply was lost, and before the repetition somebody else claimed the job."""
    job = given.running()
    change = transitions.hand_over(job, counted=True, write_id=given.mark(), now=given.clock.now())
    with inject(store.client, "UpdateItem", [read_timeout()]), pytest.raises(Unavailable):
        ledger.write(change)
    there = ledger.get(job.job_id)
    assert there is not None
    current = given.claimed(there)
    assert ledger.write(change) == Refused(current)
