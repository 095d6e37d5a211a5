"""DynamoDB for the contract tests: moto in process, the ledger's table as template.yaml declares it, and two of a user's."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest
import yaml
from botocore.config import Config
from moto import mock_aws
from moto.core import DEFAULT_ACCOUNT_ID
from moto.core.serialize import ResponseSerializer
from moto.dynamodb.models import dynamodb_backends

from ringfence.aws.ledger import DynamoLedger
from ringfence.memory.clock import ManualClock
from ringfence.testing.given import Given

REGION = "eu-central-1"

TEMPLATE = Path(__file__).parents[2] / "template.yaml"

USER_TABLES = {"Users": ("email",), "Visits": ("email", "day")}
"""Names as jobs use them, and their key attributes, all strings."""


class _Template(yaml.SafeLoader):
    """YAML with CloudFormation's ``!Ref`` and the like, whose values are kept as they stand."""


def _tagged(loader: yaml.SafeLoader, _suffix: str, node: yaml.Node) -> Any:
    if isinstance(node, yaml.MappingNode):
        return loader.construct_mapping(node, deep=True)
    if isinstance(node, yaml.SequenceNode):
        return loader.construct_sequence(node, deep=True)
    return loader.construct_scalar(node)  # type: ignore[arg-type]


_Template.add_multi_constructor("!", _tagged)


@pytest.fixture(scope="session")
def ledger_definition() -> dict[str, Any]:
    """The properties of the template's ledger table."""
    template = yaml.load(TEMPLATE.read_text(), Loader=_Template)
    properties: dict[str, Any] = template["Resources"]["LedgerTable"]["Properties"]
    return properties


@dataclass(frozen=True, slots=True)
class Store:
    """A DynamoDB with the tables a ledger needs."""

    client: Any
    """boto3's low-level client."""
    ledger_table: str
    user_tables: Mapping[str, str]
    """Names as jobs use them, and the physical ones."""


@pytest.fixture(autouse=True)
def moto_is_in_this_process(no_emulator_given: None) -> None:
    """Whatever emulator the environment names for the integration tests."""


@pytest.fixture(scope="session", autouse=True)
def motos_attribute_values_are_read_by_their_names() -> Iterator[None]:
    """And by none of the others that it tries for each of the ten types a value may have: an eighth of these tests' time."""
    usual = ResponseSerializer.get_value

    def get_value(self: ResponseSerializer, value: Any, key: str, shape: Any) -> Any:
        if type(value) is dict and shape.parent.name == "AttributeValue":
            return value.get(key)
        return usual(self, value, key, shape)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ResponseSerializer, "get_value", get_value)
        yield


@pytest.fixture(scope="session")
def dynamodb_client() -> Any:
    """One client for all tests, for building one takes longer than most of them; what it talks to is empty in each.

    It sends once and never again: what a repetition meets is for the tests to say.
    """
    session = boto3.session.Session("testing", "testing", region_name=REGION)
    once = Config(retries={"mode": "standard", "total_max_attempts": 1}, ignore_configured_endpoint_urls=True)
    return session.client("dynamodb", config=once)


@pytest.fixture(scope="module")
def tables(dynamodb_client: Any, ledger_definition: Mapping[str, Any]) -> Iterator[Store]:
    """Made once for all tests of a module, for that takes as long as five of their calls."""
    with mock_aws():
        yield _with_tables(dynamodb_client, ledger_definition)


@pytest.fixture
def store(tables: Store) -> Store:
    """The tables, with nothing in them."""
    for name in (tables.ledger_table, *tables.user_tables.values()):
        dynamodb_backends[DEFAULT_ACCOUNT_ID][REGION].tables[name].items.clear()
    return tables


class OneAtATime:
    """A client whose calls do not overlap: moto's threads are not atomic, and DynamoDB's conditions are."""

    def __init__(self, client: Any) -> None:
        self._client, self._lock = client, threading.Lock()

    def __getattr__(self, operation: str) -> Any:
        def call(**request: Any) -> Any:
            with self._lock:
                return getattr(self._client, operation)(**request)

        return call


@pytest.fixture
def one_at_a_time(store: Store) -> OneAtATime:
    """The store's client, for tests with threads."""
    return OneAtATime(store.client)


def _with_tables(client: Any, defined: Mapping[str, Any]) -> Store:
    client.create_table(
        TableName="ledger",
        BillingMode="PAY_PER_REQUEST",
        KeySchema=defined["KeySchema"],
        AttributeDefinitions=defined["AttributeDefinitions"],
        GlobalSecondaryIndexes=defined["GlobalSecondaryIndexes"],
    )
    physical = {name: f"stack-{name}-1A2B3C" for name in USER_TABLES}
    for name, key in USER_TABLES.items():
        client.create_table(
            TableName=physical[name],
            BillingMode="PAY_PER_REQUEST",
            KeySchema=[
                {"AttributeName": attribute, "KeyType": kind} for attribute, kind in zip(key, ("HASH", "RANGE"), strict=False)
            ],
            AttributeDefinitions=[{"AttributeName": attribute, "AttributeType": "S"} for attribute in key],
        )
    return Store(client, "ledger", physical)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def ledger(store: Store, clock: ManualClock) -> DynamoLedger:
    return DynamoLedger(store.client, store.ledger_table, store.user_tables, clock)


@pytest.fixture
def given(ledger: DynamoLedger, clock: ManualClock) -> Given:
    return Given(ledger, clock)


@pytest.fixture
def user_tables() -> Mapping[str, tuple[str, ...]]:
    return USER_TABLES
