"""The ledger's effects on an emulator that honours request tokens, as DynamoDB does; moto in process carries them out again.

The rest of the contract holds there too, and takes ten times as long as these.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from ringfence.aws.ledger import DynamoLedger
from ringfence.local.emulator import Emulator
from ringfence.local.endpoint import REGION, Endpoint, other_endpoint
from ringfence.local.template import read_template
from ringfence.memory.clock import ManualClock
from ringfence.testing.given import Given
from ringfence.testing.ledger_effects import LedgerEffects

ROOT = Path(__file__).parents[2]

USER_TABLES = {"Users": ("email",), "Visits": ("email", "day")}
"""As `ledger_effects` wants them: names and key attributes, all strings."""


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoint]:
    """MiniStack, or the emulator that the environment names."""
    given = other_endpoint(None, os.environ)
    if given is not None:
        yield given
        return
    ended: SimpleQueue[str] = SimpleQueue()
    emulator = Emulator("ministack", REGION, tmp_path_factory.mktemp("emulator") / "log", ended.put, ended.put)
    try:
        emulator.start()
        emulator.wait_ready()
        yield emulator.endpoint
    finally:
        emulator.stop()


@pytest.fixture(scope="module")
def client(endpoint: Endpoint) -> Any:
    return endpoint.client("dynamodb")


@pytest.fixture(scope="module")
def tables(client: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, str]]:
    """Name → physical name: the template's ledger table, and the two of a user's. They are gone afterwards."""
    prefix = tmp_path_factory.mktemp("contract").name + f"-{os.getpid()}"
    ledger = read_template(ROOT / "template.yaml", {}, REGION).resources["LedgerTable"]["Properties"]
    keys = {name: [*zip(attributes, ("HASH", "RANGE"), strict=False)] for name, attributes in USER_TABLES.items()}
    users = {
        name: {
            "KeySchema": [{"AttributeName": attribute, "KeyType": kind} for attribute, kind in pairs],
            "AttributeDefinitions": [{"AttributeName": attribute, "AttributeType": "S"} for attribute, _ in pairs],
        }
        for name, pairs in keys.items()
    }
    indexed = {key: ledger[key] for key in ("KeySchema", "AttributeDefinitions", "GlobalSecondaryIndexes")}
    physical = {name: f"{prefix}-{name}" for name in (*users, "Ledger")}
    for name, defined in {**users, "Ledger": indexed}.items():
        client.create_table(TableName=physical[name], BillingMode="PAY_PER_REQUEST", **defined)
    yield physical
    for name in physical.values():
        client.delete_table(TableName=name)


class TestEffectsOnAnEmulator(LedgerEffects):
    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    def ledger(self, client: Any, tables: Mapping[str, str], clock: ManualClock) -> DynamoLedger:
        return DynamoLedger(client, tables["Ledger"], tables, clock)

    @pytest.fixture
    def given(self, ledger: DynamoLedger, clock: ManualClock) -> Given:
        return Given(ledger, clock)

    @pytest.fixture
    def honours_request_tokens(self) -> bool:
        return True
