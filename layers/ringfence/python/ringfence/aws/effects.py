"""Effects as the actions of a DynamoDB transaction, and the user's items as Python values.

https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html
"""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from boto3.dynamodb.types import TypeDeserializer, TypeSerializer

from ringfence.aws.expressions import Placeholders
from ringfence.aws.rows import AttributeValue
from ringfence.effect_rules import bad_effect, ensure_sound
from ringfence.effects import VERSION_ATTRIBUTE, Check, Delete, Effect, Item, Put, Update
from ringfence.itemvalues import exact, number, number_text

KEY_TYPES = ("S", "N", "B")
"""https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/HowItWorks.CoreComponents.html"""

MAX_ABSENCE_TERMS = 100
"""Attributes that may be asked about in one condition: an expression has at most 4 KB."""


class _ExactSerializer(TypeSerializer):  # type: ignore[misc]  # boto3 has no types
    """Writes every number that `exact` lets pass; boto3's own stumbles over 10**40."""

    def _serialize_n(self, value: int | Decimal) -> str:
        return number_text(value)


class _ExactDeserializer(TypeDeserializer):  # type: ignore[misc]  # boto3 has no types
    """Reads whole numbers as int, others as `Decimal`, and bytes as bytes."""

    def _deserialize_n(self, value: str) -> int | Decimal:
        return number(Decimal(value))

    def _deserialize_b(self, value: bytes) -> bytes:
        return bytes(value)


_serializer, _deserializer = _ExactSerializer(), _ExactDeserializer()


def serialized(item: Item) -> dict[str, AttributeValue]:
    """A user's item or key in low-level form. Raises `Rejected` (``bad-effect``) for a value that cannot be kept exactly."""
    return {name: _serializer.serialize(value) for name, value in exact(item).items()}


def deserialized(item: Mapping[str, AttributeValue]) -> dict[str, Any]:
    """A user's item as Python values; numbers are int or `Decimal`, sets are sets."""
    return {name: _deserializer.deserialize(value) for name, value in item.items()}


def transact_action(effect: Effect, table: str) -> dict[str, Any]:
    """The effect as one action on the table of this physical name. The same effect gives the same action, always: a transaction
    that is sent again must be the same to the byte. Raises `Rejected` (``bad-effect``)."""
    ensure_sound(effect)
    placeholders = Placeholders()
    match effect:
        case Put():
            item = serialized(effect.item)
            conditions = [_absent(item, placeholders, effect)] if effect.unless_exists else []
            if effect.version is not None:
                conditions.append(_has_version(effect.version, placeholders))
                item[VERSION_ATTRIBUTE] = {"N": str(effect.version + 1)}
            return {"Put": {"TableName": table, "Item": item, **_where(conditions, placeholders)}}
        case Update():
            key = serialized(effect.key)
            expression = _update_expression(effect, placeholders)
            conditions = [] if effect.version is None else [_has_version(effect.version, placeholders)]
            action = {"TableName": table, "Key": key, "UpdateExpression": expression}
            return {"Update": {**action, **_where(conditions, placeholders)}}
        case Delete():
            key = serialized(effect.key)
            conditions = [] if effect.version is None else [_has_version(effect.version, placeholders)]
            return {"Delete": {"TableName": table, "Key": key, **_where(conditions, placeholders)}}
        case Check():
            key = serialized(effect.key)
            function = "attribute_exists" if effect.exists else "attribute_not_exists"
            conditions = [f"{function}({placeholders.name(next(iter(key)))})"]
            if effect.version is not None:
                conditions.append(_has_version(effect.version, placeholders))
            return {"ConditionCheck": {"TableName": table, "Key": key, **_where(conditions, placeholders)}}


def _where(conditions: list[str], placeholders: Placeholders) -> dict[str, Any]:
    condition = {"ConditionExpression": " AND ".join(conditions)} if conditions else {}
    return {**condition, **placeholders.arguments()}


def _has_version(version: int, placeholders: Placeholders) -> str:
    name = placeholders.name(VERSION_ATTRIBUTE)
    is_it = f"{name} = {placeholders.value({'N': str(version)})}"
    return f"(attribute_not_exists({name}) OR {is_it})" if version == 0 else is_it


def _absent(item: Mapping[str, AttributeValue], placeholders: Placeholders, effect: Effect) -> str:
    """True if and only if there is no item of this key.

    Which attributes are the key only the table knows, and every call but one would have to ask it. But an item that is there
    has its key attributes, and the new one names them too: so if none of what could be a key is there, the item is not.
    """
    candidates = [name for name, value in item.items() if next(iter(value)) in KEY_TYPES]
    if not candidates:
        raise bad_effect(effect, "names no key")
    if len(candidates) > MAX_ABSENCE_TERMS:
        raise bad_effect(effect, f"unless_exists allows at most {MAX_ABSENCE_TERMS} attributes that could be keys")
    return " AND ".join(f"attribute_not_exists({placeholders.name(name)})" for name in candidates)


def _update_expression(effect: Update, placeholders: Placeholders) -> str:
    sets = [f"{placeholders.name(n)} = {placeholders.value(v)}" for n, v in serialized(effect.set).items()]
    adds = [f"{placeholders.name(n)} {placeholders.value(v)}" for n, v in serialized(effect.add).items()]
    if effect.version is not None:
        sets.append(f"{placeholders.name(VERSION_ATTRIBUTE)} = {placeholders.value({'N': str(effect.version + 1)})}")
    clauses = [f"SET {', '.join(sets)}"] if sets else []
    if adds:
        clauses.append(f"ADD {', '.join(adds)}")
    return " ".join(clauses)
