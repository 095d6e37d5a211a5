"""Every error Ringfence raises, one class per thing a caller would do differently. The docstring is the default message."""

from __future__ import annotations


class RingfenceError(Exception):
    """Something in Ringfence went wrong."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (type(self).__doc__ or "").strip())


class Death(BaseException):
    """Stands for the end of this process where `ringfence.testing` looks at what remains after it: nobody handles it."""


class Rejected(RingfenceError):
    """The request cannot be accepted as it is; sending it again unchanged will fail again.

    ``kind`` is the stable last part of the problem's ``type``; ``pointer`` is the JSON pointer of the fault, if any.
    """

    def __init__(self, message: str, *, kind: str = "invalid-request", status: int = 422, pointer: str | None = None) -> None:
        super().__init__(message)
        self.kind, self.status, self.pointer = kind, status, pointer


class Unavailable(RingfenceError):
    """A service behind Ringfence is throttled, in conflict or out of reach; the same call may succeed later."""

    def __init__(self, message: str | None = None, *, retry_after_seconds: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


class Unreachable(Unavailable):
    """Nobody answers at the address of the API."""


class LeaseLost(RingfenceError):
    """Another worker has claimed this job since; this attempt may no longer write."""

    def __init__(self, job_id: str, held_token: int, current_token: int | None) -> None:
        super().__init__(f"job {job_id}: token {held_token} was fenced off; the ledger holds {current_token}")
        self.job_id, self.held_token, self.current_token = job_id, held_token, current_token


class Poisoned(RingfenceError):
    """Bytes that no reader can understand; they go to the quarantine with this reason."""

    def __init__(self, reason: str, *, job_id: str | None = None) -> None:
        super().__init__(reason)
        self.reason, self.job_id = reason, job_id


class Stopping(RingfenceError):
    """The worker is about to stop; the job should end at its checkpoint and will be handed over."""


class EffectRefused(RingfenceError):
    """A condition of the job's own on one of its effects did not hold.

    ``version_conflict`` is true when it was a ``version=`` (somebody else wrote first: worth another attempt) and false
    when it was any other condition (another attempt would meet it again). ``already_there``: it was a put-if-absent, and its
    item exists.
    """

    def __init__(self, effect: str, *, version_conflict: bool, already_there: bool = False) -> None:
        super().__init__(f"effect refused: {effect}")
        self.effect, self.version_conflict, self.already_there = effect, version_conflict, already_there


class Retry(RingfenceError):
    """Raised by a job: try again, not before ``after_seconds`` from now (at most 366 days)."""

    def __init__(self, reason: str = "the job asked for another attempt", *, after_seconds: float = 0.0) -> None:
        super().__init__(reason)
        if not 0.0 <= after_seconds < float("inf"):
            raise ValueError(f"not a delay: {after_seconds!r}")
        self.after_seconds = after_seconds


class Dead(RingfenceError):
    """Raised by a job: never try again; the job ends ``dead`` with this reason."""


class Misfit(Dead):
    """The payload does not fit the job's signature. ``told`` is what may be logged of it: nothing that the payload says."""

    def __init__(self, message: str, told: str) -> None:
        super().__init__(message)
        self.told = told


class NotFound(Rejected, LookupError):
    """There is no such job; another tenant's job looks the same."""


class StillRunning(RingfenceError, TimeoutError):
    """The job had not ended when the time to wait for it was up; it goes on."""
