"""What a job writes to the user's tables: values first, carried out with the job's own end.

An effect is staged, not performed. `Ledger.write` puts all of a job's effects and its terminal state into one transaction, so
they land once or not at all (DESIGN rule 5).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ringfence.errors import Rejected
from ringfence.itemvalues import exact

Item = Mapping[str, Any]
"""An item or key of the user's: str, int, float, Decimal, bool, None, bytes, lists, mappings and sets of these."""

VERSION_ATTRIBUTE = "version"
"""The attribute that ``version=`` compares and raises: an integer, absent before the first write (which is version 0)."""

MAX_EFFECTS = 99
"""A DynamoDB transaction takes 100 actions, and one is the job's own row.
https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Put:
    """Write a whole item. ``version``: only over an item of that version (0: absent), stored as version + 1."""

    table: str
    item: Item
    unless_exists: bool = False
    version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Update:
    """Set some attributes and add to others, making the item if it is not there."""

    table: str
    key: Item
    set: Item = field(default_factory=dict)
    add: Mapping[str, Any] = field(default_factory=dict)
    version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delete:
    """Remove an item."""

    table: str
    key: Item
    version: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """Write nothing, but let the transaction fail unless the item exists (or is absent, or has this version)."""

    table: str
    key: Item
    exists: bool = True
    version: int | None = None


Effect = Put | Update | Delete | Check


def describe(effect: Effect) -> str:
    """A short name for messages: the kind, the table, and the key's attribute names, never a value."""
    subject = effect.item if isinstance(effect, Put) else effect.key
    return f"{type(effect).__name__.lower()} {effect.table} ({', '.join(list(subject)[:4])})"


class Effects:
    """``ctx.effects``: stages effects that commit with the job, in one transaction.

    Values are taken as they are now: what the job does to a dict or list afterwards changes nothing. A value that the store
    cannot keep exactly is `Rejected` here, at the line that staged it.
    """

    def __init__(self) -> None:
        self._staged: list[Effect] = []

    @property
    def staged(self) -> tuple[Effect, ...]:
        return tuple(self._staged)

    def put(self, table: str, item: Item, *, unless_exists: bool = False, version: int | None = None) -> None:
        """Stage a `Put`."""
        self._stage(Put(table=table, item=exact(item), unless_exists=unless_exists, version=version))

    def update(
        self,
        table: str,
        key: Item,
        *,
        set: Item | None = None,
        add: Mapping[str, Any] | None = None,
        version: int | None = None,
    ) -> None:
        """Stage an `Update`."""
        self._stage(Update(table=table, key=exact(key), set=exact(set or {}), add=exact(add or {}), version=version))

    def delete(self, table: str, key: Item, *, version: int | None = None) -> None:
        """Stage a `Delete`."""
        self._stage(Delete(table=table, key=exact(key), version=version))

    def check(self, table: str, key: Item, *, exists: bool = True, version: int | None = None) -> None:
        """Stage a `Check`."""
        self._stage(Check(table=table, key=exact(key), exists=exists, version=version))

    def _stage(self, effect: Effect) -> None:
        if len(self._staged) == MAX_EFFECTS:
            raise Rejected(f"a job can commit at most {MAX_EFFECTS} effects in its one transaction", kind="too-many-effects")
        self._staged.append(effect)
