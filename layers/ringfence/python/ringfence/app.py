"""The user's jobs: registered by name, their arguments checked against their signatures. Never looked up by import."""

from __future__ import annotations

import inspect
import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import msgspec

from ringfence.durations import seconds_of
from ringfence.errors import Misfit
from ringfence.retry import Backoff
from ringfence.settings import MIN_LEASE_SECONDS

Function = TypeVar("Function", bound=Callable[..., Any])

MAX_TIMEOUT_SECONDS = 11.5 * 3600
"""Below the 12 hours that SQS lets one receive of a message last.
https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-visibility-timeout.html"""

_NAME = re.compile(r"[A-Za-z0-9._-]{1,64}")

_PATH = re.compile(r" - at `(\$(?:\.\w+|\[(?:\d+|\.\.\.)\])*)`\Z")
"""Where msgspec found a fault: names of the signature and its types, and places in lists. A key of a dict is ``[...]``."""

_OF_TYPES_ALONE = re.compile(r"Expected `[\w |]+`(?:, got `\w+`)?|Object missing required field `\w+`")
"""What msgspec says that names types and members of the signature. All else may quote a value, or a member nobody knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobSpec:
    """One registered job."""

    name: str
    function: Callable[..., Any]
    lease_seconds: float | None
    """How long the queue hides its ticket between heartbeats; None: the worker's default. Longer than the longest call that
    keeps the interpreter's lock, or the heartbeat starves."""
    timeout_seconds: float
    """How long one attempt may take; the heartbeat stops there."""
    max_attempts: int | None
    """Fewer attempts than the submission allows, if set."""
    backoff: Backoff
    arguments: type[msgspec.Struct] | None = field(repr=False)
    """The payload's type; None takes anything and passes nothing on."""

    def decode(self, payload: str) -> dict[str, Any]:
        """The keyword arguments in a payload. Raises `Misfit` with the path of the fault: no other attempt would differ."""
        if self.arguments is None:
            return {}
        try:
            return msgspec.structs.asdict(msgspec.json.decode(payload, type=self.arguments))
        except (msgspec.DecodeError, RecursionError) as fault:
            raise Misfit(f"the payload does not fit {self.name}: {fault}", _without_values(fault)) from None


class App:
    """A registry of jobs. The worker finds it as ``RINGFENCE_APP=module:attribute``."""

    def __init__(self) -> None:
        self._jobs: dict[str, JobSpec] = {}

    @property
    def jobs(self) -> Mapping[str, JobSpec]:
        return self._jobs

    def job(
        self,
        name: str,
        *,
        lease: str | float | None = None,
        timeout: str | float = "2m",
        max_attempts: int | None = None,
        backoff: Backoff | None = None,
    ) -> Callable[[Function], Function]:
        """Register a function, ``def`` or ``async def``, whose first parameter is the `Context` and whose others are the
        payload's members, checked against their annotations before the first line runs.

        ``lease`` and ``timeout`` (of one attempt) are seconds, or such as "30s" and "2m"; without a lease it is the worker's
        ``RINGFENCE_LEASE_SECONDS``. A job may be started as often as its submission says, 5 times by default;
        ``max_attempts`` can only lower that. The pause after attempt n is drawn from 0 to ``base · 2^(n − 1)`` seconds of
        ``backoff``, and `Retry` adds its ``after_seconds``. With the default, `Backoff()` (1 s doubling up to 900 s), five
        attempts are over within 15 seconds of pauses; for a provider that may be down for minutes, give
        ``Backoff(base_seconds=30)`` and submit with ``max_attempts=10``, and they spread over up to 75 minutes.

        Raises `ValueError` for a name, lease, timeout or signature that cannot be one, or a name that is registered already.
        """
        if not _NAME.fullmatch(name):
            raise ValueError(f"a job's name has 1 to 64 letters, digits, dots, dashes or underscores: {name!r}")
        lease_seconds = None if lease is None else seconds_of(lease)
        timeout_seconds = seconds_of(timeout)
        if lease_seconds is not None and lease_seconds < MIN_LEASE_SECONDS:
            raise ValueError(f"the lease of {name} is below {MIN_LEASE_SECONDS} s: a heartbeat could not keep it")
        if max_attempts is not None and max_attempts < 1:
            raise ValueError(f"{name} allows {max_attempts} attempts; at least one is needed")
        if not 0 < timeout_seconds <= MAX_TIMEOUT_SECONDS:
            raise ValueError(f"the timeout of {name} is not between 0 and {MAX_TIMEOUT_SECONDS} s")

        def register(function: Function) -> Function:
            if name in self._jobs:
                raise ValueError(f"a job named {name!r} is registered already")
            self._jobs[name] = JobSpec(
                name=name,
                function=function,
                lease_seconds=lease_seconds,
                timeout_seconds=timeout_seconds,
                max_attempts=max_attempts,
                backoff=backoff or Backoff(),
                arguments=_arguments_of(name, function),
            )
            return function

        return register


def _without_values(fault: Exception) -> str:
    """Where the payload does not fit, and why, as far as that can be told without a word of it."""
    at = _PATH.search(str(fault))
    complaint = str(fault)[: at.start() if at else None]
    why = f": {complaint}" if _OF_TYPES_ALONE.fullmatch(complaint) else ""
    return f"the payload does not fit at {at[1] if at else '$'}{why}"


def _arguments_of(name: str, function: Callable[..., Any]) -> type[msgspec.Struct]:
    """The payload's type: one field for each parameter after the context, none beside them."""
    parameters = list(inspect.signature(function).parameters.values())
    if not parameters:
        raise ValueError(f"{name} takes no parameter; the first is the context")
    hints = typing.get_type_hints(function, include_extras=True)  # Annotated[int, Meta(gt=0)] keeps its constraint
    fields: list[tuple[str, Any] | tuple[str, Any, Any]] = []
    for parameter in parameters[1:]:
        if parameter.kind in (parameter.VAR_KEYWORD, parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
            raise ValueError(f"{name}: the payload's members are named parameters; {parameter} is not one")
        annotation = hints.get(parameter.name, Any)
        if parameter.default is parameter.empty:
            fields.append((parameter.name, annotation))
        else:
            fields.append((parameter.name, annotation, parameter.default))
    return msgspec.defstruct(f"{name} payload", fields, kw_only=True, forbid_unknown_fields=True)
