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
    """Another attempt may do better, not before ``after_seconds`` from now."""

    error: str
    after_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Hopeless:
    """No other attempt would end differently."""

    error: str


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
    """What an exception of the job's code, or of its commit, means."""
    match raised:
        case LeaseLost():
            return Lost()
        case Stopping():
            return Interrupted()
        case Retry():
            return Failed(str(raised), raised.after_seconds)
        case Dead():
            return Hopeless(str(raised))
        case EffectRefused():
            return Failed(str(raised)) if raised.version_conflict else Hopeless(str(raised))
        case Rejected():
            return Hopeless(f"{raised.kind}: {raised}")
        case Unavailable():
            return Undecided()
    return Failed(_told(raised))


def _told(raised: BaseException) -> str:
    """The exception's last line, and where in the job's code it came from."""
    frames = traceback.extract_tb(raised.__traceback__)
    where = f" ({frames[-1].filename.rsplit('/', 1)[-1]}:{frames[-1].lineno} in {frames[-1].name})" if frames else ""
    return "".join(traceback.format_exception_only(raised)).strip() + where
