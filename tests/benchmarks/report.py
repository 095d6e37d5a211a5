"""The tables that a run prints, and the JSON object that is its last line."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterable, Iterator, Sequence

from .claims import Claim
from .own import MILLION, Own, ratio
from .results import (
    BULK,
    COMPARED,
    DRAIN1,
    DRAIN2,
    ENQUEUE,
    OTHERS,
    P50,
    P99,
    PEAK,
    REDIS_CPU,
    WORKER_CPU,
    Measure,
    Results,
)

COLUMNS = (ENQUEUE, BULK, DRAIN1, DRAIN2, P50, P99, WORKER_CPU, REDIS_CPU, PEAK, OTHERS)
BUSY = 0.25
"""Of the machine's CPU time, used by others: above it a run on the clock decides nothing."""

SPREAD = frozenset(COMPARED)
"""Shown with the least and the most of all rounds."""


def table(results: Results, systems: Sequence[str], unsafe: Iterable[str]) -> Iterator[str]:
    """One line for each system, the quickest first; Ringfence's ratio to the best peer in the last one."""
    lines = [["", *(measure.title for measure in COLUMNS)]]
    ordered = sorted(systems, key=lambda name: -(results.median(DRAIN1, name) or 0.0))
    for name in ordered:
        shown = f"{name} (loses jobs)" if name in unsafe else name
        lines.append([shown, *(_cell(results, measure, name) for measure in COLUMNS)])
    lines.append(["ringfence / best", *(_ratio_cell(results, measure) if measure in COMPARED else "" for measure in COLUMNS)])
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    for line in lines:
        yield "  ".join(
            [line[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(line[1:], widths[1:], strict=True))]
        )


def busy_lines(results: Results) -> Iterator[str]:
    """A warning, if others used so much of the machine that clocks say little."""
    others = [figure for system in results.systems(OTHERS) for figure in results.figures(OTHERS, system)]
    if others and statistics.median(others) > BUSY:
        yield f"BUSY       others used {statistics.median(others):.0%} of this machine: of what a clock says, believe little"


def own_lines(own: Own) -> Iterator[str]:
    """Ringfence alone."""
    for batch, compared in own.engine.items():
        yield f"engine, batches of {batch}: {_spread([each.ratio for each in compared], 2)} of a bare script"
    yield f"push one by one: {_spread([each.ratio for each in own.push], 2)} of a bare script"
    for kind, cost in own.relay.items():
        each = ", ".join(f"{size:,}: {us:.1f}" for size, us in cost.us_per_ticket.items())
        yield f"relay to {kind}: {cost.tickets_per_cpu_second:,.0f} tickets per CPU second; µs a ticket by the batch: {each}"
    if own.bill is not None:
        units = ", ".join(f"{name} {count:.2f}" for name, count in own.bill.units_by_write.items())
        calls = ", ".join(f"{name} {count:.2f}" for name, count in own.bill.calls.items())
        yield f"guarantee once, per job: {own.bill.write_units:.2f} write units ({units}); calls: {calls}"
    if own.worker_cpu is not None:
        cpu = own.worker_cpu
        yield f"guarantee once, per job: {cpu.worker:.0f} µs of CPU time in the worker, {cpu.sdk:.0f} of them boto3's own"
    million = own.bytes_per_ticket * MILLION / 2**20
    how = "measured" if own.waiting == MILLION else f"extrapolated from {own.waiting:,}"
    yield f"Redis: {own.bytes_per_ticket:.0f} bytes per waiting ticket, {million:,.0f} MiB for 1,000,000 ({how})"
    yield f"Redis: {own.bytes_per_carried_ticket:.0f} bytes per waiting ticket that carries its job of about 100 bytes"


def claim_lines(claims: Iterable[Claim]) -> Iterator[str]:
    words = {True: "true", False: "NOT TRUE", None: "NOT JUDGED"}
    for claim in claims:
        yield f"{words[claim.true]:<10} {claim.text}: {claim.found}"


def last_line(results: Results, own: Own) -> str:
    """Ratios above 1 are in Ringfence's favour, except those of ``p50`` and ``p99``, which are times."""
    redis, sqs = own.relay["Redis"], own.relay["SQS"]
    return json.dumps(
        {
            "drain1_vs_best": _rounded(results.ratio(DRAIN1)),
            "drain2_vs_best": _rounded(results.ratio(DRAIN2)),
            "enqueue_vs_script": _rounded(ratio(own.push)),
            "enqueue_vs_best": _rounded(results.ratio(ENQUEUE)),
            "bulk_vs_best": _rounded(results.ratio(BULK)),
            "p50_vs_best": _rounded(results.ratio(P50)),
            "p99_vs_best": _rounded(results.ratio(P99)),
            "engine_vs_script": _rounded(min(ratio(compared) for compared in own.engine.values())),
            "relay_tickets_per_cpu_second": round(sqs.tickets_per_cpu_second),
            "relay_tickets_per_cpu_second_redis": round(redis.tickets_per_cpu_second),
            "write_units_per_job": _rounded(own.bill.write_units if own.bill else None),
            "redis_bytes_per_ticket": round(own.bytes_per_ticket),
            "best": results.best(DRAIN1),
            "best_of_each": {measure.name: results.best(measure) for measure in COMPARED},
        }
    )


def _cell(results: Results, measure: Measure, system: str) -> str:
    found = results.figures(measure, system)
    if not found:
        return "-"
    if measure in SPREAD:
        return _spread(found, measure.digits)
    median = results.median(measure, system) or 0.0
    return f"{median:.0%}" if measure is OTHERS else f"{median:,.{measure.digits}f}"


def _ratio_cell(results: Results, measure: Measure) -> str:
    found = results.ratios(measure)
    return _spread(found, 2) if found else "-"


def _spread(figures: list[float], digits: int) -> str:
    return f"{statistics.median(figures):,.{digits}f} ({min(figures):,.{digits}f}-{max(figures):,.{digits}f})"


def _rounded(figure: float | None) -> float | None:
    return None if figure is None else round(figure, 3)
