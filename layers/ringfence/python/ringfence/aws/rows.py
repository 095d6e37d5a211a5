"""A job as an item of the ledger table, and back: one table says where each field lies.

Attribute names have one or two characters because names count: the bill is per KB of item.
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/CapacityUnitCalculations.html

Beside the fields a row holds the keys of its index entries, which the adapter derives and nobody else sets:

    index     hash                            range              entry exists
    listing   lk = tenant # queue # shard     c  (created_at)    always: written once, never moved by a change of state
    due       dk = shard                      da (run_at)        while the row has a due mark
              dk = queue # shard              da (its place)     instead, while the job is parked in line
    dead      xk = tenant # shard             xa (finished_at)   while the job is dead

A field that is None, false or empty has no attribute. Large texts are items of their own (`layout`); the row then holds the
sort key of that item under the text's second name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ringfence.ids import shard_of
from ringfence.job import LINE_MARK, Job, PastAttempt, Progress, State
from ringfence.ports import DUE_SHARDS

AttributeValue = dict[str, Any]
"""One value as the low-level client takes it: ``{"S": "…"}``."""

Item = dict[str, AttributeValue]

ROW_SORT_KEY = "j"

API_KEY_PREFIX = "key#"
"""Of the partition keys of API keys; template.yaml denies them to the functions. Whatever is no job has a ``#`` in its
partition key, and no job's id has one."""

DUE_INDEX = "due"


@dataclass(frozen=True, slots=True)
class ListIndex:
    """An index that lists jobs by a time: its name, its hash and its range."""

    name: str
    partition: str
    at: str


LISTING_INDEX = ListIndex("listing", "lk", "c")
DEAD_INDEX = ListIndex("dead", "xk", "xa")

TTL = "ttl"


@dataclass(frozen=True, slots=True)
class Column:
    """Where a field lies, and how its value is written and read."""

    attribute: str
    encode: Callable[[Any], AttributeValue]
    decode: Callable[[AttributeValue], Any]


@dataclass(frozen=True, slots=True)
class TextColumn:
    """Where a JSON or plain text lies: in the row, or in an item whose sort key the row holds."""

    inline: str
    reference: str


def _text(attribute: str) -> Column:
    return Column(attribute, lambda value: {"S": value}, lambda stored: stored["S"])


def _integer(attribute: str) -> Column:
    return Column(attribute, lambda value: {"N": str(value)}, lambda stored: int(stored["N"]))


def _history(history: tuple[PastAttempt, ...]) -> AttributeValue:
    ended = [[a.token, a.started_at, a.ended_at - a.started_at, _OUTCOMES.get(a.outcome, a.outcome)] for a in history]
    return {"S": _compact(ended)}


def _read_history(stored: AttributeValue) -> tuple[PastAttempt, ...]:
    return tuple(
        PastAttempt(token, started, started + lasted, _OUTCOME_OF.get(code, code))
        for token, started, lasted, code in json.loads(stored["S"])
    )


def _compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


_STATES = {
    State.SCHEDULED: "s",
    State.QUEUED: "q",
    State.RUNNING: "r",
    State.SUCCEEDED: "y",
    State.DEAD: "d",
    State.CANCELLED: "c",
}
_STATE_OF = {code: state for state, code in _STATES.items()}

_OUTCOMES = {"succeeded": 0, "retry": 1, "dead": 2, "cancelled": 3, "handed-over": 4, "lost": 5}
_OUTCOME_OF = {code: outcome for outcome, code in _OUTCOMES.items()}

COLUMNS: Mapping[str, Column] = {
    "job_id": _text("pk"),
    "name": _text("n"),
    "payload_sha256": Column("h", lambda value: {"B": bytes.fromhex(value)}, lambda stored: bytes(stored["B"]).hex()),
    "request_sha256": Column("j", lambda value: {"B": bytes.fromhex(value)}, lambda stored: bytes(stored["B"]).hex()),
    "state": Column("s", lambda value: {"S": _STATES[value]}, lambda stored: _STATE_OF[stored["S"]]),
    "token": _integer("t"),
    "attempt_id": _text("a"),
    "write_id": _text("w"),
    "version": _integer("v"),
    "ticket_id": _text("k"),
    "ticket_deliveries": _integer("d"),
    "attempts": _integer("u"),
    "max_attempts": _integer("m"),
    "worker": _text("o"),
    "lease_until": _integer("l"),
    "run_at": _integer("da"),
    "due_id": _text("i"),
    "created_at": _integer("c"),
    "started_at": _integer("b"),
    "finished_at": _integer("xa"),
    "progress": Column(
        "g", lambda value: {"S": _compact([value.done, value.total])}, lambda stored: Progress(*json.loads(stored["S"]))
    ),
    "cancel_requested": Column("q", lambda value: {"BOOL": value}, lambda stored: stored["BOOL"]),
    "hand_overs": _integer("f"),
    "history": Column("y", _history, _read_history),
    "traceparent": _text("x"),
    "expires_at": _integer(TTL),
}
"""Every field but tenant and queue, which are read from ``lk``, and the texts."""

TEXTS: Mapping[str, TextColumn] = {
    "payload": TextColumn("p", "P"),
    "checkpoint": TextColumn("z", "Z"),
    "result": TextColumn("r", "R"),
    "error": TextColumn("e", "E"),
}
"""In the order in which they get what room the row has."""


def is_blank(value: Any) -> bool:
    """Whether this value is said by the absence of its attribute."""
    return value is None or value is False or value == ()


def row_key(job_id: str) -> Item:
    return {"pk": {"S": job_id}, "sk": {"S": ROW_SORT_KEY}}


def is_storable_id(job_id: str) -> bool:
    """Whether a job can have this id: one in a foreign ticket may be anything, and may name what is no job. A function that
    asked for an API key would be denied it, and an error is no answer to a message."""
    return is_storable_key(job_id) and "#" not in job_id


def is_storable_key(text: str) -> bool:
    """Whether this can be a partition key at all.

    https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/Constraints.html
    """
    try:
        return 1 <= len(text.encode()) <= 2048
    except UnicodeEncodeError:
        return False


def to_item(job: Job, apart: Mapping[str, str]) -> Item:
    """The row of a job. ``apart`` maps the texts that are items of their own to their sort keys."""
    item = row_key(job.job_id)
    for field, column in COLUMNS.items():
        value = getattr(job, field)
        if not is_blank(value):
            item[column.attribute] = column.encode(value)
    for field, text in TEXTS.items():
        if field in apart:
            item[text.reference] = {"S": apart[field]}
        elif getattr(job, field) is not None:
            item[text.inline] = {"S": getattr(job, field)}
    item["lk"] = {"S": listing_key(job.tenant, job.queue, shard(job.job_id))}
    if job.due_id is not None:
        item["dk"] = mark_key(job.due_id, job.queue, job.job_id)
    if job.state is State.DEAD:
        item["xk"] = {"S": dead_key(job.tenant, shard(job.job_id))}
    return item


def from_item(item: Mapping[str, AttributeValue], texts: Mapping[str, str]) -> Job:
    """The job of a row. ``texts`` holds those texts that are not in the row."""
    tenant, queue, _ = item["lk"]["S"].split("#")
    fields: dict[str, Any] = {"tenant": _unescaped(tenant), "queue": _unescaped(queue), "payload": None}
    for field, column in COLUMNS.items():
        if column.attribute in item:
            fields[field] = column.decode(item[column.attribute])
    for field, text in TEXTS.items():
        if text.inline in item:
            fields[field] = item[text.inline]["S"]
    return Job(**{**fields, **texts})


def references(item: Mapping[str, AttributeValue]) -> dict[str, str]:
    """The texts of this row that are items of their own, and their sort keys."""
    return {field: item[text.reference]["S"] for field, text in TEXTS.items() if text.reference in item}


def shard(job_id: str) -> int:
    return shard_of(job_id, DUE_SHARDS)


def listing_key(tenant: str, queue: str, shard_number: int) -> str:
    return f"{_escaped(tenant)}#{_escaped(queue)}#{shard_number}"


def due_key(shard_number: int) -> AttributeValue:
    return {"S": str(shard_number)}


def line_key(queue: str, shard_number: int) -> AttributeValue:
    return {"S": f"{_escaped(queue)}#{shard_number}"}


def mark_key(due_id: str, queue: str, job_id: str) -> AttributeValue:
    """Where a due mark lies in the due index: in the line of its queue, or among all that wait for their time."""
    return line_key(queue, shard(job_id)) if due_id.startswith(LINE_MARK) else due_key(shard(job_id))


def dead_key(tenant: str, shard_number: int) -> str:
    return f"{_escaped(tenant)}#{shard_number}"


def _escaped(name: str) -> str:
    """``#`` separates the parts of an index key, so that none may hold one: ``a#b`` and ``a``, ``b`` stay apart."""
    return name.replace("%", "%25").replace("#", "%23")


def _unescaped(name: str) -> str:
    return name.replace("%23", "#").replace("%25", "%")
