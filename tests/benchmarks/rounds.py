"""All systems in turns: each measure is taken of one after the other, so that what else happens on the machine meets all."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from .ground import BenchFailed, Ground
from .peers import RINGFENCE, System
from .results import BULK, DRAIN1, DRAIN2, ENQUEUE, OTHERS, P50, P99, PEAK, REDIS_CPU, WORKER_CPU, Results
from .systems import delay, drain, enqueue

Tell = Callable[[str], None]

ENQUEUED_AT_MOST = 6_000
"""Jobs enqueued one by one."""


class Rounds:
    """``scale`` makes every backlog larger or smaller; ``paced_seconds`` is how long jobs come one by one."""

    def __init__(self, ground: Ground, systems: Sequence[System], results: Results, tell: Tell, *, scale: float) -> None:
        self._ground, self._systems, self._results, self._tell = ground, systems, results, tell
        self._scale = scale

    def run(self, number: int, paced_seconds: float) -> None:
        """One round."""
        for title, measure in self._measures(paced_seconds):
            # The other way around in every other round: being first or last is nobody's for ever.
            for system in self._systems if number % 2 else self._systems[::-1]:
                try:
                    told = measure(system, number)
                except BenchFailed as fault:
                    told = f"failed: {fault}"
                    if system is RINGFENCE:
                        self._results.wrong.append(str(fault))
                if told is not None:
                    self._tell(f"round {number}  {title:<24} {system.name:<16} {told}")

    def _measures(self, paced_seconds: float) -> Iterator[tuple[str, Callable[[System, int], str | None]]]:
        yield "enqueue one by one", self._enqueue
        yield "enqueue in bulk", self._bulk
        yield "drain by one worker", lambda system, number: self._drain(system, number, 1)
        yield "drain by two workers", lambda system, number: self._drain(system, number, 2)
        yield (
            f"begin at {RINGFENCE.paced_per_second:.0f} jobs/s",
            lambda system, number: self._delay(system, number, paced_seconds),
        )

    def _enqueue(self, system: System, number: int) -> str | None:
        if not system.enqueued:
            return None
        found = enqueue(self._ground, system, "one", min(self._jobs(system), ENQUEUED_AT_MOST))
        self._results.add(ENQUEUE, system.name, number, found.per_second)
        return f"{found.per_second:>10,.0f} jobs/s"

    def _bulk(self, system: System, number: int) -> str | None:
        if not (system.enqueued and system.many):
            return None
        found = enqueue(self._ground, system, "many", self._jobs(system))
        self._results.add(BULK, system.name, number, found.per_second)
        return f"{found.per_second:>10,.0f} jobs/s"

    def _drain(self, system: System, number: int, workers: int) -> str:
        found = drain(self._ground, system, workers, workers * self._jobs(system))
        self._results.add(DRAIN1 if workers == 1 else DRAIN2, system.name, number, found.per_second)
        self._results.add(OTHERS, system.name, number, found.others_share)
        if workers == 1:
            self._results.add(WORKER_CPU, system.name, number, found.worker_cpu_us_per_job)
            self._results.add(REDIS_CPU, system.name, number, found.redis_cpu_us_per_job)
            self._results.add(PEAK, system.name, number, found.peak_mib)
        wrong = [
            f"{count} jobs {what}" for count, what in ((found.missing, "did not run"), (found.repeated, "ran twice")) if count
        ]
        self._results.wrong += [f"{system.name}: {each}" for each in wrong if system is RINGFENCE]
        return f"{found.per_second:>10,.0f} jobs/s" + "".join(f", {each}" for each in wrong)

    def _delay(self, system: System, number: int, seconds: float) -> str:
        found = delay(self._ground, system, seconds)
        self._results.add(P50, system.name, number, found.p50)
        self._results.add(P99, system.name, number, found.p99)
        return f"p50 {found.p50:.2f} ms, p99 {found.p99:.1f} ms"

    def _jobs(self, system: System) -> int:
        return max(50, int(system.jobs * self._scale))
