"""How an attempt ended, as a value: decided here from what the job's code did, carried out by `settle`."""

from __future__ import annotations

import traceback

import msgspec

from ringfence.errors import Dead, EffectRefused, LeaseLost, Misfit, Rejected, Retry, Stopping, Unavailable
from ringfence.places import kind_and_place, users_frames


class Done(msgspec.Struct, frozen=True):
    """The code returned; its result as JSON text."""

    result: str


class Failed(msgspec.Struct, frozen=True):
    """Another attempt may do better, not before ``after_seconds`` from now.

    ``error`` is kept on the row; ``cause`` and ``frames`` are what may be logged: a kind and a place, and how the code came
    there, never a word of the user's data.
    """

    error: str
    cause: str
    after_seconds: float = 0.0
    frames: str = ""


class Hopeless(msgspec.Struct, frozen=True):
    """No other attempt would end differently. ``error``, ``cause`` and ``frames`` as for `Failed`."""

    error: str
    cause: str
    frames: str = ""


class Interrupted(msgspec.Struct, frozen=True):
    """The worker stops; the job goes on elsewhere from its checkpoint."""


class Lost(msgspec.Struct, frozen=True):
    """Another worker owns the job: write nothing, acknowledge nothing."""


class Undecided(msgspec.Struct, frozen=True):
    """The ledger could not be reached for so long that the owner gave up asking: the job goes back, nothing is judged."""


Outcome = Done | Failed | Hopeless | Interrupted | Lost | Undecided


class Acknowledge(msgspec.Struct, frozen=True):
    """The job is decided: its message may go."""


class Release(msgspec.Struct, frozen=True):
    """Somebody, perhaps this worker, shall try again after the delay."""

    delay_seconds: float = 0.0


class Keep(msgspec.Struct, frozen=True):
    """The message is no longer ours to touch."""


Disposition = Acknowledge | Release | Keep
"""What happens to the message once its job is decided here."""


def outcome_of(raised: BaseException) -> Outcome:
    """What an exception of the job's code means."""
    cause, frames = kind_and_place(raised), users_frames(raised)
    match raised:
        case LeaseLost():
            return Lost()
        case Stopping():
            return Interrupted()
        case Retry():
            return Failed(str(raised), cause, raised.after_seconds, frames)
        case Misfit():
            # The fault is in the payload: no line of code, ours or the user's, shows it.
            return Hopeless(str(raised), raised.told)
        case Dead():
            return Hopeless(str(raised), cause, frames)
        case EffectRefused():
            if raised.version_conflict:
                return Failed(str(raised), cause, frames=frames)
            return Hopeless(str(raised), cause, frames)
        case Rejected():
            return Hopeless(f"{raised.kind}: {raised}", f"{cause}: {raised.kind}", frames)
    return Failed("".join(traceback.format_exception_only(raised)).strip() + f" ({cause})", cause, frames=frames)


def outcome_of_commit(raised: Exception) -> Outcome:
    """What an exception of an outcome's own write means: unlike the code's, it may have been applied."""
    return Undecided() if isinstance(raised, Unavailable) else outcome_of(raised)
