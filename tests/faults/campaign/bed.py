"""The system under trial, and everything through which it can be hurt: a running `ringfence dev` with a door in front of each
service, a Redis of its own, a `ringfence worker`, and the orders that its processes read."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

import ringfence
from ringfence.aws.ledger import DynamoLedger
from ringfence.aws.queue import SqsQueue
from ringfence.client import Client
from ringfence.clock import SystemClock
from ringfence.errors import RingfenceError
from ringfence.local.demo.worker_processes import WorkerProcesses
from ringfence.local.dev import Dev
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
from .inside.recorder import HISTORY_VARIABLE, history_in
from .inside.traces import COUNTERS, RUNS_VARIABLE, runs_in
from .trail import Stream, Trail, trail_of

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

HEALED_SECONDS = 90.0
"""How long a system that nothing hurts any more may take until it answers its operator."""

BED_ROUNDS, BED_WRITERS, BED_MESSAGES = 60, 12, 200
"""How hard the test bed is looked at: a rare race would be taken for a fault of the product's. About a quarter of a minute."""

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

    def open(self, emulator_port: int) -> None:
        """As they are where nothing is wrong."""
        for door in (self.ledger, self.log, self.sqs, self.redis):
            door.slow(0.0)
            door.lose_replies(0)
        for door in (self.ledger, self.log, self.sqs):
            door.lead_to(emulator_port, cut=False)


class Bed:
    """A running `Dev` whose processes run `inside.load_jobs`, and by which it can be hurt.

    Without ``doors`` and ``orders`` some acts are not possible. Redis and the workers end with the thread that starts them.
    """

    def __init__(
        self,
        dev: Dev,
        folder: Path,
        engines: Engines = "sqs",
        *,
        doors: Doors | None = None,
        orders: OrdersFile | None = None,
        lease_seconds: float = LEASE_SECONDS,
    ) -> None:
        """``folder``: where Redis keeps its files, jobs without a row their `runs_in`, and each process its `history_in`."""
        self.dev, self.folder, self.engines, self.lease_seconds = dev, folder, engines, lease_seconds
        self._doors, self._orders = doors, orders
        self.settings = Settings.from_environment(dev.environment(WORKER))
        self.client = Client(dev.api_url, retry_seconds=10.0)
        self.redis: RedisServer | None = None
        self.workers: WorkersHere | None = None
        self._redis_number = 0

    def start_redis_and_workers(self) -> None:
        """Where a queue is on Redis."""
        if self.redis_queues:
            self.redis = self.new_redis()
            self.start_redis_again()
            self.start_workers()

    def close(self) -> None:
        """End what the bed has started; the `Dev` is not its own."""
        self.client.close()
        if self.workers is not None:
            self.workers.stop()
        if self.redis is not None:
            self.redis.kill()

    def check(self) -> None:
        """Raises `Unsound` when the emulator is not atomic."""
        if found := anomalies(self.dynamodb, self.sqs, rounds=BED_ROUNDS, writers=BED_WRITERS, messages=BED_MESSAGES):
            raise Unsound(f"test bed unsound ({self.dev.endpoint.kind}): {'; '.join(found[:5])}")

    # --- what there is -----------------------------------------------------------------------------------------------

    @property
    def doors(self) -> Doors:
        assert self._doors is not None, "there is no door in front of anything here"
        return self._doors

    @property
    def orders(self) -> OrdersFile:
        assert self._orders is not None, "the processes here read no orders"
        return self._orders

    @property
    def runs(self) -> Path:
        return runs_in(self.folder)

    @property
    def history(self) -> Path:
        return history_in(self.folder)

    @property
    def emulator_port(self) -> int:
        return int(self.dev.endpoint_url.rpartition(":")[2])

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

    def begin_trail(self) -> None:
        """From now on the store tells of each write."""
        for stream in self._streams:
            stream.begin()

    def trail(self, is_ours: Callable[[str], bool]) -> Trail:
        """What it has told since; of counters, of those with such keys."""
        return trail_of(*self._streams, is_ours)

    @cached_property
    def _streams(self) -> tuple[Stream, Stream]:
        streams = self.dev.endpoint.client("dynamodbstreams")
        return tuple(Stream(self.dynamodb, streams, name) for name in (self.settings.ledger_table, self.table(COUNTERS)))

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
        self.workers.forget_earlier()
        self.workers.__enter__()

    # --- health ------------------------------------------------------------------------------------------------------

    def heal(self) -> None:
        """Everything as it was: whoever is frozen goes on, every door is open, no order is in force."""
        for function in self.functions:
            for pid in self.pids(function):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
        if self._orders is not None:
            self._orders.give(Orders())
        if self._doors is not None:
            self._doors.open(self.emulator_port)
        if self.redis is not None:
            self.doors.redis.lead_to(self.redis.port, cut=False)
            self.redis.ask("CONFIG", "SET", "maxmemory", 0)
        with Client(self.dev.api_url, retry_seconds=HEALED_SECONDS) as patient:
            for queue in (DEFAULT, PRIORITY):
                patient.set_queue(queue, rate_per_second=None, burst=1, paused=False, high_water_mark=None)

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
    """A `ringfence worker` on this machine. When its parent is killed nobody tells of its processes' end, and what has their
    number then is somebody else's, or a thread of ours: only children of the living parent are given a signal."""

    def pids(self) -> Sequence[int]:
        return [pid for pid in super().pids() if _parent_of(pid) in (self.supervisor, None)]

    def forget_earlier(self) -> None:
        """What the logs of those before tell is not of these."""
        self._log.new_events()

    @property
    def supervisor(self) -> int:
        """The parent of the processes, whose end is theirs."""
        assert self._supervisor is not None
        return self._supervisor.pid


def _parent_of(pid: int) -> int | None:
    """0 when there is no such process; None where the system does not tell.

    https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html
    """
    if not Path("/proc/self/stat").exists():
        return None
    try:
        # The name, in parentheses, may hold anything.
        return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    except (FileNotFoundError, ProcessLookupError):
        return 0


# --- starting one ----------------------------------------------------------------------------------------------------


@contextmanager
def started(engines: Engines, say: Callable[[str], None], planted: str | None = None) -> Iterator[Bed]:
    """A bed with everything, whose processes end with the block, the frozen ones too.

    ``planted`` is one of `inside.planted.PLANTS`, for a campaign that is itself on trial.
    """
    with ExitStack() as parts:
        doors = Doors(*(parts.enter_context(Door()) for _ in range(4)))
        folder = make_run_folder(ROOT)
        orders = OrdersFile(folder / "orders.json")
        orders.give(Orders())
        for each in (runs_in(folder), history_in(folder)):
            each.mkdir()
        extra = {
            ORDERS_VARIABLE: str(orders.path),
            HISTORY_VARIABLE: str(history_in(folder)),
            **({PLANTED_VARIABLE: planted} if planted else {}),
        }
        dev = parts.enter_context(_dev(engines, doors, folder, extra, say))
        doors.open(int(dev.endpoint_url.rpartition(":")[2]))
        bed = Bed(dev, folder, engines, doors=doors, orders=orders)
        parts.callback(bed.close)
        bed.start_redis_and_workers()
        say("checking the test bed")
        bed.check()
        yield bed


def _dev(engines: Engines, doors: Doors, folder: Path, extra: Mapping[str, str], say: Callable[[str], None]) -> Dev:
    common = {
        "AWS_ENDPOINT_URL_DYNAMODB": f"http://127.0.0.1:{doors.ledger.port}",
        "AWS_ENDPOINT_URL_KINESIS": f"http://127.0.0.1:{doors.log.port}",
        "AWS_ENDPOINT_URL_SQS": f"http://127.0.0.1:{doors.sqs.port}",
        "PYTHONPATH": os.pathsep.join([str(INSIDE), str(LIBRARY)]),
        "_HANDLER": "instrumented.handler",
        **extra,
    }
    worker = {"RINGFENCE_APP": "load_jobs:app", RUNS_VARIABLE: str(runs_in(folder))}
    on_redis = {f"{queue.capitalize()}QueueEngine": "redis" for queue in REDIS_QUEUES[engines]}
    return Dev(
        ROOT / "template.yaml",
        emulator=startable(USUAL),
        workers=WORKER_PROCESSES if engines != "redis" else 1,
        function_env={GATEWAY: common, RELAY: common, TIMERS: common, WORKER: common | worker},
        parameters={
            "WorkerTimeoutSeconds": str(HIDDEN_SECONDS),
            "LeaseSeconds": str(LEASE_SECONDS),
            "WorkerThreads": str(THREADS),
            "LogLevel": "DEBUG",
            **({"RedisUrl": f"redis://127.0.0.1:{doors.redis.port}", **on_redis} if on_redis else {}),
        },
        timers_every_seconds=TIMERS_SECONDS,
        run_folder=folder,
        tell=say,
    )
