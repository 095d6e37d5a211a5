"""How an attempt ended, as a value: decided here from what the job's code did, carried out by `settle`."""

from __future__ import annotations

import traceback
from dataclasses import dataclass

from ringfence.errors import Dead, EffectRefused, LeaseLost, Misfit, Rejected, Retry, Stopping, Unavailable
from ringfence.places import kind_and_place, users_frames


@dataclass(frozen=True, slots=True)
class Done:
    """The code returned; its result as JSON text."""

    result: str


@dataclass(frozen=True, slots=True)
class Failed:
    """Another attempt may do better, not before ``after_seconds`` from now.

    ``error`` is kept on the row; ``cause`` and ``frames`` are what may be logged: a kind and a place, and how the code came
    there, never a word of the user's data.
    """

    error: str
    cause: str
    after_seconds: float = 0.0
    frames: str = ""


@dataclass(frozen=True, slots=True)
class Hopeless:
    """No other attempt would end differently. ``error``, ``cause`` and ``frames`` as for `Failed`."""

    error: str
    cause: str
    frames: str = ""


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The worker stops; the job goes on elsewhere from its checkpoint."""


@dataclass(frozen=True, slots=True)
class Lost:
    """Another worker owns the job: write nothing, acknowledge nothing."""


@dataclass(frozen=True, slots=True)
class Undecided:
    """The ledger could not be reached for so long that the owner gave up asking: the lease ends, nothing is judged."""


Outcome = Done | Failed | Hopeless | Interrupted | Lost | Undecided


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """The job is decided: its message may go."""


@dataclass(frozen=True, slots=True)
class Release:
    """Somebody, perhaps this worker, shall try again after the delay."""

    delay_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Keep:
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
            return Hopeless(
                str(raised), raised.told
            )  # the fault is in the payload: no line of code, ours or the user's, shows it
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
