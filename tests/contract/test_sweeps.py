"""The contract of the notes of reconciling, in memory and on DynamoDB; and what only DynamoDB's have to stand."""

from __future__ import annotations

from typing import Any

import pytest

from ringfence.aws.queue_settings import DynamoSettings
from ringfence.aws.sweeps import DynamoSweeps
from ringfence.errors import Unavailable
from ringfence.memory.sweeps import MemorySweeps
from ringfence.testing.faults import inject, read_timeout, refused
from ringfence.testing.sweeps_contract import NOTES, SweepsContract


class TestMemorySweeps(SweepsContract):
    @pytest.fixture
    def sweeps(self) -> MemorySweeps:
        return MemorySweeps()


class TestDynamoSweeps(SweepsContract):
    @pytest.fixture
    def sweeps(self, one_at_a_time: Any) -> DynamoSweeps:
        return DynamoSweeps(one_at_a_time, "ledger")


def test_a_lost_reply_leaves_it_open_whether_the_notes_were_put(store: Any) -> None:
    sweeps = DynamoSweeps(store.client, store.ledger_table)
    with inject(store.client, "PutItem", [read_timeout()]), pytest.raises(Unavailable):
        sweeps.replace(sweeps.read(), NOTES)
    assert sweeps.read() == NOTES.of_version(1)


def test_a_throttled_table_is_unavailable(store: Any) -> None:
    sweeps = DynamoSweeps(store.client, store.ledger_table)
    with inject(store.client, "GetItem", [refused("ThrottlingException")]), pytest.raises(Unavailable):
        sweeps.read()
    with inject(store.client, "PutItem", [refused("ThrottlingException")]), pytest.raises(Unavailable):
        sweeps.replace(sweeps.read(), NOTES)


def test_the_notes_are_no_queue_and_no_job(store: Any, ledger: Any) -> None:
    sweeps = DynamoSweeps(store.client, store.ledger_table)
    sweeps.replace(sweeps.read(), NOTES)
    assert DynamoSettings(store.client, store.ledger_table).all() == {}
    assert ledger.unmarked(0, 1, None, 100).jobs == []
    DynamoSettings(store.client, store.ledger_table).change("sweeps", {"burst": 2})
    assert sweeps.read() == NOTES.of_version(1)
