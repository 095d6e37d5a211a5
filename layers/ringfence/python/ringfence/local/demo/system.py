"""The running system as the demo needs it: where files, rows, logs and processes are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from ringfence.aws.ledger import DynamoLedger
from ringfence.clock import SystemClock
from ringfence.local.dev import Dev
from ringfence.ports import Ledger
from ringfence.settings import Misconfigured, Settings

WORKER = "WorkerFunction"


class System:
    """One `ringfence dev` and its worker function. Its clients are the emulator's: the caller's environment stays as it is."""

    def __init__(self, dev: Dev, worker_folder: Path) -> None:
        self._dev = dev
        self._settings = Settings.from_environment(dev.environment(WORKER))
        self.worker_folder = worker_folder
        """The worker function's code."""
        self.api_url = dev.api_url
        self.logs = dev.logs
        self.function = WORKER

    def workers(self) -> Sequence[int]:
        """The worker processes that live and are ready."""
        return self._dev.pids(WORKER)

    @cached_property
    def ledger(self) -> Ledger:
        return DynamoLedger(self.dynamodb, self._settings.ledger_table, self._tables, SystemClock())

    @cached_property
    def dynamodb(self) -> Any:
        return self._dev.endpoint.client("dynamodb")

    @cached_property
    def s3(self) -> Any:
        return self._dev.endpoint.client("s3")

    @property
    def bucket(self) -> str:
        if self._settings.bucket is None:
            raise Misconfigured("the worker has no bucket")
        return self._settings.bucket

    def table(self, name: str) -> str:
        """The physical name of a table that jobs call ``name``."""
        return self._tables.get(name, name)

    @property
    def _tables(self) -> Mapping[str, str]:
        return self._settings.tables
