"""What is measured of Ringfence alone: the engine, the relay, memory, and what a job of guarantee once costs."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field

from .bill import Bill, bill
from .engine import BATCHES, Compared, engine_beside_script, push_beside_script
from .ground import Ground
from .memory import bytes_per_ticket
from .relay import RelayCost, relay_to_redis, relay_to_sqs
from .worker_cpu import WorkerCpu, worker_cpu

Tell = Callable[[str], None]

BILLED_JOBS = 20
MILLION = 1_000_000
SAMPLE = 100_000


@dataclass(slots=True)
class Own:
    """Everything found; the comparisons have one entry for each round."""

    engine: dict[int, list[Compared]] = field(default_factory=lambda: {batch: [] for batch in BATCHES})
    """By the size of a batch."""
    push: list[Compared] = field(default_factory=list)
    relay: dict[str, RelayCost] = field(default_factory=dict)
    """By the kind of queue: ``SQS`` and ``Redis``."""
    bill: Bill | None = None
    worker_cpu: WorkerCpu | None = None
    bytes_per_ticket: float = 0.0
    bytes_per_carried_ticket: float = 0.0
    waiting: int = 0
    """The tickets that memory was measured with."""

    def compare(self, ground: Ground, number: int, tell: Tell) -> None:
        """The comparisons of one round."""
        for batch, found in self.engine.items():
            found.append(engine_beside_script(ground, batch))
            tell(f"round {number}  engine in batches of {batch:<5}   {found[-1].ratio:>6.2f} of a bare script")
        self.push.append(push_beside_script(ground))
        tell(f"round {number}  push one by one             {self.push[-1].ratio:>6.2f} of a bare script")

    def measure(self, ground: Ground, tell: Tell, *, quick: bool) -> None:
        """What does not have to be repeated: counts, and CPU times that are medians by themselves."""
        for kind, measure in (("SQS", relay_to_sqs), ("Redis", relay_to_redis)):
            self.relay[kind] = measure(ground)
            tell(f"relay to {kind:<6} {self.relay[kind].tickets_per_cpu_second:>10,.0f} tickets per CPU second")
        self.bill = bill(BILLED_JOBS)
        tell(f"guarantee once  {self.bill.write_units:>10.2f} write units per job")
        self.worker_cpu = worker_cpu()
        tell(f"guarantee once  {self.worker_cpu.own:>10.0f} µs of CPU time per job beside the SDK's {self.worker_cpu.sdk:.0f}")
        self.waiting = SAMPLE if quick else MILLION
        self.bytes_per_ticket = bytes_per_ticket(ground, self.waiting, carried=False)
        self.bytes_per_carried_ticket = bytes_per_ticket(ground, SAMPLE, carried=True)
        tell(f"Redis memory    {self.bytes_per_ticket:>10.0f} bytes per ticket")


def ratio(compared: list[Compared]) -> float:
    """The median over the rounds."""
    return statistics.median(each.ratio for each in compared)
