"""The one place where the core meets its adapters: everything is built here, on first use, from `Settings`.

It is imported on first use, too: a function pays at its cold start for what it runs, not for what the other three do.
"""

from __future__ import annotations

import os
import random
import socket
from collections.abc import Callable, Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

from ringfence.clock import SystemClock
from ringfence.ids import Ids, RandomIds
from ringfence.ports import Clock, Keys, Ledger, Limiter, Log, Quarantine, Queue, Services, SettingsStore, SweepStore, Telemetry
from ringfence.settings import Misconfigured, Settings

if TYPE_CHECKING:
    from ringfence.gateway import Gateway
    from ringfence.pace import Pacer
    from ringfence.reconcile import Reconciler
    from ringfence.redis.queues import RedisQueues
    from ringfence.relay import Relay
    from ringfence.replay import Replayer
    from ringfence.timers import Timers
    from ringfence.worker import Worker

Port = TypeVar("Port")

Wrap = Callable[[str, Any], Any]
"""Given a port's name (``ledger``, ``log``, ``queue:default``, …) and its adapter, returns what is used instead."""


class Runtime:
    """One deployment as seen by one process.

    ``wrap`` lets a test put itself between the core and any adapter; the product never passes one.
    """

    def __init__(self, settings: Settings, wrap: Wrap | None = None) -> None:
        self.settings = settings
        self._wrap: Wrap = wrap or (lambda _name, port: port)
        self.clock: Clock = SystemClock() if _log_stream() else self._clock_by_aws()
        self.ids: Ids = RandomIds()

    @property
    def retention_seconds(self) -> float:
        return self.settings.retention_days * 24 * 3600

    @cached_property
    def telemetry(self) -> Telemetry:
        from ringfence.aws.telemetry import PowertoolsTelemetry

        return PowertoolsTelemetry(self.settings.service, pid=None if _log_stream() else os.getpid())

    @cached_property
    def ledger(self) -> Ledger:
        from ringfence.aws.clients import client
        from ringfence.aws.ledger import DynamoLedger

        ledger = DynamoLedger(client("dynamodb"), self.settings.ledger_table, self.settings.tables, self.clock)
        return self._wrapped("ledger", ledger)

    @cached_property
    def log(self) -> Log:
        from ringfence.aws.clients import client
        from ringfence.aws.log import KinesisLog

        log = KinesisLog(client("kinesis"), self.settings.stream, self.clock, telemetry=self.telemetry)
        return self._wrapped("log", log)

    @cached_property
    def queues(self) -> Mapping[str, Queue]:
        return {name: self._queue(name, url) for name, url in self.settings.queues.items()}

    @cached_property
    def last_resort(self) -> Queue | None:
        url = self.settings.last_resort_queue
        return None if url is None else self._queue("last-resort", url)

    @cached_property
    def quarantine(self) -> Quarantine:
        from ringfence.aws.clients import client
        from ringfence.aws.quarantine import DynamoQuarantine

        return self._wrapped("quarantine", DynamoQuarantine(client("dynamodb"), self.settings.ledger_table))

    @cached_property
    def keys(self) -> Keys:
        from ringfence.aws.clients import client
        from ringfence.aws.keys import DynamoKeys

        return self._wrapped("keys", DynamoKeys(client("dynamodb"), self.settings.ledger_table))

    @cached_property
    def queue_settings(self) -> SettingsStore:
        from ringfence.aws.clients import client
        from ringfence.aws.queue_settings import DynamoSettings

        return self._wrapped("settings", DynamoSettings(client("dynamodb"), self.settings.ledger_table))

    @cached_property
    def sweeps(self) -> SweepStore:
        from ringfence.aws.clients import client
        from ringfence.aws.sweeps import DynamoSweeps

        return self._wrapped("sweeps", DynamoSweeps(client("dynamodb"), self.settings.ledger_table))

    @cached_property
    def limiters(self) -> Mapping[str, Limiter]:
        """The limiter of each queue: on its Redis, or in the ledger's table."""
        from ringfence.aws.clients import client
        from ringfence.aws.limiter import DynamoLimiter

        on_dynamodb = DynamoLimiter(client("dynamodb"), self.settings.ledger_table, self.clock)
        return {
            name: self._wrapped("limiter", self._redis_queues.limiter(url) if _on_redis(url) else on_dynamodb)
            for name, url in self.settings.queues.items()
        }

    @cached_property
    def pacer(self) -> Pacer:
        from ringfence.pace import Pacer

        return Pacer(
            self.queue_settings,
            self.limiters,
            self.queues,
            self.clock,
            self.telemetry,
            horizon_seconds=self.settings.pace_horizon_seconds,
        )

    @cached_property
    def gateway(self) -> Gateway:
        from ringfence.gateway import Gateway

        return Gateway(self.services, self.log, self.queues)

    @cached_property
    def relay(self) -> Relay:
        from ringfence.relay import Relay

        return Relay(self.services, self.queues, self.pacer)

    @cached_property
    def timers(self) -> Timers:
        from ringfence.timers import Timers

        return Timers(self.services, self.queues, self.last_resort, self.queue_settings, self.pacer, self.reconciler)

    @cached_property
    def reconciler(self) -> Reconciler:
        from ringfence.reconcile import Reconciler

        return Reconciler(
            self.services,
            self.queues,
            self.pacer,
            self.sweeps,
            every_hours=self.settings.reconcile_every_hours,
            after_hours=self.settings.reconcile_after_hours,
        )

    @cached_property
    def replayer(self) -> Replayer:
        """Raises `Misconfigured` if no bucket is named."""
        from ringfence.aws.clients import client
        from ringfence.aws.failed_batches import S3FailedBatches
        from ringfence.replay import Replayer

        if self.settings.bucket is None:
            raise Misconfigured("RINGFENCE_BUCKET is not set: it names where the relay's failed batches are kept")
        batches = S3FailedBatches(client("s3"), self.settings.bucket, self.settings.stream)
        return Replayer(batches, self.log, self.clock, random.Random())

    @cached_property
    def worker(self) -> Worker:
        from ringfence.app_import import load_app
        from ringfence.worker import Worker

        return Worker(
            load_app(self.settings.app),
            self.services,
            name=_worker_name(),
            threads=self.settings.worker_threads,
            lease_seconds=self.settings.lease_seconds,
        )

    @cached_property
    def services(self) -> Services:
        return Services(
            ledger=self.ledger,
            quarantine=self.quarantine,
            clock=self.clock,
            ids=self.ids,
            telemetry=self.telemetry,
            random_source=random.Random(),
            retention_seconds=self.retention_seconds,
            holds_retries=lambda queue: self.pacer.holds_retries(queue),
        )

    def _clock_by_aws(self) -> Clock:
        from ringfence.aws.clock import AWS_CLOCK

        AWS_CLOCK.on_wrong = lambda ahead_ms: self.telemetry.event("clock_wrong", ahead_seconds=ahead_ms / 1000)
        return AWS_CLOCK

    def _queue(self, name: str, url: str) -> Queue:
        queue: Queue = self._redis_queues.queue(name, url) if _on_redis(url) else self._sqs_queue(name, url)
        return self._wrapped(f"queue:{name}", queue)

    def _sqs_queue(self, name: str, url: str) -> Queue:
        from ringfence.aws.clients import client
        from ringfence.aws.queue import SqsQueue
        from ringfence.aws.queue_url import queue_url

        return SqsQueue(
            client("sqs"),
            name,
            queue_url(client("sqs"), url),
            polling=lambda: client("sqs", long_poll=True),
            clock=self.clock,
            telemetry=self.telemetry,
        )

    @cached_property
    def _redis_queues(self) -> RedisQueues:
        from ringfence.redis.queues import RedisQueues

        return RedisQueues(self.clock, self.telemetry, lease_seconds=self.settings.lease_seconds)

    def _wrapped(self, name: str, port: Port) -> Port:
        wrapped: Port = self._wrap(name, port)
        return wrapped


def _on_redis(url: str) -> bool:
    return url.startswith(("redis://", "rediss://"))


def _worker_name() -> str:
    """Who holds a lease: the Lambda's log stream, or host and process."""
    stream = _log_stream()
    return stream.rpartition("]")[2][:32] if stream else f"{socket.gethostname()[:20]}-{os.getpid()}"


def _log_stream() -> str | None:
    """On Lambda each process has a stream of its own; elsewhere the processes of a ``ringfence worker`` share their output."""
    return os.environ.get("AWS_LAMBDA_LOG_STREAM_NAME")


_current: Runtime | None = None
_current_wrap: Wrap | None = None


def wrap_with(wrap: Wrap) -> None:
    """Let every adapter of this process pass through ``wrap``. For tests that start real processes."""
    global _current_wrap
    _current_wrap = wrap


def current() -> Runtime:
    """This process's runtime, from its environment."""
    global _current
    if _current is None:
        _current = Runtime(Settings.from_environment(os.environ), _current_wrap)
    return _current
