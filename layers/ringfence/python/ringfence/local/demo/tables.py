"""Everything that the jobs have written, read back whole."""

from __future__ import annotations

from typing import Any

from boto3.dynamodb.types import TypeDeserializer

from ringfence.local.demo.plain import Row


def rows_of(dynamodb: Any, table: str, key: str) -> dict[str, Row]:
    """The value of ``key`` → all numbers of the item."""
    plain = TypeDeserializer()
    pages = dynamodb.get_paginator("scan").paginate(TableName=table, ConsistentRead=True)
    items = [{name: plain.deserialize(value) for name, value in item.items()} for page in pages for item in page["Items"]]
    return {item[key]: {name: int(value) for name, value in item.items() if not isinstance(value, str)} for item in items}
