"""The quarantine's contract, in memory and on DynamoDB."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from ringfence.aws.quarantine import MAX_DATA_BYTES, DynamoQuarantine
from ringfence.memory.clock import ManualClock
from ringfence.memory.quarantine import MemoryQuarantine
from ringfence.testing.quarantine_contract import QuarantineContract, set_aside


class TestMemoryQuarantine(QuarantineContract):
    @pytest.fixture
    def quarantine(self) -> MemoryQuarantine:
        return MemoryQuarantine()


class TestDynamoQuarantine(QuarantineContract):
    @pytest.fixture
    def quarantine(self, store: Any) -> DynamoQuarantine:
        return DynamoQuarantine(store.client, store.ledger_table, ManualClock())

    def test_what_no_item_can_hold_is_cut_off_and_says_so(self, quarantine: DynamoQuarantine) -> None:
        quarantine.put(set_aside(1, data=b"1" * 1_048_576))
        (kept,) = quarantine.items()
        assert kept.data == b"1" * MAX_DATA_BYTES
        assert kept.reason == "not a log record (only the first 300000 of 1048576 bytes are kept)"

    def test_text_that_no_store_takes_does_not_keep_poison_out(self, quarantine: DynamoQuarantine) -> None:
        quarantine.put(replace(set_aside(1, job_id="\udcff" * 9_000), reason="not a ticket: '\udcff'"))
        (kept,) = quarantine.items()
        assert kept.reason == "not a ticket: '?'"
        assert kept.job_id == "?" * 4_000

    def test_many_large_items_are_listed_in_pieces(self, quarantine: DynamoQuarantine) -> None:
        for number in range(70):
            quarantine.put(set_aside(number, data=b"1" * 250_000))
        assert [item.at for item in quarantine.items()] == [set_aside(number).at for number in reversed(range(70))]
