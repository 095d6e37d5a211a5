"""One conditional write to a job's row, as a value.

A `Change` says what must hold (`Condition`), what is written, and nothing about the store: `memory` applies it with
`holds` and `apply`, `aws` compiles it to a DynamoDB expression, and both pass the same contract suite. The rules
themselves are in `transitions`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ringfence.job import Job, State

RowValue = Any
"""A value of one of `Job`'s fields."""


@dataclass(frozen=True, slots=True)
class Is:
    """The field has exactly this value."""

    field: str
    value: RowValue


@dataclass(frozen=True, slots=True)
class OneOf:
    """The field has one of these values."""

    field: str
    values: tuple[RowValue, ...]


@dataclass(frozen=True, slots=True)
class Unset:
    """The field is not set (None; for ``cancel_requested``, false)."""

    field: str


@dataclass(frozen=True, slots=True)
class AtMost:
    """The field is set and not above this number."""

    field: str
    value: int


@dataclass(frozen=True, slots=True)
class Below:
    """One numeric field of the row is below another."""

    field: str
    other: str


@dataclass(frozen=True, slots=True)
class Any_:
    """At least one of these holds."""

    conditions: tuple[Condition, ...]


@dataclass(frozen=True, slots=True)
class All:
    """Each of these holds."""

    conditions: tuple[Condition, ...]


Condition = Is | OneOf | Unset | AtMost | Below | Any_ | All


def all_of(*conditions: Condition) -> All:
    return All(conditions)


def any_of(*conditions: Condition) -> Any_:
    return Any_(conditions)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One conditional write to the row of ``job_id``; it also raises ``version`` by one and stores ``write_id``.

    The row must exist. A field set to None is removed. ``seen`` is the row the writer last saw, where there is one: adapters
    may use it to lay out large texts, never to decide.
    """

    job_id: str
    write_id: str
    condition: Condition
    set: Mapping[str, RowValue]
    add: Mapping[str, int] = field(default_factory=dict)
    seen: Job | None = None

    @property
    def leads_to(self) -> State | None:
        """The state this change writes, if it writes one."""
        return self.set.get("state")


@dataclass(frozen=True, slots=True)
class Written:
    """The change is in the ledger; ``job`` is the row after it."""

    job: Job


@dataclass(frozen=True, slots=True)
class Refused:
    """The condition did not hold; ``seen`` is the row that refused it, None if there is none."""

    seen: Job | None


def holds(condition: Condition, job: Job) -> bool:
    """Whether the condition holds for this row."""
    match condition:
        case Is(name, value):
            return bool(getattr(job, name) == value)
        case OneOf(name, values):
            return getattr(job, name) in values
        case Unset(name):
            value = getattr(job, name)
            return value is None or value is False  # a number that is 0 is set
        case AtMost(name, limit):
            value = getattr(job, name)
            return value is not None and value <= limit
        case Below(name, other):
            return bool(getattr(job, name) < getattr(job, other))
        case Any_(conditions):
            return any(holds(c, job) for c in conditions)
        case All(conditions):
            return all(holds(c, job) for c in conditions)


def apply(change: Change, job: Job) -> Job:
    """The row after the change, its condition not looked at."""
    raised = {name: getattr(job, name) + by for name, by in change.add.items()}
    return dataclasses.replace(job, **change.set, **raised, write_id=change.write_id, version=job.version + 1)


def is_own_write(write: Change | Job, seen: Job | None) -> bool:
    """Whether a refused change, or the refused put of a new row, was in fact carried out earlier and only its reply was lost.

    The row's latest write carries this very ``write_id`` and the state it wrote. Nothing else counts.
    """
    state = write.state if isinstance(write, Job) else write.leads_to
    return seen is not None and seen.write_id == write.write_id and state in (None, seen.state)
