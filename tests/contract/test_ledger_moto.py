"""The ledger's contract on DynamoDB, on moto in process, with the table that template.yaml declares."""

from __future__ import annotations

from typing import Any

import pytest

from ringfence.aws.ledger import DynamoLedger
from ringfence.memory.clock import ManualClock
from ringfence.testing.ledger_contract import LedgerContract


class TestDynamoLedger(LedgerContract):
    @pytest.fixture
    def ledger(self, store: Any, clock: ManualClock) -> DynamoLedger:
        return DynamoLedger(store.client, store.ledger_table, store.user_tables, clock)

    @pytest.fixture
    def honours_request_tokens(self) -> bool:
        return False
