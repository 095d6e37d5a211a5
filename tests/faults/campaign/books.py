"""What the clients know: what they asked for, what they were promised, and what was said that cannot be true."""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from ringfence.job import State

RECENT = 200


class Kind(StrEnum):
    """The jobs of `inside.load_jobs`."""

    TALLY = "tally"
    STEPS = "steps"
    HAUL = "haul"
    DOOMED = "doomed"
    PILL = "pill"
    CARRY = "carry"


class Asked(StrEnum):
    """How it stands with something else that a client asks of a job."""

    NOT = "not asked"
    PERHAPS = "perhaps done"
    DONE = "done"


@dataclass(slots=True)
class Promise:
    """A job with a 2xx."""

    key: str
    kind: Kind
    queue: str
    job_id: str
    accepted_at: float
    """On the monotonic clock, when the answer was there."""
    cancel: Asked = Asked.NOT
    redrive: Asked = Asked.NOT
    seen: State | None = None
    """The end that a client has read."""


@dataclass
class Books:
    """Kept by all clients together."""

    promises: dict[str, Promise] = field(default_factory=dict)
    """By their keys."""
    unanswered: set[str] = field(default_factory=set)
    """Keys of submissions that may or may not have been accepted, and will not be sent again."""
    refusals: Counter[str] = field(default_factory=Counter)
    """What clients were told instead of a 2xx."""
    contradictions: list[str] = field(default_factory=list)
    redis_losses: list[float] = field(default_factory=list)
    """When a Redis lost something: what rides in its tickets may be gone."""
    _lock: threading.Lock = field(default_factory=threading.Lock)
    recent: deque[Promise] = field(default_factory=lambda: deque(maxlen=RECENT))
    """Of the kind whose end is an end for good."""
    _by_job: dict[str, Promise] = field(default_factory=dict)

    def promised(self, key: str, kind: Kind, queue: str, job_id: str) -> None:
        """A 2xx for this key. A second one must be for the same job."""
        with self._lock:
            before = self.promises.get(key)
            if before is not None:
                if before.job_id != job_id:
                    self.contradictions.append(f"{key} was accepted as {before.job_id} and as {job_id}")
                return
            promise = Promise(key, kind, queue, job_id, time.monotonic())
            self.promises[key] = self._by_job[job_id] = promise
            self.unanswered.discard(key)
            if kind is Kind.TALLY:
                self.recent.append(promise)

    def refused(self, what: str) -> None:
        with self._lock:
            self.refusals[what] += 1

    def contradicted(self, what: str) -> None:
        with self._lock:
            self.contradictions.append(what)

    def of_job(self, job_id: str) -> Promise | None:
        with self._lock:
            return self._by_job.get(job_id)

    def all(self) -> Sequence[Promise]:
        with self._lock:
            return list(self.promises.values())

    def with_rows(self) -> Iterable[Promise]:
        return (promise for promise in self.all() if promise.kind is not Kind.CARRY)
