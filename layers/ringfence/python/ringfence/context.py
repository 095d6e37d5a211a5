"""What a job sees of Ringfence: its token, its attempt, and the ways it may write."""

from __future__ import annotations

import json
import operator
from collections.abc import Mapping
from typing import Any

import msgspec

from ringfence import jsontext, transitions
from ringfence.carried import Carried
from ringfence.effects import Check, Delete, Effect, Effects, Item, Put, Update
from ringfence.errors import EffectRefused, Rejected, Stopping
from ringfence.job import Job, Progress
from ringfence.ownership import Ownership
from ringfence.wire import Ticket

MAX_TEXT_BYTES = 32 * 1024
"""UTF-8 bytes of a checkpoint or a result."""


class Context:
    """The first argument of every job. Its calls raise `LeaseLost` once another worker has claimed the job."""

    def __init__(self, hold: Ownership | Carried) -> None:
        self._hold = hold
        self._effects = Effects()
        self.queue: str
        self.attempt: int
        """Counted from 1."""
        job: Job | Ticket
        if isinstance(hold, Ownership):
            job, self.queue, self.attempt = hold.job, hold.job.queue, hold.job.attempts
        else:
            job, self.queue, self.attempt = hold.ticket, hold.lease.queue, hold.attempt
        self.job_id: str = job.job_id
        self.tenant: str = job.tenant
        self.name: str = job.name or ""
        self.payload: str = job.payload or "null"
        """The JSON text as it was received."""
        self.traceparent: str | None = job.traceparent
        """W3C trace context of the request that submitted the job."""

    @property
    def token(self) -> int:
        """The fencing token of this attempt. A receiver outside DynamoDB that refuses a token below the highest it has seen
        refuses late owners as the ledger does."""
        return self._owned("token").job.token

    @property
    def idempotency_key(self) -> str:
        """The same over all attempts, and after a redrive: for services that take one, such as a payment provider."""
        return f"rf-{self.job_id}"

    @property
    def payload_sha256(self) -> str:
        """Hex SHA-256 of the payload's text in UTF-8."""
        return self._hold.job.payload_sha256 if isinstance(self._hold, Ownership) else jsontext.sha256(self.payload)

    @property
    def effects(self) -> Effects:
        """Staged; committed with the job's success in one transaction, or not at all."""
        self._owned("effects")
        return self._effects

    @property
    def staged(self) -> tuple[Effect, ...]:
        """The effects so far."""
        return self._effects.staged

    @property
    def stopping(self) -> bool:
        """Whether the job should end at its next checkpoint: the worker stops, a cancel was asked for, or the lease is lost."""
        return self._hold.stopping

    @property
    def cancel_requested(self) -> bool:
        """Whether somebody asked for this job to be cancelled, as of the latest heartbeat."""
        return isinstance(self._hold, Ownership) and self._hold.job.cancel_requested

    @property
    def last_checkpoint(self) -> Any:
        """What the latest `checkpoint` of any attempt saved, None if there is none."""
        saved = self._hold.job.checkpoint if isinstance(self._hold, Ownership) else None
        return None if saved is None else msgspec.json.decode(saved)

    def checkpoint(self, state: Any) -> None:
        """Save how far the job has come (JSON, at most 32 KiB); a later attempt finds it in `last_checkpoint`.

        When the worker is stopping, raises `Stopping` after saving: let it pass, and another worker goes on from here.
        """
        ownership = self._fenced("checkpoint")
        saved = encode_text(state, "checkpoint")
        ownership.write(lambda job, write_id: transitions.checkpoint(job, saved, write_id=write_id), purpose="checkpoint")
        self.stop_if_asked()

    def stop_if_asked(self) -> None:
        """Raise `Stopping` if the worker is stopping or the job is to be cancelled."""
        self._ensure_held()
        if self.stopping:
            raise Stopping()

    def progress(self, done: int, total: int) -> None:
        """Say how far the job is; told with the next heartbeat, so it may be called as often as wanted.

        Both are whole numbers; anything else is a `TypeError`. A job without a row has nowhere to tell it.
        """
        self._ensure_held()
        progress = Progress(operator.index(done), operator.index(total))
        if isinstance(self._hold, Ownership):
            self._hold.report_progress(progress)

    def write(self, *effects: Effect) -> bool:
        """Write effects now, in a transaction that checks that this attempt still holds the job.

        A later attempt would write them again, so each must be put-if-absent, versioned, or a check. Returns False when a
        put-if-absent found its item there (an earlier attempt has done it); raises `EffectRefused` for any other condition.
        """
        ownership = self._fenced("write")
        for effect in effects:
            if not _repeatable(effect):
                raise Rejected(f"{type(effect).__name__} without unless_exists or version would be repeated by a later attempt")
        try:
            ownership.write_effects(effects)
        except EffectRefused as refusal:
            if not refusal.already_there:
                raise
            return False
        return True

    def read(self, table: str, key: Item) -> Mapping[str, Any] | None:
        """One item of yours, strongly consistent, None if absent. Numbers are int or Decimal."""
        self._ensure_held()
        return self._hold.read(table, key)

    def _ensure_held(self) -> None:
        if isinstance(self._hold, Ownership):
            self._hold.ensure_held()

    def _owned(self, what: str) -> Ownership:
        """What only a job with a row has."""
        if not isinstance(self._hold, Ownership):
            raise Rejected(
                f"ctx.{what} needs a row in the ledger to fence it, and this job was submitted with guarantee at-least-once; "
                "submit it with guarantee once",
                kind="unfenced",
            )
        return self._hold

    def _fenced(self, what: str) -> Ownership:
        """The same, for what is written: by whoever holds the row still."""
        ownership = self._owned(what)
        ownership.ensure_held()
        return ownership


def encode_text(value: Any, what: str) -> str:
    """A value as JSON text. Raises `Rejected` when it is not JSON or larger than `MAX_TEXT_BYTES`."""
    if value is None:
        return "null"
    try:
        encoded = msgspec.json.encode(value)
        if b"null" in encoded:  # which it writes for NaN and the infinities too: JSON has none of them
            json.dumps(msgspec.to_builtins(value, str_keys=True), allow_nan=False)
    except (TypeError, ValueError, OverflowError, RecursionError, msgspec.MsgspecError) as fault:
        raise Rejected(f"the {what} is not JSON: {fault}", kind=f"{what}-not-json") from None
    if len(encoded) > MAX_TEXT_BYTES:
        raise Rejected(f"the {what} has {len(encoded)} bytes; at most {MAX_TEXT_BYTES} are kept", kind=f"{what}-too-large")
    return encoded.decode()


def _repeatable(effect: Effect) -> bool:
    match effect:
        case Put(unless_exists=True) | Check():
            return True
        case Put(version=version) | Update(version=version) | Delete(version=version):
            return version is not None
