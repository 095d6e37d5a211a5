"""Designs with one thing wrong, each with the promise it breaks: the model must find the way there, or it proves nothing.

Each is a line of DESIGN §5, or one of its rules, broken on purpose.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any

from ringfence.change import Change, Is, OneOf, all_of
from ringfence.job import Job, State

from .explorer import ENDS
from .protocol import ABSORBED, ACKNOWLEDGED, CANCELLED, DOUBLED, EARLY, LATE, LOST, MISSING, TOKENS, Design, Scope
from .rules import CHANGES, OWNERS, Given, Make

ONE = Scope(workers=2, max_attempts=3)
HIGHEST = 50
"""No token of the model comes near it."""


@dataclass(frozen=True, kw_only=True)
class WrongDesign:
    """``breaks``: the promises it is searched for, each by itself; others may break as well."""

    breaks: tuple[str, ...]
    design: Design
    scope: Scope = field(default_factory=lambda: ONE)


def _order(*wrong: str) -> Design:
    return Design(wrong=frozenset(wrong))


def _changes(*wrong: str, **changes: Make) -> Design:
    return Design(changes={name.replace("_", " "): make for name, make in changes.items()}, wrong=frozenset(wrong))


def _otherwise(name: str, **fields: Any) -> Make:
    """The product's change with these fields set otherwise."""

    def make(seen: Job, given: Given) -> Change:
        change = CHANGES[name](seen, given)
        return dataclasses.replace(change, set={**change.set, **fields})

    return make


def _relying_on(name: str, condition: Any) -> Make:
    """The product's change under a condition of its own, made from the row that was seen."""
    return lambda seen, given: dataclasses.replace(CHANGES[name](seen, given), condition=condition(seen))


def _without_raise(name: str) -> Make:
    def make(seen: Job, given: Given) -> Change:
        change = CHANGES[name](seen, given)
        return dataclasses.replace(change, add={field: by for field, by in change.add.items() if field != "token"})

    return make


def _owners(condition: Any) -> dict[str, Make]:
    return {name: _relying_on(name, condition) for name in OWNERS}


def _nothing(_seen: Job) -> Any:
    return all_of()


def _at_least_its_token(seen: Job) -> Any:
    return all_of(OneOf("token", tuple(range(seen.token, HIGHEST))), Is("state", State.RUNNING))


def _its_token_alone(seen: Job) -> Any:
    return all_of(Is("token", seen.token), Is("state", State.RUNNING))


def _mark_and_state(seen: Job) -> Any:
    return all_of(Is("due_id", seen.due_id), Is("state", seen.state))


def _state_alone(seen: Job) -> Any:
    return Is("state", seen.state)


def _from_the_queue(name: str) -> Make:
    """The token is the queue's count of deliveries, not the row's own."""

    def make(seen: Job, given: Given) -> Change:
        change = _without_raise(name)(seen, given)
        return dataclasses.replace(change, set={**change.set, "token": given.deliveries})

    return make


def _uncounted(name: str) -> Make:
    def make(seen: Job, given: Given) -> Change:
        return dataclasses.replace(CHANGES[name](seen, given), add={"token": 1})

    return make


def _never_stuck(seen: Job, given: Given) -> Change:
    change = CHANGES["hand over"](seen, given)
    return dataclasses.replace(change, set={**change.set, "hand_overs": 0}, add={"attempts": -1})


WRONG_DESIGNS: dict[str, WrongDesign] = {
    # --- rule 5: effect and end commit together, or the effect is keyed -------------------------------------------------
    "effect and end are two writes, each fenced": WrongDesign(breaks=(DOUBLED,), design=_order("effect before")),
    "the end is written before the effect": WrongDesign(breaks=(MISSING,), design=_order("effect after")),
    "an effect is fenced, but neither keyed nor committed with the end": WrongDesign(
        breaks=(DOUBLED,), design=_order("effect not keyed")
    ),
    # --- rule 1: write downstream, then acknowledge upstream ------------------------------------------------------------
    "a worker acknowledges before it commits": WrongDesign(breaks=(LOST, ACKNOWLEDGED), design=_order("acknowledged first")),
    "a worker acknowledges a ticket as it takes it": WrongDesign(
        breaks=(LOST, ACKNOWLEDGED), design=_order("acknowledged at once")
    ),
    "the checkpoint passes a failed push": WrongDesign(breaks=(LOST,), design=_order("checkpoint passes failed push")),
    "an undecided commit is acknowledged": WrongDesign(breaks=(LOST, ACKNOWLEDGED), design=_order("undecided acknowledged")),
    # --- rule 3: the token is minted where it is checked, and never reset -----------------------------------------------
    "the token is the queue's count of deliveries": WrongDesign(
        breaks=(LATE,),
        design=_changes(claim=_from_the_queue("claim"), take_over=_from_the_queue("take over"), **_owners(_its_token_alone)),
        scope=dataclasses.replace(ONE, failovers=True),
    ),
    "a take-over keeps the token": WrongDesign(breaks=(TOKENS,), design=_changes(take_over=_without_raise("take over"))),
    "a redrive resets the token": WrongDesign(
        breaks=(TOKENS,),
        design=_changes(redrive=_otherwise("redrive", token=0)),
        scope=dataclasses.replace(ONE, redrives=1, outcomes=frozenset({"give up"})),
    ),
    "a redrive resets the token, and the token is all that is checked": WrongDesign(
        breaks=(LATE,),
        design=_changes(redrive=_otherwise("redrive", token=0), **_owners(_its_token_alone)),
        scope=dataclasses.replace(ONE, redrives=1, outcomes=frozenset({"succeed", "give up"})),
    ),
    # --- rule 4: every mutation names the token -------------------------------------------------------------------------
    "an owner's token may be equal or lower": WrongDesign(breaks=(LATE,), design=_changes(**_owners(_at_least_its_token))),
    "a job is completed by its id": WrongDesign(breaks=(DOUBLED,), design=_changes(succeed=_relying_on("succeed", _nothing))),
    "a retry is written by the job's id": WrongDesign(
        breaks=(DOUBLED,),
        design=_changes(retry_soon=_relying_on("retry soon", _nothing)),
        scope=dataclasses.replace(ONE, delays=("soon",)),
    ),
    "a rescue goes by an old snapshot": WrongDesign(
        breaks=(DOUBLED,), design=_changes(take_over=_relying_on("take over", _nothing))
    ),
    "the dead are buried by an old snapshot": WrongDesign(
        breaks=(ABSORBED,), design=_changes(bury=_relying_on("bury", _nothing)), scope=dataclasses.replace(ONE, max_attempts=1)
    ),
    "a claim takes whatever row is there": WrongDesign(
        breaks=(DOUBLED,), design=_changes(claim=_relying_on("claim", _nothing))
    ),
    "any running row is taken for one's own": WrongDesign(breaks=(TOKENS,), design=_order("any running row is its own")),
    # --- accept ---------------------------------------------------------------------------------------------------------
    "a keyed repeat is not appended again": WrongDesign(
        breaks=(LOST,), design=_order("repeat not appended"), scope=dataclasses.replace(ONE, from_the_gateway=True)
    ),
    "a job without a row is pushed": WrongDesign(
        breaks=(LOST,), design=_order("unregistered pushed"), scope=dataclasses.replace(ONE, from_the_gateway=True, keyed=False)
    ),
    "a repeated record registers its job over the row": WrongDesign(
        breaks=(DOUBLED,),
        design=_order("registered over"),
        scope=dataclasses.replace(ONE, from_the_gateway=True, keyed=False, delays=("soon",)),
    ),
    # --- claim ----------------------------------------------------------------------------------------------------------
    "an early ticket is acknowledged": WrongDesign(
        breaks=(LOST, ACKNOWLEDGED), design=_order("early acknowledged"), scope=dataclasses.replace(ONE, kinds=("soon",))
    ),
    "a held ticket is acknowledged": WrongDesign(breaks=(LOST, ACKNOWLEDGED), design=_order("held acknowledged")),
    "a claim clears the due mark": WrongDesign(
        breaks=(LOST,),
        design=_changes(claim=_otherwise("claim", due_id=None)),
        scope=dataclasses.replace(ONE, outcomes=frozenset({"fail"}), delays=("later",)),
    ),
    "attempts are not counted by the claim": WrongDesign(
        breaks=(ENDS,),
        design=_changes(claim=_uncounted("claim"), take_over=_uncounted("take over")),
        scope=dataclasses.replace(ONE, outcomes=frozenset({"kill"}), faults=0),
    ),
    # --- relay, park ----------------------------------------------------------------------------------------------------
    "a job is parked without a due mark": WrongDesign(
        breaks=(LOST,), design=_changes(park=_otherwise("park", due_id=None)), scope=dataclasses.replace(ONE, parks=True)
    ),
    "a record that is read again parks its job whatever the row says": WrongDesign(
        breaks=(DOUBLED,),
        design=_changes(park=_relying_on("park", _nothing)),
        scope=dataclasses.replace(ONE, parks=True, outcomes=frozenset({"succeed"})),
    ),
    # --- retry, hand-over -----------------------------------------------------------------------------------------------
    "a long retry leaves no due mark": WrongDesign(
        breaks=(LOST, ACKNOWLEDGED), design=_changes(retry_later=_otherwise("retry later", due_id=None))
    ),
    "a long retry acknowledges before it writes": WrongDesign(breaks=(LOST, ACKNOWLEDGED), design=_order("ticket before row")),
    "a short retry gives its ticket back before it writes": WrongDesign(
        breaks=(EARLY,), design=_order("ticket before row"), scope=dataclasses.replace(ONE, delays=("soon",))
    ),
    "a short retry leaves its time to the queue": WrongDesign(
        breaks=(EARLY,), design=_changes(retry_soon=_otherwise("retry soon", run_at=None))
    ),
    "hand-overs never count": WrongDesign(
        breaks=(ENDS,),
        design=_changes(hand_over=_never_stuck),
        scope=dataclasses.replace(ONE, outcomes=frozenset({"hand over"}), faults=0),
    ),
    # --- timers ---------------------------------------------------------------------------------------------------------
    "the mark is cleared before the push": WrongDesign(
        breaks=(LOST,), design=_order("mark cleared first"), scope=dataclasses.replace(ONE, kinds=("far",))
    ),
    "the mark is cleared by job id": WrongDesign(
        breaks=(LOST,),
        design=_changes(clear_mark=_relying_on("clear mark", _state_alone)),
        scope=dataclasses.replace(ONE, kinds=("far",), outcomes=frozenset({"fail"}), delays=("later",)),
    ),
    "a job joins the line whatever its time has become": WrongDesign(
        breaks=(EARLY,),
        design=_changes(join_line=_relying_on("join line", _mark_and_state)),
        scope=dataclasses.replace(ONE, faults=0, parks=True, delays=("soon",), outcomes=frozenset({"fail"})),
    ),
    "the last resort is emptied before the push": WrongDesign(
        breaks=(LOST,),
        design=_order("last resort emptied first"),
        scope=dataclasses.replace(ONE, last_resort=True, delays=("soon",)),
    ),
    "nobody notices that the queue lost its memory": WrongDesign(
        breaks=(LOST,),
        design=_order("memory not repaired"),
        scope=dataclasses.replace(ONE, forgets=True, delays=("soon",), faults=1),
    ),
    # --- redrive, cancel ------------------------------------------------------------------------------------------------
    "a redrive leaves no due mark": WrongDesign(
        breaks=(LOST,),
        design=_changes(redrive=_otherwise("redrive", due_id=None)),
        scope=dataclasses.replace(ONE, redrives=1, outcomes=frozenset({"give up"})),
    ),
    "the cancel of a running job leaves no flag": WrongDesign(
        breaks=(CANCELLED,), design=_order("cancel not written"), scope=dataclasses.replace(ONE, cancels=1)
    ),
}
