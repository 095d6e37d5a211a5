"""What the `Client` hands in and gives back."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from ringfence import jsontext
from ringfence.client import arguments
from ringfence.client.arguments import NONE
from ringfence.client.transport import Answer, document
from ringfence.http.documents import JobDocument
from ringfence.job import Guarantee, Progress, State


@dataclass(frozen=True, slots=True)
class RawJson:
    """JSON text to be sent exactly as it is, where a Python value would not do (``1.10``, ``1E5``)."""

    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRequest:
    """A job to submit. ``payload`` is any value that `json` can write, or `RawJson`; None stands for ``{}``.

    ``idempotency_key`` None: the client makes one, so that a retry of its own never runs the job twice. With the ``guarantee``
    ``at-least-once`` it makes none and takes none: then a retry may submit the job twice, and nobody can ask for its state.
    """

    name: str
    payload: Any = None
    queue: str = "default"
    idempotency_key: str | None = None
    delay_seconds: float | None = None
    run_at: datetime | None = None
    max_attempts: int = 5
    ordering_key: str | None = None
    guarantee: Guarantee | str = Guarantee.ONCE

    @property
    def has_row(self) -> bool:
        """Whether the job gets a row in the ledger as soon as it is accepted."""
        return Guarantee(self.guarantee) is Guarantee.ONCE

    def encoded(self) -> bytes:
        """The job as the API takes it.

        Raises `TypeError` for a field of another type, `ValueError` for NaN, infinities, lone surrogates, a time without offset
        and an unknown guarantee, `Rejected` for `RawJson` that is no JSON or that no reader may meet.
        """
        arguments.check(str, name=self.name, queue=self.queue)
        arguments.check(str, NONE, idempotency_key=self.idempotency_key, ordering_key=self.ordering_key)
        arguments.check(int, max_attempts=self.max_attempts)
        arguments.check(int, float, NONE, delay_seconds=self.delay_seconds)
        arguments.check(datetime, NONE, run_at=self.run_at)
        if self.run_at is not None and self.run_at.tzinfo is None:
            raise ValueError("run_at has no time zone")
        if self.delay_seconds is not None and not math.isfinite(self.delay_seconds):
            raise ValueError("delay_seconds is not a finite number")
        fields = {
            "name": self.name,
            "queue": self.queue,
            "payload": msgspec.Raw(payload_text(self.payload).encode()),
            "idempotency_key": self.idempotency_key,
            "delay_seconds": self.delay_seconds,
            "run_at": self.run_at,
            "max_attempts": self.max_attempts,
            "ordering_key": self.ordering_key,
            "guarantee": None if self.has_row else self.guarantee,
        }
        return msgspec.json.encode({name: value for name, value in fields.items() if value is not None})


@dataclass(frozen=True, slots=True, kw_only=True)
class Submitted:
    """An accepted job. ``repeated``: an earlier request with this key had asked for it already."""

    job_id: str
    state: State
    repeated: bool
    idempotency_key: str | None
    """None for the guarantee at-least-once, which has no keys."""
    guarantee: Guarantee = Guarantee.ONCE


@dataclass(frozen=True, slots=True)
class JobSnapshot:
    """A job as the API showed it at one moment."""

    document: JobDocument
    """Every field of the API's answer; times are RFC 3339 text."""
    json_text: str
    """The answer itself."""

    @property
    def job_id(self) -> str:
        return self.document.job_id

    @property
    def name(self) -> str:
        return self.document.name

    @property
    def queue(self) -> str:
        return self.document.queue

    @property
    def state(self) -> State:
        return self.document.state

    @property
    def token(self) -> int:
        return self.document.token

    @property
    def attempts(self) -> int:
        return self.document.attempts

    @property
    def error(self) -> str | None:
        return self.document.error

    @property
    def progress(self) -> Progress | None:
        progress = self.document.progress
        return None if progress is None else Progress(progress.done, progress.total)

    @property
    def payload(self) -> Any:
        """The payload as a Python value; None in listings, which leave it out."""
        return _value(self.document.payload)

    @property
    def result(self) -> Any:
        """The result as a Python value; None until there is one."""
        return _value(self.document.result)

    @property
    def payload_text(self) -> str | None:
        """The payload in its exact text; None in listings."""
        return _text(self.document.payload)

    @property
    def checkpoint_text(self) -> str | None:
        """The checkpoint in its exact text; None without one."""
        return _text(self.document.checkpoint)

    @property
    def result_text(self) -> str | None:
        """The result in its exact text; None until there is one."""
        return _text(self.document.result)


def snapshot(answer: Answer) -> JobSnapshot:
    """The snapshot in an answer."""
    return JobSnapshot(document(JobDocument)(answer), answer.body.decode())


def payload_text(payload: Any) -> str:
    """The JSON text to send for a payload. Raises `ValueError`, `TypeError` or `Rejected` for what is not JSON."""
    if isinstance(payload, RawJson):
        jsontext.check(payload.text)
        return payload.text
    return "{}" if payload is None else json.dumps(payload, allow_nan=False, ensure_ascii=False, separators=(",", ":"))


def _value(raw: msgspec.Raw | msgspec.UnsetType) -> Any:
    return None if isinstance(raw, msgspec.UnsetType) else json.loads(bytes(raw))


def _text(raw: msgspec.Raw | msgspec.UnsetType) -> str | None:
    return None if isinstance(raw, msgspec.UnsetType) else bytes(raw).decode()
