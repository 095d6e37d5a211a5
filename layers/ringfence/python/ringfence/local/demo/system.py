"""The running system as the demo needs it: where files, rows, logs and processes are."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

from ringfence.aws.ledger import DynamoLedger
from ringfence.clock import SystemClock
from ringfence.local.demo.worker_log import WorkerLog
from ringfence.local.dev import Dev
from ringfence.ports import Ledger
from ringfence.settings import Misconfigured, Settings

WORKER = "WorkerFunction"


class System:
    """One `ringfence dev` and its workers. Its clients are the emulator's: the caller's environment stays as it is.

    ``workers`` tells the worker processes that live, and ``log`` is what their logs' names begin with.
    """

    def __init__(self, dev: Dev, worker_folder: Path, workers: Callable[[], Sequence[int]], log: str = WORKER) -> None:
        self._dev = dev
        self._settings = Settings.from_environment(dev.environment(WORKER))
        self.worker_folder = worker_folder
        """The worker function's code."""
        self.api_url = dev.api_url
        self.workers = workers
        self._log = log

    def worker_log(self) -> WorkerLog:
        """The workers' logs, from their beginning."""
        return WorkerLog(self._dev.logs, self._log)

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
