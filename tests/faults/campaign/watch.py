"""What the processes tell, as it happens: logs say what was done and by whom; what is so, the ledger says."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from pathlib import Path

from ringfence.local.demo.worker_log import Event, WorkerLog
from ringfence.local.demo.worker_processes import LOG

from .bed import GATEWAY, RELAY, TIMERS, WORKER
from .books import Asked, Books, Kind

LOOK_SECONDS = 0.3
TOLD_OF_ENDS = frozenset({"job_succeeded", "job_dead", "job_cancelled"})
LATEST = 200


class Watch:
    """Reads all logs in a thread of its own, from `start` to `stop`."""

    def __init__(self, logs: Path, books: Books) -> None:
        self._logs = {name: WorkerLog(logs, name) for name in (GATEWAY, RELAY, WORKER, TIMERS, LOG)}
        self._books = books
        for log in self._logs.values():
            log.new_events()  # what was told before is not of this run
        self._lock = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="watch", daemon=True)
        self.counts: Counter[str] = Counter()
        """By name, and as ``function:name``; those of `_detail` also as ``name:detail``."""
        self.succeeded: Counter[str] = Counter()
        """By job id."""
        self.ended: set[str] = set()
        self.last_end = time.monotonic()
        self._carried = 0
        self._open: dict[str, tuple[int, float]] = {}
        self._doomed: deque[str] = deque()
        self._latest: dict[str, deque[str]] = {name: deque(maxlen=LATEST) for name in ("job_claimed", "job_succeeded")}
        self.fault: BaseException | None = None

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """After one more look."""
        self._over.set()
        self._thread.join()

    def outstanding(self) -> int:
        """About how many accepted jobs have not ended."""
        with self._lock:
            return len(self._books.promises) - len(self.ended) - self._carried

    def ends(self) -> int:
        """How many jobs have ended."""
        with self._lock:
            return len(self.ended) + self._carried

    def latest(self, event: str) -> Sequence[str]:
        """The ids of the jobs that have last been told of so."""
        with self._lock:
            return list(self._latest[event])

    def running(self, at_least_seconds: float = 0.0) -> Mapping[str, int]:
        """Jobs that were claimed so long ago and have not ended as far as was told, and the process that has each."""
        until = time.monotonic() - at_least_seconds
        with self._lock:
            return {job_id: pid for job_id, (pid, since) in self._open.items() if since <= until}

    def next_doomed(self) -> str | None:
        """A job that has died as it was to, and was not returned before."""
        with self._lock:
            return self._doomed.popleft() if self._doomed else None

    def _follow(self) -> None:
        try:
            while not self._over.wait(LOOK_SECONDS):
                self._look()
            self._look()
        except BaseException as fault:  # noqa: BLE001 - raised again where the run is judged
            self.fault = fault

    def _look(self) -> None:
        for function, log in self._logs.items():
            for event in log.new_events():
                with self._lock:
                    self.counts[f"{function}:{event.name}"] += 1
                    self._see(event)

    def _see(self, event: Event) -> None:
        name, job_id = event.name, event.job_id
        self.counts[name] += 1
        if (detail := _detail(event)) is not None:
            self.counts[f"{name}:{detail}"] += 1
        if name in self._latest:
            self._latest[name].append(job_id)
        if name == "job_claimed":
            if event.token > 1 and job_id in self._open:
                self.counts["take_over"] += 1
            self._open[job_id] = event.pid, time.monotonic()
        elif name in {"job_retried", "job_handed_over"}:
            self._open.pop(job_id, None)
        elif name == "carried_jobs_succeeded":
            self._carried += int(event.fields.get("count", 0))
            self.last_end = time.monotonic()
        elif name in TOLD_OF_ENDS:
            self._end(name, event)

    def _end(self, name: str, event: Event) -> None:
        job_id = event.job_id
        self.last_end = time.monotonic()
        self._open.pop(job_id, None)
        self.ended.add(job_id)
        if name == "job_succeeded":
            self.succeeded[job_id] += 1
        elif name == "job_dead" and event.fields.get("job_name") == Kind.DOOMED:
            promise = self._books.of_job(job_id)
            if promise is not None and promise.redrive is Asked.NOT:
                self._doomed.append(job_id)


def _detail(event: Event) -> str | None:
    match event.name:
        case "late_write_refused":
            return str(event.fields.get("purpose"))
        case "campaign_retried":
            return f"{event.fields.get('operation')} {event.fields.get('code')}"
        case "redis_call_failed" if "OOM" in str(event.fields.get("reason")) or "maxmemory" in str(event.fields.get("reason")):
            return "full"
        case "repair_finished" if event.fields.get("renewed"):
            return "renewed"
    return None
