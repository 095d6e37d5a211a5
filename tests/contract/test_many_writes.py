"""Many changes at once on DynamoDB: what a cancelled transaction leaves undecided, and what it costs."""

from __future__ import annotations

from typing import Any

import pytest
from botocore.exceptions import ClientError

from ringfence.aws.ledger import DynamoLedger
from ringfence.change import Written, apply
from ringfence.job import State
from ringfence.testing.faults import connect_timeout, inject, read_timeout, refused
from ringfence.testing.given import Given
from ringfence.testing.ledger_line import parking

NO_FAULT = {"Code": "None"}
CONFLICT = {"Code": "TransactionConflict", "Message": "ongoing"}


def test_a_hundred_rows_are_four_calls(given: Given, ledger: DynamoLedger, store: Any) -> None:
    changes = [parking(given, given.queued(), given.clock.now() + place) for place in range(100)]
    with inject(store.client, "TransactWriteItems", []) as together, inject(store.client, "UpdateItem", []) as alone:
        assert all(isinstance(outcome, Written) for outcome in ledger.write_many(changes))
    assert (together.attempts, alone.attempts) == (4, 0)


def test_a_hundred_new_rows_are_four_calls_and_large_ones_are_put_by_themselves(
    given: Given, ledger: DynamoLedger, store: Any
) -> None:
    rows = [given.parked_row() for _ in range(100)] + [given.parked_row("[" + "1" * 3_000 + "]")]
    with inject(store.client, "TransactWriteItems", []) as together, inject(store.client, "PutItem", []) as alone:
        assert ledger.write_many(rows) == [Written(row) for row in rows]
    assert (together.attempts, alone.attempts) == (4, 2), "a text and its row"


def test_a_row_in_conflict_sets_the_others_back_and_each_is_tried_by_itself(
    given: Given, ledger: DynamoLedger, store: Any
) -> None:
    jobs = [given.queued() for _ in range(5)]
    changes = [parking(given, job, given.clock.now()) for job in jobs]
    conflict = refused("TransactionCanceledException", CancellationReasons=[NO_FAULT, CONFLICT, NO_FAULT, NO_FAULT, NO_FAULT])
    with inject(store.client, "TransactWriteItems", [conflict]):
        outcomes = ledger.write_many(changes)
    assert outcomes == [Written(apply(change, job)) for change, job in zip(changes, jobs, strict=True)]


def test_a_row_that_stays_in_conflict_is_undecided_and_the_others_are_written(
    given: Given, ledger: DynamoLedger, store: Any
) -> None:
    changes = [parking(given, given.queued(), given.clock.now()) for _ in range(3)]
    conflict = refused("TransactionCanceledException", CancellationReasons=[CONFLICT, NO_FAULT, NO_FAULT])
    with (
        inject(store.client, "TransactWriteItems", [conflict]),
        inject(store.client, "UpdateItem", [refused("TransactionConflictException")]),
    ):
        outcomes = ledger.write_many(changes)
    assert outcomes[0] is None
    assert all(isinstance(outcome, Written) for outcome in outcomes[1:])


@pytest.mark.parametrize("lost", [connect_timeout(), read_timeout(), refused("ThrottlingException")])
def test_a_transaction_out_of_reach_is_undecided_and_decided_when_it_is_sent_again(
    given: Given, ledger: DynamoLedger, store: Any, lost: Any
) -> None:
    changes = [parking(given, given.queued(), given.clock.now()) for _ in range(3)]
    with inject(store.client, "TransactWriteItems", [lost]), inject(store.client, "UpdateItem", []) as alone:
        assert ledger.write_many(changes) == [None, None, None]
    assert alone.attempts == 0, "a store that does not answer is not asked once for each row"
    outcomes = ledger.write_many(changes)
    assert [isinstance(outcome, Written) and outcome.job.state for outcome in outcomes] == [State.SCHEDULED] * 3


def test_what_is_denied_is_told_as_it_came(given: Given, ledger: DynamoLedger, store: Any) -> None:
    changes = [parking(given, given.queued(), given.clock.now()) for _ in range(2)]
    with inject(store.client, "TransactWriteItems", [refused("AccessDeniedException")]), pytest.raises(ClientError):
        ledger.write_many(changes)
