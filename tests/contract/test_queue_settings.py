"""The contract of the live settings, in memory and on DynamoDB; and what only DynamoDB's have to stand."""

from __future__ import annotations

from typing import Any

import pytest

from ringfence.aws.queue_settings import PARTITION, DynamoSettings
from ringfence.aws.rows import is_storable_id
from ringfence.errors import Unavailable
from ringfence.memory.queue_settings import MemorySettings
from ringfence.testing.faults import inject, read_timeout, refused, through
from ringfence.testing.settings_contract import NOW, SettingsContract


class TestMemorySettings(SettingsContract):
    @pytest.fixture
    def settings(self) -> MemorySettings:
        return MemorySettings()


class TestDynamoSettings(SettingsContract):
    @pytest.fixture
    def settings(self, one_at_a_time: Any) -> DynamoSettings:
        return DynamoSettings(one_at_a_time, "ledger")


def test_places_whose_reply_was_lost_are_a_gap_and_nothing_else(store: Any) -> None:
    settings = DynamoSettings(store.client, store.ledger_table)
    for lost in ([through(), read_timeout()], [read_timeout()]):
        with inject(store.client, "UpdateItem", lost), pytest.raises(Unavailable):
            settings.join_line("default", 3, NOW)
    assert settings.join_line("default", 1, NOW) == [NOW + 6]


def test_a_throttled_table_is_unavailable(store: Any) -> None:
    settings = DynamoSettings(store.client, store.ledger_table)
    throttled = [refused("ThrottlingException")]
    with inject(store.client, "GetItem", throttled), pytest.raises(Unavailable):
        settings.read("default")
    with inject(store.client, "Query", throttled), pytest.raises(Unavailable):
        settings.all()
    with inject(store.client, "UpdateItem", throttled), pytest.raises(Unavailable):
        settings.change("default", {"burst": 2})


def test_a_queue_named_like_the_sort_key_of_a_job_does_not_lie_where_a_job_could(store: Any) -> None:
    settings = DynamoSettings(store.client, store.ledger_table)
    settings.change("j", {"burst": 2})
    assert not is_storable_id(PARTITION)
    assert store.client.get_item(TableName="ledger", Key={"pk": {"S": PARTITION}, "sk": {"S": "j"}}).get("Item") is None
    assert settings.all().keys() == {"j"}
