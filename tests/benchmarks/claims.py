"""The claims of this project's speed, each judged by the run's own figures."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .own import Own, ratio
from .results import BULK, DRAIN1, DRAIN2, P50, P99, Measure, Results

WRITE_UNITS = 4.0
LINEAR = 1.25
"""What a ticket may cost in a batch of 10,000 over what it costs in one of 1,000."""


@dataclass(frozen=True, slots=True)
class Claim:
    """A sentence, and whether it was true in this run; None if the run could not tell."""

    text: str
    found: str
    true: bool | None


def judged(results: Results, own: Own) -> Iterator[Claim]:
    yield _beside_best(results, DRAIN1, "one worker drains at least 1.5 times as fast as the best peer", 1.5)
    yield _beside_best(results, DRAIN2, "two workers drain at least 1.5 times as fast as the best peer", 1.5)
    yield _beside_best(results, BULK, "bulk enqueue is at least twice as fast as the best peer", 2.0)
    yield _beside_best(results, P50, "half of the jobs begin no later than the best peer's", 1.0)
    yield _beside_best(results, P99, "99 of 100 jobs begin no later than the best peer's", 1.0)
    yield _at_least("single enqueue reaches 0.9 of a bare script", ratio(own.push), 0.9)
    for batch, compared in own.engine.items():
        yield _at_least(f"the engine reaches 0.8 of a bare script in batches of {batch}", ratio(compared), 0.8)
    for kind, cost in own.relay.items():
        text = f"the relay's work for {kind} grows linearly up to 10,000 jobs a batch"
        yield Claim(text, f"{cost.growth:.2f} a ticket", cost.growth <= LINEAR)
    if own.bill is not None:
        units = own.bill.write_units
        yield Claim("a small job without effects costs four write units", f"{units:.2f}", units <= WRITE_UNITS)
    yield Claim("every job ran, none twice", "; ".join(results.wrong) or "all", not results.wrong)


def _beside_best(results: Results, measure: Measure, text: str, bound: float) -> Claim:
    found, best = results.ratio(measure), results.best(measure)
    if found is None:
        return Claim(text, "there is nothing to compare", None)
    return Claim(text, f"{found:.2f} of {best}", found <= bound if measure.less_is_better else found >= bound)


def _at_least(text: str, found: float, bound: float) -> Claim:
    return Claim(text, f"{found:.2f}", found >= bound)
