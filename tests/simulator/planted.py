"""Bugs that queues have had, planted one at a time: a checker that does not see its own is worth nothing.

Each is a piece put in the place of the product's, or a patch of one of its functions; the product has no switch for any.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any
from unittest.mock import patch

from ringfence import claim, settle, transitions, verdict
from ringfence.change import Change, Is, Refused, Written, all_of
from ringfence.crew import Crew
from ringfence.inhand import InHand
from ringfence.intake import Message
from ringfence.job import Job, Millis, State
from ringfence.lease import Heartbeat
from ringfence.memory.ledger import MemoryLedger
from ringfence.outcome import Acknowledge, Disposition
from ringfence.ports import Lease
from ringfence.relay import Relay
from ringfence.sender import Sender, Sent

from .bug import Bug, rewritten, together
from .planted_gateway import GATEWAY_BUGS
from .planted_losses import LOSSES_BUGS
from .planted_times import TIME_BUGS
from .world import Parts

# --- pieces --------------------------------------------------------------------------------------------------------------


class AcknowledgesFirst(InHand):
    def _take_and_run(self, lease: Lease, ticket: Any) -> Any:
        self._queue.acknowledge([lease])
        return super()._take_and_run(lease, ticket)


class AcknowledgesLost(InHand):
    def _decided(self, lease: Lease, disposition: Disposition) -> None:
        super()._decided(lease, disposition)
        if not isinstance(disposition, Acknowledge):
            self._queue.acknowledge([lease])


class KeepsWhatItHasNotStarted(Crew):
    def _give_back(self, leases: Sequence[Lease], delay_seconds: float) -> None: ...


class TakesInTwoSteps(InHand):
    """Between the two there seems to be nothing left to do."""

    def add(self, message: Message) -> None:
        self._lock.release()
        self._lock.acquire()
        super().add(message)


class TakesNoNoticeOfTheEnd(InHand):
    def stop_in_time(self) -> None: ...


class LeavesTheVisibility(Heartbeat):
    def start(self) -> None:
        with patch.object(self, "_renew"):
            super().start()


class IsNotStopped(Heartbeat):
    def stop(self) -> None: ...


class CompletesById(MemoryLedger):
    def write(self, change: Change, effects: Any = (), *, request_token: str | None = None) -> Written | Refused:
        if change.leads_to is State.SUCCEEDED:
            change = dataclasses.replace(change, condition=all_of())
        return super().write(change, effects, request_token=request_token)


class ForgetsEffectsFence(MemoryLedger):
    def write(self, change: Change, effects: Any = (), *, request_token: str | None = None) -> Written | Refused:
        if effects:
            self._tables.carry_out(effects, self._prepared(effects))
        return super().write(change, request_token=request_token)


class WritesUnderNoFence(MemoryLedger):
    """What a job writes in between."""

    def write_effects(self, held: Change, effects: Any, *, request_token: str) -> Refused | None:
        return super().write_effects(dataclasses.replace(held, condition=all_of()), effects, request_token=request_token)


class PushesAtOnce(Relay):
    def _delay_seconds(self, job: Any) -> int:
        return 0


class TakesAPushForMade(Relay):
    """Whatever was not taken of it."""

    def _push(self, window: Any, batch: Any) -> None:
        super()._push(window, batch)


# --- patches -------------------------------------------------------------------------------------------------------------


def token_of_the_queue() -> AbstractContextManager[Any]:
    def minted(change: Change, *args: Any) -> Any:
        owner = args[-1]
        return {**change.set, "token": owner.deliveries}

    def counted(change: Change, *_: Any) -> Any:
        return {name: by for name, by in change.add.items() if name != "token"}

    return together(
        rewritten("claim_waiting", set=minted, add=counted),
        rewritten("claim_seen", set=minted, add=counted),
    )


def two_writes() -> AbstractContextManager[Any]:
    original = settle._succeed

    def succeed(ownership: Any, result: str, effects: Any, services: Any) -> Disposition:
        if effects:
            ownership.write_effects(effects)
        return original(ownership, result, (), services)

    return patch.object(settle, "_succeed", succeed)


def clears_first() -> AbstractContextManager[Any]:
    def release(self: Sender, queue: str, jobs: Sequence[Job], waits: Sequence[Millis]) -> Sent[Job]:
        self.clear(jobs)
        return self.push(queue, jobs, waits)

    return patch.object(Sender, "release", release)


def judged_otherwise(wrong: Callable[[verdict.Verdict], verdict.Verdict]) -> Callable[[], AbstractContextManager[Any]]:
    original = verdict.judge
    return lambda: patch.object(claim, "judge", lambda *args: wrong(original(*args)))


def _without_run_at(change: Change, *_: Any) -> Any:
    return all_of(*(each for each in change.condition.conditions if "run_at" not in repr(each)))  # type: ignore[union-attr]


def _only_running(*_: Any) -> Any:
    return Is("state", State.RUNNING)


def ignores_run_at() -> AbstractContextManager[Any]:
    return together(
        rewritten("claim_waiting", condition=_without_run_at),
        judged_otherwise(lambda found: verdict.Free(True) if isinstance(found, verdict.Early) else found),
        lambda: patch.object(claim, "_seconds_early", lambda *_: 0.0),
    )


@contextmanager
def forgets_dead_carried() -> Iterator[None]:
    with patch("ringfence.carried._registered", lambda row, services: Acknowledge()):
        yield


DEATHS = ("crash before", "crash after")
FUNCTIONS = frozenset({1, 2})
"""All the workers that can be."""

BUGS: tuple[Bug, ...] = (
    Bug(
        "keeps no row of a dead job that rode in its ticket",
        ("every_accepted_job_ends",),
        planted=forgets_dead_carried,
        lives={"jobs": 14},
    ),
    Bug("acknowledges before the commit", ("acknowledged_only_when_decided",), lambda: Parts(in_hand=AcknowledgesFirst)),
    Bug(
        "acknowledges what it has lost or given back",
        ("acknowledged_only_when_decided",),
        lambda: Parts(in_hand=AcknowledgesLost),
    ),
    Bug(
        "completes by job id",
        ("terminal_absorbs", "effects_land_once", "late_owners_write_nothing"),
        lambda: Parts(ledger=CompletesById),
        lives={"names": ("two", "stubborn")},
    ),
    Bug("writes effects without their fence", ("effects_land_once",), lambda: Parts(ledger=ForgetsEffectsFence)),
    Bug("writes effect and commit one after the other, each fenced", ("effects_land_once",), planted=two_writes, kinds=DEATHS),
    Bug("takes its token from the queue", ("tokens_rise",), planted=token_of_the_queue),
    Bug(
        "takes over from an old snapshot",
        ("tokens_rise", "late_owners_write_nothing"),
        planted=rewritten(
            "claim_seen",
            condition=_only_running,
            set=lambda change, seen, *_: {**change.set, "token": seen.token + 1},
            add=lambda change, *_: {name: by for name, by in change.add.items() if name != "token"},
        ),
        kinds=("freeze", "twice"),
        lives={"names": ("long", "stubborn")},
    ),
    Bug(
        "lets an owner write under any newer token",
        ("late_owners_write_nothing",),
        planted=lambda: patch.object(transitions, "still_mine", lambda job: Is("state", State.RUNNING)),
    ),
    Bug(
        "resets the token with a redrive",
        ("tokens_rise",),
        planted=rewritten("redrive", set=lambda change, *_: {**change.set, "token": 0}),
    ),
    Bug(
        "moves the checkpoint past what failed",
        ("the_checkpoint_passes_only_what_was_sent",),
        lambda: Parts(relay=TakesAPushForMade),
    ),
    Bug(
        "clears a mark before it pushes",
        ("every_accepted_job_ends",),
        planted=clears_first,
        kinds=DEATHS,
        lives={"names": ("flaky", "doomed"), "losses": 0},
    ),
    Bug(
        "acknowledges an early ticket",
        ("acknowledged_only_when_decided", "every_accepted_job_ends"),
        lambda: Parts(relay=PushesAtOnce),
        judged_otherwise(lambda found: verdict.Finished() if isinstance(found, verdict.Early) else found),
    ),
    Bug("looks at no run_at", ("nothing_starts_early",), lambda: Parts(relay=PushesAtOnce), ignores_run_at),
    Bug(
        "counts no attempts",
        ("attempts_are_bounded",),
        planted=rewritten("claim_waiting", add={"token": 1}),
        drain_seconds=200.0,
    ),
    Bug(
        "revives what has ended",
        ("terminal_absorbs",),
        planted=rewritten("retry_soon", condition=lambda change, *_: all_of()),
        kinds=("freeze", "slow"),
        lives={"names": ("doomed", "flaky")},
    ),
    Bug(
        "lets an attempt that was handed over write under its token",
        ("ended_attempts_write_nothing",),
        planted=lambda: patch.object(transitions, "still_mine", lambda job: Is("token", job.token)),
    ),
    Bug(
        "fences the effects of a commit, and not those of a write in between",
        ("ended_attempts_write_nothing",),
        lambda: Parts(ledger=WritesUnderNoFence),
        kinds=("freeze", "slow", "late"),
        fault_share=0.2,
        lives={"names": ("two",)},
    ),
    Bug(
        "keeps what it has not started",
        ("unstarted_messages_come_back",),
        lambda: Parts(crew=KeepsWhatItHasNotStarted),
        fault_share=0.02,
        lives={"stops": 4, "jobs": 14, "threads": 1},
    ),
    Bug(
        "loses the checkpoint as it hands over",
        ("hand_overs_cost_nothing",),
        planted=rewritten("hand_over", set=lambda change, *_: {**change.set, "checkpoint": None}),
        lives={"names": ("long",)},
    ),
    Bug("counts a hand-over as an attempt", ("hand_overs_cost_nothing",), planted=rewritten("hand_over", add={})),
    Bug(
        "counts no hand-overs",
        ("hand_overs_cost_nothing",),
        planted=rewritten("hand_over", set=lambda change, *_: {**change.set, "hand_overs": 0}, add={"attempts": -1}),
        lives={"functions": FUNCTIONS, "names": ("stubborn",), "jobs": 8},
    ),
    Bug(
        "leaves a batch on the visibility of its queue",
        ("a_batch_is_on_lease_before_it_starts",),
        lambda: Parts(heartbeat=LeavesTheVisibility),
    ),
    Bug(
        "leaves its heartbeat to the next invocation",
        ("nothing_outlives_its_invocation",),
        lambda: Parts(heartbeat=IsNotStopped),
        kinds=("freeze", "slow"),
        fault_share=0.1,
    ),
    Bug(
        "takes a message under the lock twice, not once",
        ("unstarted_messages_come_back",),
        lambda: Parts(in_hand=TakesInTwoSteps),
        fault_share=0.02,
        lives={"pause_share": 0.2, "functions": FUNCTIONS, "threads": 3, "jobs": 10},
    ),
    Bug(
        "hands nothing over",
        ("workers_end_in_good_order",),
        lambda: Parts(in_hand=TakesNoNoticeOfTheEnd),
        fault_share=0.02,
        lives={"stops": 3, "jobs": 10, "names": ("long", "stubborn")},
    ),
    *GATEWAY_BUGS,
    *LOSSES_BUGS,
    *TIME_BUGS,
)

__all__ = ["BUGS"]
