"""The user's tables in memory: items by key, and effects carried out on them all or none."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from decimal import Context, Decimal
from typing import Any

from ringfence.effect_rules import bad_effect, ensure_sound, refused, unknown_tables
from ringfence.effects import VERSION_ATTRIBUTE, Check, Delete, Effect, Item, Put, Update
from ringfence.errors import Rejected
from ringfence.itemvalues import BAD_EFFECT, MAX_DIGITS, exact, number

Place = tuple[str, tuple[Any, ...]]
"""A table's name and the values of a key."""

Stored = dict[str, Any]

_ADDITION = Context(prec=MAX_DIGITS)


class UserTables:
    """Not safe to share between threads: the ledger's lock is held by every caller."""

    def __init__(self, key_attributes: Mapping[str, Sequence[str]]) -> None:
        self._key_attributes = {table: tuple(names) for table, names in key_attributes.items()}
        self._items: dict[Place, Stored] = {}

    def read(self, table: str, key: Item) -> Stored | None:
        """A copy of the item. Raises `Rejected` (``bad-effect``) for an unknown table or a key that is not its key."""
        item = self._items.get(self._place(table, exact(key), whole=True))
        return None if item is None else copy.deepcopy(item)

    def items(self, table: str) -> list[Stored]:
        """Copies of all items of a table, in the order of their keys' first writes."""
        if table not in self._key_attributes:
            raise Rejected(unknown_tables([table], self._key_attributes), kind=BAD_EFFECT)
        return [copy.deepcopy(item) for (name, _), item in self._items.items() if name == table]

    def prepare(self, effects: Sequence[Effect]) -> list[Place]:
        """Where each effect writes. Raises `Rejected` (``bad-effect``) for those that no store would take."""
        places: list[Place] = []
        for effect in effects:
            try:
                ensure_sound(effect)
                subject = effect.item if isinstance(effect, Put) else effect.key
                place = self._place(effect.table, exact(subject), whole=not isinstance(effect, Put))
            except Rejected as fault:
                raise bad_effect(effect, str(fault)) from fault
            if place in places:
                raise bad_effect(effect, "another effect of this transaction is on the same item")
            places.append(place)
        return places

    def carry_out(self, effects: Sequence[Effect], places: Sequence[Place]) -> None:
        """All effects, or none if a condition does not hold (`EffectRefused`) or a value does not fit (`Rejected`)."""
        for effect, place in zip(effects, places, strict=True):
            if not _holds(effect, self._items.get(place)):
                raise refused(effect)
        after = {place: _after(effect, self._items.get(place)) for effect, place in zip(effects, places, strict=True)}
        for place, item in after.items():
            if item is None:
                self._items.pop(place, None)
            else:
                self._items[place] = item

    def _place(self, table: str, subject: Mapping[str, Any], *, whole: bool) -> Place:
        names = self._key_attributes.get(table)
        if names is None:
            raise Rejected(unknown_tables([table], self._key_attributes), kind=BAD_EFFECT)
        missing = [name for name in names if not _can_be_key(subject.get(name))]
        if missing or (whole and len(subject) != len(names)):
            raise Rejected(f"the key of {table} is {', '.join(names)}", kind=BAD_EFFECT)
        return table, tuple(subject[name] for name in names)


def _can_be_key(value: Any) -> bool:
    return (isinstance(value, str | bytes) and len(value) > 0) or _is_number(value)


def _holds(effect: Effect, there: Stored | None) -> bool:
    if isinstance(effect, Put) and effect.unless_exists and there is not None:
        return False
    if isinstance(effect, Check) and effect.exists != (there is not None):
        return False
    return effect.version is None or (there or {}).get(VERSION_ATTRIBUTE, 0) == effect.version


def _after(effect: Effect, there: Stored | None) -> Stored | None:
    raised = {} if effect.version is None else {VERSION_ATTRIBUTE: effect.version + 1}
    match effect:
        case Put():
            return {**exact(effect.item), **raised}
        case Update():
            before = there if there is not None else exact(effect.key)
            added = {name: _sum(effect, before.get(name), value) for name, value in exact(effect.add).items()}
            return {**before, **exact(effect.set), **added, **raised}
        case Delete():
            return None
        case Check():
            return there


def _sum(effect: Effect, before: Any, value: Any) -> Any:
    if before is None:
        return value
    if isinstance(before, frozenset) and isinstance(value, frozenset):
        return before | value
    if _is_number(before) and _is_number(value):
        return number(_ADDITION.add(Decimal(before), Decimal(value)))
    raise bad_effect(effect, "what is there is of another type than what is added")


def _is_number(value: Any) -> bool:
    return isinstance(value, int | Decimal) and not isinstance(value, bool)
