"""The core's `Condition` and `Change`, compiled to DynamoDB's expressions.

https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Expressions.ConditionExpressions.html
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ringfence.aws import rows
from ringfence.aws.rows import COLUMNS, TEXTS, TTL, AttributeValue
from ringfence.change import All, Any_, AtMost, Below, Change, Condition, Is, OneOf, Unset
from ringfence.job import State


class Placeholders:
    """The names and values of one expression's request. Every name goes through one: ``ttl`` and many others are reserved.

    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/ReservedWords.html
    """

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._values: list[AttributeValue] = []

    def name(self, attribute: str) -> str:
        return self._names.setdefault(attribute, f"#{len(self._names)}")

    def value(self, value: AttributeValue) -> str:
        self._values.append(value)
        return f":{len(self._values) - 1}"

    def arguments(self) -> dict[str, Any]:
        """The request's arguments; an empty mapping would be refused, so it is left out."""
        arguments: dict[str, Any] = {}
        if self._names:
            arguments["ExpressionAttributeNames"] = {placeholder: name for name, placeholder in self._names.items()}
        if self._values:
            arguments["ExpressionAttributeValues"] = {f":{index}": value for index, value in enumerate(self._values)}
        return arguments


def row_condition(condition: Condition, placeholders: Placeholders, *, expired_before_seconds: int | None) -> str:
    """What must hold of the row: it is there, it has not expired by this time (if one is given), and the condition."""
    there = f"attribute_exists({placeholders.name('pk')})"
    parts = [there]
    if expired_before_seconds is not None:
        parts.append(f"({not_expired(placeholders, expired_before_seconds)})")
    parts.append(_compiled(condition, placeholders))
    return " AND ".join(parts)


def not_expired(placeholders: Placeholders, now_seconds: int) -> str:
    ttl = placeholders.name(TTL)
    return f"attribute_not_exists({ttl}) OR {ttl} >= {placeholders.value({'N': str(now_seconds)})}"


def absent_or_expired(placeholders: Placeholders, now_seconds: int) -> str:
    absent = f"attribute_not_exists({placeholders.name('pk')})"
    expired = f"{placeholders.name(TTL)} < {placeholders.value({'N': str(now_seconds)})}"
    return f"{absent} OR {expired}"


def put_arguments(row: rows.Item, *, expired_before_seconds: int) -> dict[str, Any]:
    """The row and the condition that there is none, or only one that has expired by this time, for PutItem and for a
    transaction alike."""
    placeholders = Placeholders()
    condition = absent_or_expired(placeholders, expired_before_seconds)
    return {"Item": row, "ConditionExpression": condition, **placeholders.arguments()}


def update_arguments(change: Change, apart: Mapping[str, str], *, expired_before_seconds: int | None) -> dict[str, Any]:
    """The expressions of an update of the row, for UpdateItem and for a transaction alike."""
    placeholders = Placeholders()
    condition = row_condition(change.condition, placeholders, expired_before_seconds=expired_before_seconds)
    return {
        "ConditionExpression": condition,
        "UpdateExpression": _update(change, apart, placeholders),
        **placeholders.arguments(),
    }


def _compiled(condition: Condition, placeholders: Placeholders) -> str:
    match condition:
        case Is(field, value) if rows.is_blank(value):
            return f"attribute_not_exists({_name(field, placeholders)})"
        case Is(field, value):
            return f"{_name(field, placeholders)} = {_value(field, value, placeholders)}"
        case OneOf(field, values):
            return _compiled(Any_(tuple(Is(field, value) for value in values)), placeholders)
        case Unset(field):
            return f"attribute_not_exists({_name(field, placeholders)})"
        case AtMost(field, limit):
            return f"{_name(field, placeholders)} <= {_value(field, limit, placeholders)}"
        case Below(field, other):
            return f"{_name(field, placeholders)} < {_name(other, placeholders)}"
        case Any_(()):
            return f"attribute_not_exists({placeholders.name('pk')})"
        case All(()):
            return f"attribute_exists({placeholders.name('pk')})"
        case Any_((only,)) | All((only,)):
            return _compiled(only, placeholders)  # DynamoDB refuses redundant parentheses
        case Any_(conditions):
            return "(" + " OR ".join(_compiled(each, placeholders) for each in conditions) + ")"
        case All(conditions):
            return "(" + " AND ".join(_compiled(each, placeholders) for each in conditions) + ")"


def _update(change: Change, apart: Mapping[str, str], placeholders: Placeholders) -> str:
    assigned = _assigned(change, apart)
    kept = {attribute: value for attribute, value in assigned.items() if value is not None}
    removed = [attribute for attribute, value in assigned.items() if value is None]
    sets = [f"{placeholders.name(attribute)} = {placeholders.value(value)}" for attribute, value in kept.items()]
    for field, by in {**change.add, "version": 1}.items():
        name = _name(field, placeholders)
        sets.append(f"{name} = {name} + {_value(field, by, placeholders)}")
    removes = [placeholders.name(attribute) for attribute in removed]
    return f"SET {', '.join(sets)}" + (f" REMOVE {', '.join(removes)}" if removes else "")


def _assigned(change: Change, apart: Mapping[str, str]) -> dict[str, AttributeValue | None]:
    """Every attribute the change writes; None for those it removes."""
    assigned: dict[str, AttributeValue | None] = {}
    for field, value in {**change.set, "write_id": change.write_id}.items():
        if field in TEXTS:
            text = TEXTS[field]
            assigned[text.inline] = None if value is None or field in apart else {"S": value}
            assigned[text.reference] = {"S": apart[field]} if field in apart else None
        else:
            column = COLUMNS[field]
            assigned[column.attribute] = None if rows.is_blank(value) else column.encode(value)
    return {**assigned, **_index_keys(change)}


def _index_keys(change: Change) -> dict[str, AttributeValue | None]:
    keys: dict[str, AttributeValue | None] = {}
    if "due_id" in change.set:
        keys["dk"] = _mark_key(change)
    if change.leads_to is State.DEAD:
        if change.seen is None:
            raise ValueError(f"to list job {change.job_id} as dead its tenant must be known: the change names no row seen")
        keys["xk"] = {"S": rows.dead_key(change.seen.tenant, rows.shard(change.job_id))}
    elif change.leads_to is not None:
        keys["xk"] = None
    return keys


def _mark_key(change: Change) -> AttributeValue | None:
    due_id = change.set["due_id"]
    if due_id is None:
        return None
    if change.seen is None:
        raise ValueError(f"to mark job {change.job_id} as due its queue must be known: the change names no row seen")
    return rows.mark_key(due_id, change.seen.queue, change.job_id)


def _name(field: str, placeholders: Placeholders) -> str:
    return placeholders.name(COLUMNS[field].attribute)


def _value(field: str, value: Any, placeholders: Placeholders) -> str:
    return placeholders.value(COLUMNS[field].encode(value))
