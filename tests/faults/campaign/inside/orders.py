"""What a campaign wants of the processes that it cannot do from outside: one file, read by all of them as it changes."""

from __future__ import annotations

import time
from pathlib import Path

import msgspec

ORDERS_VARIABLE = "CAMPAIGN_ORDERS"
"""The file's path, in the environment of every process."""

LOOK_SECONDS = 0.05
"""How long a process goes by what it has read."""

THROTTLED = ("ProvisionedThroughputExceededException", "ThrottlingException")
WRITES = ("UpdateItem", "PutItem", "TransactWriteItems")
"""The ledger's."""


class Refusal(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An error that some attempts at an operation get instead of being carried out."""

    code: str
    share: float
    """Of all attempts, from 0 to 1."""
    status: int = 400


class Orders(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Nothing, unless it is said."""

    refused: dict[str, Refusal] = {}
    """``dynamodb.UpdateItem`` → the refusal."""
    entries_failed: dict[str, float] = {}
    """``sqs.send_message_batch`` → the share of entries that fail, each for itself."""
    clock_offsets_seconds: tuple[float, ...] = ()
    """The wall clocks of workers: each process has one of these, by its id."""
    writes_version: int = 1
    """The version of records and tickets that a process writes which starts now."""


class OrdersFile:
    """The file, from both sides."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._read_at = 0.0
        self._changed_at = -1
        self._orders = Orders()

    def give(self, orders: Orders) -> None:
        """From now on, in all processes, within `LOOK_SECONDS`."""
        fresh = self.path.with_suffix(".fresh")
        fresh.write_bytes(msgspec.json.encode(orders))
        fresh.replace(self.path)

    @property
    def current(self) -> Orders:
        """What is wanted now."""
        if (now := time.monotonic()) - self._read_at >= LOOK_SECONDS:
            self._read_at = now
            if (changed_at := self.path.stat().st_mtime_ns) != self._changed_at:
                self._changed_at = changed_at
                self._orders = msgspec.json.decode(self.path.read_bytes(), type=Orders)
        return self._orders

    def current_now(self) -> Orders:
        """The same, read anew: for who changes it."""
        self._read_at = 0.0
        return self.current
