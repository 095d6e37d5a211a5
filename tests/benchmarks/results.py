"""What the rounds found: figures by measure and system, the best peer in each, and Ringfence's ratio to it."""

from __future__ import annotations

import statistics
from collections import defaultdict
from dataclasses import dataclass

from .peers import RINGFENCE


@dataclass(frozen=True, slots=True)
class Measure:
    """One figure of a system."""

    name: str
    title: str
    less_is_better: bool = False
    digits: int = 0


ENQUEUE = Measure("enqueue", "one by one /s")
BULK = Measure("bulk", "in bulk /s")
DRAIN1 = Measure("drain1", "1 worker jobs/s")
DRAIN2 = Measure("drain2", "2 workers jobs/s")
P50 = Measure("p50", "p50 ms", less_is_better=True, digits=2)
P99 = Measure("p99", "p99 ms", less_is_better=True, digits=1)
WORKER_CPU = Measure("worker_cpu", "worker µs/job", less_is_better=True)
REDIS_CPU = Measure("redis_cpu", "redis µs/job", less_is_better=True)
PEAK = Measure("peak", "MiB", less_is_better=True)
OTHERS = Measure("others", "others", less_is_better=True, digits=2)

COMPARED = (ENQUEUE, BULK, DRAIN1, DRAIN2, P50, P99)
"""Those by which there is a best peer."""


class Results:
    """Figures as they come in, of one round after the other."""

    def __init__(self) -> None:
        self._figures: defaultdict[tuple[Measure, str], dict[int, float]] = defaultdict(dict)
        self.wrong: list[str] = []
        """What a system did that it must not: jobs lost, or run twice."""

    def add(self, measure: Measure, system: str, round_number: int, figure: float) -> None:
        self._figures[measure, system][round_number] = figure

    def figures(self, measure: Measure, system: str) -> list[float]:
        """One for each round in which it was measured."""
        return list(self._figures[measure, system].values()) if (measure, system) in self._figures else []

    def systems(self, measure: Measure) -> list[str]:
        """Those it was measured of."""
        return [system for of, system in self._figures if of == measure]

    def median(self, measure: Measure, system: str) -> float | None:
        found = self.figures(measure, system)
        return statistics.median(found) if found else None

    def best(self, measure: Measure) -> str | None:
        """The peer with the best median; None if none was measured."""
        medians = {
            system: statistics.median(found.values())
            for (of, system), found in self._figures.items()
            if of == measure and system != RINGFENCE.name
        }
        if not medians:
            return None
        return min(medians, key=lambda name: medians[name] if measure.less_is_better else -medians[name])

    def ratios(self, measure: Measure) -> list[float]:
        """Ringfence's figure over the best peer's, for each round that has both."""
        best = self.best(measure)
        if best is None:
            return []
        ours, theirs = self._figures[measure, RINGFENCE.name], self._figures[measure, best]
        return [ours[number] / theirs[number] for number in ours if number in theirs]

    def ratio(self, measure: Measure) -> float | None:
        found = self.ratios(measure)
        return statistics.median(found) if found else None
