"""The API keys' contract, in memory and on DynamoDB."""

from __future__ import annotations

from typing import Any

import pytest

from ringfence.aws.keys import DynamoKeys
from ringfence.memory.keys import MemoryKeys
from ringfence.testing.keys_contract import KeysContract


class TestMemoryKeys(KeysContract):
    @pytest.fixture
    def keys(self) -> MemoryKeys:
        return MemoryKeys()


class TestDynamoKeys(KeysContract):
    @pytest.fixture
    def keys(self, store: Any) -> DynamoKeys:
        return DynamoKeys(store.client, store.ledger_table)
