"""How an attempt ended, as a value: decided here from what the job's code did, carried out by `settle`."""

from __future__ import annotations

import traceback
from dataclasses import dataclass

from ringfence.errors import Dead, EffectRefused, LeaseLost, Rejected, Retry, Stopping, Unavailable


@dataclass(frozen=True, slots=True)
class Done:
    """The code returned; its result as JSON text."""

    result: str


@dataclass(frozen=True, slots=True)
class Failed:
    """Another attempt may do better, not before ``after_seconds`` from now.

    ``error`` is kept on the row; ``cause`` is what may be logged: a kind and a place, never a word of the user's data.
    """

    error: str
    cause: str
    after_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Hopeless:
    """No other attempt would end differently. ``error`` and ``cause`` as for `Failed`."""

    error: str
    cause: str


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
    cause = kind_and_place(raised)
    match raised:
        case LeaseLost():
            return Lost()
        case Stopping():
            return Interrupted()
        case Retry():
            return Failed(str(raised), cause, raised.after_seconds)
        case Dead():
            return Hopeless(str(raised), cause)
        case EffectRefused():
            return Failed(str(raised), cause) if raised.version_conflict else Hopeless(str(raised), cause)
        case Rejected():
            return Hopeless(f"{raised.kind}: {raised}", f"{cause}: {raised.kind}")
    return Failed("".join(traceback.format_exception_only(raised)).strip() + f" ({cause})", cause)


def outcome_of_commit(raised: Exception) -> Outcome:
    """What an exception of an outcome's own write means: unlike the code's, it may have been applied."""
    return Undecided() if isinstance(raised, Unavailable) else outcome_of(raised)


def kind_and_place(raised: BaseException) -> str:
    """The exception's type, and where in the job's code it came from."""
    frames = traceback.extract_tb(raised.__traceback__)
    where = f" at {frames[-1].filename.rsplit('/', 1)[-1]}:{frames[-1].lineno} in {frames[-1].name}" if frames else ""
    return type(raised).__name__ + where
