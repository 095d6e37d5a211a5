"""Bugs of those who meet what nobody can read, or what was lost: it is dropped, met with an exception, or not all mended."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from ringfence import attempt, claim, relay
from ringfence.job import Job
from ringfence.renewal import Renewer

from .bug import Bug

STRANGERS = {"strangers": 4}


def raises(fault: Any) -> Any:
    raise fault


def poison_in_a_message_raises() -> AbstractContextManager[Any]:
    return patch.object(attempt, "bury_poison", lambda _lease, fault, _services: raises(fault))


def poison_in_a_record_raises() -> AbstractContextManager[Any]:
    return patch.object(relay, "set_aside_record", lambda _shard, _sequence, _data, fault, _services: raises(fault))


def mends_all_but_one() -> AbstractContextManager[Any]:
    original = Renewer.lacking

    def lacking(self: Renewer, queue: str, jobs: Sequence[Job]) -> list[Job]:
        return original(self, queue, jobs)[1:]

    return patch.object(Renewer, "lacking", lacking)


LOSSES_BUGS: tuple[Bug, ...] = (
    Bug(
        "drops a message that it cannot read",
        ("acknowledged_only_when_decided",),
        planted=lambda: patch.object(claim, "set_aside_message", lambda *_: None),
        lives=STRANGERS,
    ),
    Bug(
        "drops a record that it cannot read",
        ("the_checkpoint_passes_only_what_was_sent",),
        planted=lambda: patch.object(relay, "set_aside_record", lambda *_: None),
        lives=STRANGERS,
    ),
    Bug("raises for a message that it cannot read", ("nothing_falls",), planted=poison_in_a_message_raises, lives=STRANGERS),
    Bug("raises for a record that it cannot read", ("nothing_falls",), planted=poison_in_a_record_raises, lives=STRANGERS),
    Bug("mends all but one of what was lost", ("every_accepted_job_ends",), planted=mends_all_but_one, lives={"losses": 3}),
)
