"""What an effect may not say, whatever the store: every ledger refuses it before anything is written."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from collections.abc import Set as AnySet
from decimal import Decimal

from ringfence.effects import VERSION_ATTRIBUTE, Check, Effect, Put, Update, describe
from ringfence.errors import EffectRefused, Rejected
from ringfence.itemvalues import BAD_EFFECT


def bad_effect(effect: Effect, why: str) -> Rejected:
    """The `Rejected` for an effect at fault: no other attempt would end differently."""
    return Rejected(f"{describe(effect)}: {why}", kind=BAD_EFFECT)


def unknown_tables(tables: Iterable[str], configured: Collection[str]) -> str:
    """What to say when one of ``tables``, as the job calls them, is not there: those that no one has configured, and which
    there are. "" if all of them are configured."""
    unknown = sorted(set(tables) - set(configured))
    known = ", ".join(sorted(configured)) or "none"
    return f"there is no table {', '.join(unknown)}; those configured (RINGFENCE_TABLES) are {known}" if unknown else ""


def refused(effect: Effect) -> EffectRefused:
    """The error for an effect whose own condition did not hold, saying what it was."""
    return EffectRefused(
        f"{describe(effect)} ({_expected(effect)})",
        version_conflict=is_version_conflict(effect),
        already_there=isinstance(effect, Put) and effect.unless_exists,
    )


def _expected(effect: Effect) -> str:
    match effect:
        case Put(unless_exists=True):
            return "unless_exists: the item is there already"
        case Check(exists=False):
            return "exists=False: the item is there"
        case Check(version=None):
            return "the item is not there"
    return f"version {effect.version} expected"


def is_version_conflict(effect: Effect) -> bool:
    """What a condition of this effect that did not hold means: somebody else wrote first, or (false) it will never hold."""
    return effect.version is not None and not (isinstance(effect, Put) and effect.unless_exists)


def ensure_sound(effect: Effect) -> None:
    """Raise `Rejected` (``bad-effect``) for an effect that contradicts itself."""
    if effect.version is not None and effect.version < 0:
        raise bad_effect(effect, "there is no version below 0")
    if not isinstance(effect, Put) and not effect.key:
        raise bad_effect(effect, "names no key")
    match effect:
        case Check(exists=False, version=int()):
            raise bad_effect(effect, "what is absent has no version to check")
        case Update():
            _ensure_sound_update(effect)


def _ensure_sound_update(effect: Update) -> None:
    changed = [*effect.set, *effect.add]
    if effect.version is not None:
        changed.append(VERSION_ATTRIBUTE)
    if not changed:
        raise bad_effect(effect, "has nothing to set or add")
    twice = {name for name in changed if changed.count(name) > 1}
    if twice:
        raise bad_effect(effect, f"changes {', '.join(sorted(twice))} twice")
    keys = effect.key.keys() & changed
    if keys:
        raise bad_effect(effect, f"changes its own key {', '.join(sorted(keys))}")
    for name, value in effect.add.items():
        if isinstance(value, bool) or not isinstance(value, int | float | Decimal | AnySet):
            raise bad_effect(effect, f"only numbers and sets can be added, not what {name} holds")
