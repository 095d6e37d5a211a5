"""One worker process: for each of its queues a crew of threads, one more that watches over them, and a heartbeat."""

from __future__ import annotations

import os
import random
import resource
import signal
import sys
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from inspect import iscoroutinefunction
from pathlib import Path

from ringfence.clock import SystemClock
from ringfence.company import Company
from ringfence.errors import RingfenceError
from ringfence.process.calls import TimedQueue
from ringfence.process.feed import QueueFeed, Stop
from ringfence.runtime import Runtime
from ringfence.worker import Worker

BYTES_PER_RSS_UNIT = 1 if sys.platform == "darwin" else 1024
"""``ru_maxrss`` is in bytes on macOS and in KiB elsewhere. https://man7.org/linux/man-pages/man2/getrusage.2.html"""

LIVE_SECONDS = 5.0
"""A queue that nobody has looked after for so long, or an event loop that has not come round, is not live."""

HANGING_SECONDS = 90.0
"""A call to a queue that takes so long will not come back, and nothing else would tell: no more messages are taken after one
that leases, no more leases kept after one that extends. The longest that may is a long poll of SQS that is tried twice, with
the timeouts of `ringfence.aws.clients`. Calls to the ledger are not watched so: each holds up one job."""

CHECK_SECONDS = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """When a process ends by itself, to be replaced; None: never. And how it shows that it lives."""

    grace_seconds: float
    max_jobs: int | None = None
    max_memory_bytes: int | None = None
    liveness_file: Path | None = None
    """Touched about twice a second while every queue is looked after."""


class Child:
    """Serves ``threads_of`` (queue → how many jobs at once) until a SIGTERM, a limit, or the death of one of its threads."""

    def __init__(self, runtime: Runtime, threads_of: Mapping[str, int], limits: Limits) -> None:
        self._runtime, self._threads_of, self._limits = runtime, threads_of, limits
        self._stop = Stop(SystemClock(), limits.grace_seconds)
        self._lock = threading.Lock()
        self._jobs = 0
        # Not all processes at once: they were started together, and would be gone together.
        self._max_jobs = None if limits.max_jobs is None else limits.max_jobs - random.randrange(limits.max_jobs // 10 + 1)
        self._looked = dict.fromkeys(threads_of, 0.0)
        self._feeds: dict[str, QueueFeed] = {}
        self._check_from = 0.0
        self._company = Company()
        self._failed = False

    def run(self) -> int:
        """The exit code: 0 when it stopped because it was asked to or a limit was reached."""
        signal.signal(signal.SIGTERM, lambda *_: self._stop.ask())
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C reaches the whole group; the parent decides
        servers = [
            threading.Thread(target=self._serve, args=(name, threads), name=f"queue-{name}", daemon=True)
            for name, threads in self._threads_of.items()
        ]
        for server in servers:
            server.start()
        for server in servers:
            server.join()
        return 1 if self._failed else 0

    def _serve(self, name: str, threads: int) -> None:
        runtime = self._runtime
        try:
            like: Worker = runtime.worker
            worker = Worker(
                like.app,
                like.services,
                name=like.name,
                threads=threads,
                lease_seconds=runtime.settings.lease_seconds,
                company=self._company,
            )
            queue = runtime.queues[name]
            feed = self._feeds[name] = QueueFeed(queue, self._stop, partial(self._look, name))
            worker.serve(TimedQueue(queue, feed.calls), feed)
        except BaseException as fault:  # noqa: BLE001 - the process ends loudly, and is replaced
            self._failed = True
            where = str(fault) if isinstance(fault, RingfenceError) else ""
            runtime.telemetry.event("worker_failed", queue=name, reason=f"{type(fault).__name__} {where}".strip())
        finally:
            self._stop.ask()

    def _look(self, name: str, done: int) -> None:
        now = time.monotonic()
        with self._lock:
            self._looked[name] = now
            self._jobs += done
            enough = self._max_jobs is not None and self._jobs >= self._max_jobs
            checks = now >= self._check_from
            if checks:
                self._check_from = now + CHECK_SECONDS
        if enough:
            self._recycle("messages", messages=self._jobs)
        if checks:
            self._check(now)

    def _check(self, now: float) -> None:
        """Whether the process should go on, and shows that it lives."""
        limits = self._limits
        used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * BYTES_PER_RSS_UNIT
        if limits.max_memory_bytes is not None and used >= limits.max_memory_bytes:
            self._recycle("memory", memory_bytes=used)
        abandoned = sum(feed.abandoned for feed in list(self._feeds.values())) + _of_coroutines("given_up")
        if abandoned >= sum(self._threads_of.values()):
            self._recycle("abandoned threads", threads=abandoned)
        silent_seconds = _of_coroutines("silent_seconds")
        if silent_seconds > self._longest_coroutine_seconds:
            self._recycle("blocked event loop", seconds=round(silent_seconds, 3))
        hanging_seconds = max((feed.calls.longest_seconds() for feed in list(self._feeds.values())), default=0.0)
        if hanging_seconds > HANGING_SECONDS:
            self._recycle("hanging call to a queue", seconds=round(hanging_seconds, 3))
        lives = max(now - min(self._looked.values()), silent_seconds) < LIVE_SECONDS
        if limits.liveness_file is not None and lives:
            with suppress(OSError):  # then the file grows old, and that is what a probe sees
                limits.liveness_file.touch()

    @cached_property
    def _longest_coroutine_seconds(self) -> float:
        jobs = self._runtime.worker.app.jobs.values()
        return max((spec.timeout_seconds for spec in jobs if iscoroutinefunction(spec.function)), default=float("inf"))

    def _recycle(self, reason: str, **fields: float) -> None:
        """End in good order, to be replaced."""
        if not self._stop.asked:
            self._stop.ask()
            self._runtime.telemetry.event("worker_recycled", pid=os.getpid(), reason=reason, **fields)


def _of_coroutines(what: str) -> float:
    """What this function of `coroutines` tells. The module takes long to import, and comes with the first job that needs it:
    there may be nothing of it yet, or a part."""
    ask = getattr(sys.modules.get("ringfence.coroutines"), what, None)
    return 0 if ask is None else ask()
