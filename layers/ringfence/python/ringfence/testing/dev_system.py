"""A running `ringfence dev` as a test sees it: jobs put in over HTTP, faults in its processes, and what came of them.

What is so, the ledger, the tables and the queue say; the logs only say which process did it. Other processes notify of nothing,
so everything here is looked for until it is there, or a deadline has passed.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from ringfence.aws.ledger import DynamoLedger
from ringfence.aws.queue import SqsQueue
from ringfence.client import Client, Submitted
from ringfence.clock import SystemClock
from ringfence.http.auth import DEFAULT_TENANT
from ringfence.ids import derived_job_id
from ringfence.job import Job
from ringfence.local.demo.worker_log import Event, WorkerLog
from ringfence.local.dev import Dev
from ringfence.local.pool import Replaced
from ringfence.ports import Depth
from ringfence.settings import Settings
from ringfence.testing.dev_faults import DevFaults

Found = TypeVar("Found")

WAIT_SECONDS = 40.0
"""Long enough for three leases of two seconds, and for starting a process, on a machine with much else to do."""
LOOK_SECONDS = 0.03

GATEWAY, RELAY, WORKER, TIMERS = "GatewayFunction", "RelayFunction", "WorkerFunction", "TimersFunction"
FUNCTIONS = (GATEWAY, RELAY, WORKER, TIMERS)

REQUEST_SECONDS = 2.0
"""How long a client waits for an answer before it asks again: a frozen gateway gives none."""


class DevSystem:
    """``dev`` runs with ``function_env=faults.environments`` and ``on_replaced=replaced.append``."""

    def __init__(self, dev: Dev, faults: DevFaults, replaced: Sequence[Replaced]) -> None:
        settings = Settings.from_environment(dev.environment(WORKER))
        self.dev, self.faults = dev, faults
        self.client = Client(dev.api_url, timeout_seconds=REQUEST_SECONDS)
        self.ledger = DynamoLedger(dev.endpoint.client("dynamodb"), settings.ledger_table, settings.tables, SystemClock())
        self.queues = [SqsQueue(dev.endpoint.client("sqs"), name, url) for name, url in settings.queues.items()]
        self._replaced = replaced
        self._logs = {function: WorkerLog(dev.logs, function) for function in FUNCTIONS}
        self._told: dict[str, list[Event]] = {function: [] for function in FUNCTIONS}
        self._strength = {function: len(dev.pids(function)) for function in FUNCTIONS}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _type: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None) -> None:
        self.client.close()

    # --- jobs ----------------------------------------------------------------------------------------------------------

    def job_id(self, key: str) -> str:
        """The id of the job with this idempotency key, known before it is submitted: a fault can wait for it."""
        return derived_job_id(DEFAULT_TENANT, key)

    def submit(self, key: str, name: str, payload: Any = None) -> Submitted:
        """Submit, and ask again with the same key until there is an answer, as every client does."""
        return self.client.submit(name, payload, idempotency_key=key)

    def job(self, job_id: str) -> Job | None:
        """The row."""
        return self.ledger.get(job_id)

    def wait_ended(self, job_id: str) -> Job:
        """The row of a job, once it has ended."""

        def ended() -> Job | None:
            job = self.job(job_id)
            return job if job is not None and job.state.terminal else None

        return self.wait_for(f"job {job_id} has ended", ended)

    def wait_drained(self) -> None:
        """Every ticket has been acknowledged."""
        self.wait_for("the queues are empty", lambda: all(queue.depth() == Depth(0, 0, 0) for queue in self.queues))

    # --- processes -----------------------------------------------------------------------------------------------------

    def wait_at_full_strength(self) -> None:
        """All processes live that were there at the beginning, or others in their place."""
        self.wait_for(
            "every function has its processes",
            lambda: all(len(self.dev.pids(function)) >= number for function, number in self._strength.items()),
        )

    def wait_killed(self, pid: int) -> None:
        """This process has been ended by SIGKILL, from within or without, and another has been started in its place."""
        self.wait_for(
            f"process {pid} was killed",
            lambda: any(each.old_pid == pid and each.reason == "signal 9" for each in self._replaced),
        )

    def events(self, function: str, name: str, job_id: str | None = None, pid: int | None = None) -> list[Event]:
        """What the function's processes have told so far under this name, each in order."""
        self._told[function] += self._logs[function].new_events()
        return [
            event
            for event in self._told[function]
            if event.name == name and job_id in (None, event.job_id) and pid in (None, event.pid)
        ]

    def wait_told(self, function: str, name: str, job_id: str | None = None, *, pid: int | None = None, **fields: Any) -> Event:
        """The first event of this name, job and process with these fields."""

        def told() -> Event | None:
            events = self.events(function, name, job_id, pid)
            return next((event for event in events if fields.items() <= event.fields.items()), None)

        return self.wait_for(f"{function} tells {name} {fields}", told)

    # --- waiting -------------------------------------------------------------------------------------------------------

    def wait_for(self, what: str, look: Callable[[], Found | None], within_seconds: float = WAIT_SECONDS) -> Found:
        """What ``look`` finds, as soon as it is something true. `AssertionError` when it never is."""
        give_up_at = time.monotonic() + within_seconds
        while not (found := look()):
            if time.monotonic() > give_up_at:
                raise AssertionError(f"not within {within_seconds:g} s: {what}; the logs are in {self.dev.logs}")
            time.sleep(LOOK_SECONDS)
        return found
