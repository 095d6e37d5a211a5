"""The system under trial, and everything through which it can be hurt: a running `ringfence dev` with a door in front of each
service, a Redis of its own, a `ringfence worker`, and the orders that its processes read."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeVar, get_args

import ringfence
from ringfence.aws.ledger import DynamoLedger
from ringfence.aws.queue import SqsQueue
from ringfence.client import Client
from ringfence.clock import SystemClock
from ringfence.errors import RingfenceError
from ringfence.local.demo.worker_processes import WorkerProcesses
from ringfence.local.dev import Dev
from ringfence.local.pool import Replaced
from ringfence.local.redis_binaries import redis_server
from ringfence.local.run_folder import make_run_folder
from ringfence.memory.telemetry import MemoryTelemetry
from ringfence.ports import Depth, Queue
from ringfence.redis.queues import RedisQueues
from ringfence.settings import Settings
from ringfence.testing.atomicity import anomalies
from ringfence.testing.door import Door
from ringfence.testing.emulator_kinds import USUAL, startable
from ringfence.testing.redis_server import RedisServer

from .inside.orders import ORDERS_VARIABLE, Orders, OrdersFile
from .inside.planted import PLANTED_VARIABLE
from .inside.traces import RUNS_VARIABLE

Engines = Literal["sqs", "redis", "both"]
ENGINES: Sequence[Engines] = get_args(Engines)

GATEWAY, RELAY, WORKER, TIMERS = "GatewayFunction", "RelayFunction", "WorkerFunction", "TimersFunction"
WORKERS = "ringfence worker"
"""The processes of a `ringfence worker`, where a function's name would stand."""

DEFAULT, PRIORITY = "default", "priority"
REDIS_QUEUES: Mapping[Engines, Sequence[str]] = {"sqs": (), "redis": (DEFAULT, PRIORITY), "both": (PRIORITY,)}

LEASE_SECONDS = 3
"""Short, so that many end; longer than a heartbeat's third of it is late on a machine with much else to do."""

HIDDEN_SECONDS = 60
"""The least `WorkerTimeoutSeconds`: so long a message is hidden whose worker dies before it has looked at it."""

TIMERS_SECONDS = 0.5
WORKER_PROCESSES = 3
THREADS = 4

WITH_A_FILE = ("--appendonly", "yes", "--appendfsync", "no", "--auto-aof-rewrite-percentage", "0")
"""One file that only grows, so that cutting its end takes back the last writes and nothing else."""

INSIDE = Path(__file__).with_name("inside")
ROOT = Path(__file__).parents[3]
LIBRARY = Path(ringfence.__file__).parents[1]

LOOK_SECONDS = 0.05

Found = TypeVar("Found")


class Unsound(RingfenceError):
    """The test bed does what AWS never does: nothing can be learned from it."""


class TooLate(RingfenceError):
    """Something that was waited for did not come."""


@dataclass(frozen=True, slots=True)
class Doors:
    """The network between the system's processes and what they call."""

    ledger: Door
    log: Door
    sqs: Door
    redis: Door

    def open_all(self) -> Sequence[Door]:
        return (self.ledger, self.log, self.sqs, self.redis)


class Bed:
    """``with Bed("both", folder, say) as bed:`` starts everything, in this thread, and ends it again, the frozen ones too."""

    def __init__(
        self, engines: Engines, say: Callable[[str], None], run_folder: Path | None = None, planted: str | None = None
    ) -> None:
        """``planted`` is one of `inside.planted.PLANTS`, for a campaign that is itself on trial."""
        self.engines, self._say, self._run_folder, self._planted = engines, say, run_folder, planted
        self.replaced: list[Replaced] = []
        self._parts = ExitStack()

    # --- its life ----------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self._parts.close()
            raise
        return self

    def __exit__(self, _type: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None) -> None:
        self._parts.close()

    def _start(self) -> None:
        parts = self._parts
        self.doors = Doors(*(parts.enter_context(Door()) for _ in range(4)))
        self.folder = self._run_folder or make_run_folder(ROOT)
        self.redis: RedisServer | None = None
        self._redis_number = 0
        if self.redis_queues:
            self._say("Starting Redis")
            parts.callback(self._end_redis)
            self.redis = self.new_redis()
            self.redis.start()
            self.doors.redis.lead_to(self.redis.port, cut=False)
        self.orders = OrdersFile(self.folder / "orders.json")
        self.orders.give(Orders())
        self.runs = self.folder / "runs"
        self.runs.mkdir()
        self.dev = parts.enter_context(self._dev())
        port = int(self.dev.endpoint_url.rpartition(":")[2])
        for door in (self.doors.ledger, self.doors.log, self.doors.sqs):
            door.lead_to(port, cut=False)
        self.settings = Settings.from_environment(self.dev.environment(WORKER))
        self.workers: WorkersHere | None = None
        if self.redis_queues:
            parts.callback(self._end_workers)
            self.start_workers()
        self.client = parts.enter_context(Client(self.dev.api_url, retry_seconds=10.0))

    def _dev(self) -> Dev:
        doors = self.doors
        on_redis = {f"{queue.capitalize()}QueueEngine": "redis" for queue in self.redis_queues}
        common = {
            "AWS_ENDPOINT_URL_DYNAMODB": f"http://127.0.0.1:{doors.ledger.port}",
            "AWS_ENDPOINT_URL_KINESIS": f"http://127.0.0.1:{doors.log.port}",
            "AWS_ENDPOINT_URL_SQS": f"http://127.0.0.1:{doors.sqs.port}",
            "PYTHONPATH": os.pathsep.join([str(INSIDE), str(LIBRARY)]),
            "_HANDLER": "instrumented.handler",
            ORDERS_VARIABLE: str(self.orders.path),
            RUNS_VARIABLE: str(self.runs),
            **({PLANTED_VARIABLE: self._planted} if self._planted else {}),
        }
        worker = {"RINGFENCE_APP": "load_jobs:app"}
        return Dev(
            ROOT / "template.yaml",
            emulator=startable(USUAL),
            workers=WORKER_PROCESSES if self.engines != "redis" else 1,
            function_env={GATEWAY: common, RELAY: common, TIMERS: common, WORKER: common | worker},
            parameters={
                "WorkerTimeoutSeconds": str(HIDDEN_SECONDS),
                "LeaseSeconds": str(LEASE_SECONDS),
                "WorkerThreads": str(THREADS),
                "LogLevel": "DEBUG",
                **({"RedisUrl": f"redis://127.0.0.1:{doors.redis.port}", **on_redis} if on_redis else {}),
            },
            timers_every_seconds=TIMERS_SECONDS,
            run_folder=self.folder,
            on_replaced=self.replaced.append,
            tell=self._say,
        )

    def check(self) -> None:
        """Raises `Unsound` when the emulator is not atomic."""
        self._say("checking the test bed")
        dynamodb, sqs = (self.dev.endpoint.client(service) for service in ("dynamodb", "sqs"))
        if found := anomalies(dynamodb, sqs):
            raise Unsound(f"test bed unsound ({self.dev.endpoint.kind}): {'; '.join(found[:5])}")

    # --- what there is -----------------------------------------------------------------------------------------------

    @property
    def redis_queues(self) -> Sequence[str]:
        return REDIS_QUEUES[self.engines]

    @property
    def sqs_queues(self) -> Sequence[str]:
        return [name for name in (DEFAULT, PRIORITY) if name not in self.redis_queues]

    @property
    def functions(self) -> Sequence[str]:
        """Whatever has processes that can be hurt."""
        return (
            GATEWAY,
            RELAY,
            TIMERS,
            *((WORKER,) if self.sqs_queues else ()),
            *((WORKERS,) if self.redis_queues else ()),
        )

    def pids(self, function: str) -> Sequence[int]:
        if function == WORKERS:
            return self.workers.pids() if self.workers is not None else ()
        return self.dev.pids(function)

    @cached_property
    def ledger(self) -> DynamoLedger:
        """Not through a door: what the campaign itself wants to know does not get lost."""
        return DynamoLedger(self.dynamodb, self.settings.ledger_table, self.settings.tables, SystemClock())

    @cached_property
    def dynamodb(self) -> Any:
        return self.dev.endpoint.client("dynamodb")

    @cached_property
    def sqs(self) -> Any:
        return self.dev.endpoint.client("sqs")

    @cached_property
    def kinesis(self) -> Any:
        return self.dev.endpoint.client("kinesis")

    @cached_property
    def queues(self) -> Mapping[str, Queue]:
        redis_queues = RedisQueues(SystemClock(), MemoryTelemetry(), lease_seconds=LEASE_SECONDS)
        return {
            name: redis_queues.queue(name, url) if name in self.redis_queues else SqsQueue(self.sqs, name, url)
            for name, url in self.settings.queues.items()
        }

    def table(self, name: str) -> str:
        """The physical name of what jobs call ``name``."""
        return self.settings.tables[name]

    # --- Redis and the workers: started by the thread that started the bed, or they would end with another ------------

    def new_redis(self) -> RedisServer:
        """One that is not started, with files of its own."""
        self._redis_number += 1
        return RedisServer(redis_server(), self.folder / f"redis-{self._redis_number}", WITH_A_FILE)

    def use_redis(self, server: RedisServer) -> None:
        """The one that everybody is led to from now on; the one before is gone."""
        before, self.redis = self.redis, server
        self.doors.redis.lead_to(server.port, cut=True)
        if before is not None and before is not server:
            before.kill()

    def start_redis_again(self) -> None:
        """After it was killed; on another port, for anybody may have taken the old one meanwhile."""
        assert self.redis is not None
        self.redis.start()
        self.doors.redis.lead_to(self.redis.port, cut=True)

    def start_workers(self) -> None:
        environment = self.dev.environment(WORKER)
        self.workers = WorkersHere(environment, INSIDE, self.dev.logs, WORKER_PROCESSES, self.redis_queues)
        self.workers.__enter__()

    def _end_workers(self) -> None:
        if self.workers is not None:
            self.workers.stop()

    def _end_redis(self) -> None:
        if self.redis is not None:
            self.redis.kill()

    # --- health ------------------------------------------------------------------------------------------------------

    def heal(self) -> None:
        """Everything as it was: whoever is frozen goes on, every door is open, no order is in force."""
        for function in self.functions:
            for pid in self.pids(function):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
        self.orders.give(Orders())
        port = int(self.dev.endpoint_url.rpartition(":")[2])
        for door in self.doors.open_all():
            door.slow(0.0)
            door.lose_replies(0)
        for door in (self.doors.ledger, self.doors.log, self.doors.sqs):
            door.lead_to(port, cut=False)
        if self.redis is not None:
            self.doors.redis.lead_to(self.redis.port, cut=False)
            self.redis.ask("CONFIG", "SET", "maxmemory", 0)
        for queue in (DEFAULT, PRIORITY):
            self.client.set_queue(queue, rate_per_second=None, burst=1, paused=False, high_water_mark=None)

    def empty(self) -> bool:
        """Whether every ticket has been acknowledged."""
        return all(queue.depth() == Depth(0, 0, 0) for queue in self.queues.values())

    def wait_for(self, what: str, look: Callable[[], Found | None], within_seconds: float) -> Found:
        """What ``look`` finds, as soon as it is something true. `TooLate` when it never is."""
        give_up_at = time.monotonic() + within_seconds
        while not (found := look()):
            if time.monotonic() > give_up_at:
                raise TooLate(f"not within {within_seconds:g} s: {what}")
            time.sleep(LOOK_SECONDS)
        return found


class WorkersHere(WorkerProcesses):
    """A `ringfence worker` on this machine; a log tells of processes whose parent was killed, and nobody of their end."""

    def pids(self) -> Sequence[int]:
        return [pid for pid in super().pids() if _lives(pid)]

    @property
    def supervisor(self) -> int:
        """The parent of the processes, whose end is theirs."""
        assert self._supervisor is not None
        return self._supervisor.pid


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True
