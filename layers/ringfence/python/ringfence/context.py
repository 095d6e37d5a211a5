"""What a job sees of Ringfence: its token, its attempt, and the ways it may write."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import msgspec

from ringfence import transitions
from ringfence.effects import Check, Delete, Effect, Effects, Item, Put, Update
from ringfence.errors import EffectRefused, Rejected, Stopping
from ringfence.job import Progress
from ringfence.lease import Ownership

MAX_TEXT_BYTES = 32 * 1024
"""UTF-8 bytes of a checkpoint or a result."""


class Context:
    """The first argument of every job. Its calls raise `LeaseLost` once another worker has claimed the job."""

    def __init__(self, ownership: Ownership) -> None:
        self._ownership = ownership
        job = ownership.job
        self.job_id: str = job.job_id
        self.tenant: str = job.tenant
        self.queue: str = job.queue
        self.name: str = job.name
        self.token: int = job.token
        """The fencing token of this attempt. A receiver outside DynamoDB that refuses a token below the highest it has seen
        refuses late owners as the ledger does."""
        self.attempt: int = job.attempts
        """Counted from 1."""
        self.idempotency_key: str = f"rf-{job.job_id}"
        """The same over all attempts: for services that take one, such as a payment provider."""
        self.payload: str = job.payload or "null"
        """The JSON text as it was received."""
        self.payload_sha256: str = job.payload_sha256
        self.traceparent: str | None = job.traceparent
        """W3C trace context of the request that submitted the job."""
        self.effects = Effects()
        """Staged; committed with the job's success in one transaction, or not at all."""

    @property
    def stopping(self) -> bool:
        """Whether the job should end at its next checkpoint: the worker stops, a cancel was asked for, or the lease is lost."""
        return self._ownership.stopping.is_set()

    @property
    def cancel_requested(self) -> bool:
        """Whether somebody asked for this job to be cancelled, as of the latest heartbeat."""
        return self._ownership.job.cancel_requested

    @property
    def last_checkpoint(self) -> Any:
        """What the latest `checkpoint` of any attempt saved, None if there is none."""
        saved = self._ownership.job.checkpoint
        return None if saved is None else msgspec.json.decode(saved)

    def checkpoint(self, state: Any) -> None:
        """Save how far the job has come (JSON, at most 32 KiB); a later attempt finds it in `last_checkpoint`.

        When the worker is stopping, raises `Stopping` after saving: let it pass, and another worker goes on from here.
        """
        self._ownership.ensure_held()
        saved = encode_text(state, "checkpoint")
        self._ownership.write(lambda job, write_id: transitions.checkpoint(job, saved, write_id=write_id), purpose="checkpoint")
        self.stop_if_asked()

    def stop_if_asked(self) -> None:
        """Raise `Stopping` if the worker is stopping or the job is to be cancelled."""
        self._ownership.ensure_held()
        if self.stopping:
            raise Stopping()

    def progress(self, done: int, total: int) -> None:
        """Say how far the job is; told with the next heartbeat, so it may be called as often as wanted.

        Both are whole numbers; anything else is a `TypeError`.
        """
        self._ownership.ensure_held()
        self._ownership.report_progress(Progress(operator.index(done), operator.index(total)))

    def write(self, *effects: Effect) -> bool:
        """Write effects now, in a transaction that checks that this attempt still holds the job.

        A later attempt would write them again, so each must be put-if-absent, versioned, or a check. Returns False when a
        put-if-absent found its item there (an earlier attempt has done it); raises `EffectRefused` for any other condition.
        """
        self._ownership.ensure_held()
        for effect in effects:
            if not _repeatable(effect):
                raise Rejected(f"{type(effect).__name__} without unless_exists or version would be repeated by a later attempt")
        try:
            self._ownership.write_effects(effects)
        except EffectRefused as refusal:
            if not refusal.already_there:
                raise
            return False
        return True

    def read(self, table: str, key: Item) -> Mapping[str, Any] | None:
        """One item of yours, strongly consistent, None if absent. Numbers are int or Decimal."""
        self._ownership.ensure_held()
        return self._ownership.read(table, key)


def encode_text(value: Any, what: str) -> str:
    """A value as JSON text. Raises `Rejected` when it is not JSON or larger than `MAX_TEXT_BYTES`."""
    try:
        encoded = msgspec.json.encode(value)
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
