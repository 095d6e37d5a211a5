"""A queue that keeps a pace of one a second gets ten thousand jobs at once, beside a free one in the same shard (must hold 2).

In virtual time: every call costs what it takes on AWS, and the batches of the shard come one after the other, as an event
source mapping invokes the relay. `campaign_slow_neighbour` measures the same with real processes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from ringfence import App, Context, sender
from ringfence.acceptance import Accepted, Submission
from ringfence.memory.clock import ManualClock
from ringfence.testing.system import MemorySystem
from ringfence.wire import Ticket

AT_ONCE = sender.AT_ONCE
CALL_SECONDS: Mapping[str, float] = {
    "push": 0.008,
    "read": 0.004,
    "reserve": 0.006,
    "settings.join_line": 0.006,
    # So many of these at a time, each a transaction of 25 rows, or one small item.
    "write_many": 0.040 / AT_ONCE,
    "ledger.join_line": 0.006 / AT_ONCE,
}
"""What a call takes on AWS, more or less."""

INVOKE_SECONDS = 0.01
POLL_SECONDS = 0.25
"""How often a shard is asked that had nothing more: AWS tells of four reads a second for each consumer."""
BATCH_RECORDS = 100

CROWD = 10_000
FREE_EVERY_SECONDS = 0.02
RUN_SECONDS = 6.0
CROWD_COMES_AT = 1.0


class Slow:
    """A port whose calls take their time."""

    def __init__(self, name: str, port: Any, clock: ManualClock) -> None:
        self._name, self._port, self._clock = name, port, clock

    def __getattr__(self, method: str) -> Any:
        call = getattr(self._port, method)
        seconds = CALL_SECONDS.get(f"{self._name}.{method}", CALL_SECONDS.get(method, 0.0))
        if not callable(call) or not seconds:
            return call

        def slow(*args: Any, **kwargs: Any) -> Any:
            answer = call(*args, **kwargs)
            self._clock.sleep(seconds)
            return answer

        return slow


def app() -> App:
    made = App()

    @made.job("noop")
    def noop(ctx: Context) -> None: ...

    return made


class Shard:
    """One shard, its relay, and when each ticket of the free queue was pushed."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.here = MemorySystem(app(), clock=self.clock, wrap=lambda name, port: Slow(name, port, self.clock))
        self.arrived: dict[str, float] = {}
        self.pushed: dict[str, float] = {}
        self._read_so_far: str | None = None
        push = self.here.memory_queues["priority"].push

        def noted(tickets: Sequence[Ticket], *more: Any) -> list[Ticket]:
            self.pushed |= {ticket.job_id: self.clock.monotonic() + CALL_SECONDS["push"] for ticket in tickets}
            return push(tickets, *more)

        self.here.memory_queues["priority"].push = noted  # type: ignore[method-assign]

    def accept(self, queue: str, count: int) -> list[str]:
        """Jobs in the log; what the gateway takes for that is not counted."""
        answers = self.here.gateway.submit("default", [Submission(name="noop", payload="{}", queue=queue)] * count)
        return [answer.job.job_id for answer in answers if isinstance(answer, Accepted)]

    def relay(self) -> bool:
        """Invoke the relay with the next batch, if there is one."""
        batch = self.here.memory_log.read(after=self._read_so_far)[:BATCH_RECORDS]
        if not batch:
            return False
        self.clock.sleep(INVOKE_SECONDS)
        assert self.here.relay.handle(batch) is None
        self._read_so_far = batch[-1].sequence
        return True

    def latencies(self) -> list[float]:
        return sorted(self.pushed[job_id] - at for job_id, at in self.arrived.items())


def p99_of_the_free_queue(crowd: int) -> float:
    shard = Shard()
    shard.here.queue_settings.change("default", {"rate_per_second": 1.0})
    next_free, crowd_left = 0.0, crowd
    while shard.clock.monotonic() < RUN_SECONDS:
        now = shard.clock.monotonic()
        while crowd_left and now >= CROWD_COMES_AT:
            crowd_left -= len(shard.accept("default", min(500, crowd_left)))
        while next_free <= now:
            (job_id,) = shard.accept("priority", 1)
            shard.arrived[job_id] = next_free
            next_free += FREE_EVERY_SECONDS
        if not shard.relay():
            shard.clock.sleep(POLL_SECONDS)
    while shard.relay():
        pass
    waiting = {job_id for group in shard.here.memory_ledger.groups("default", 1_000) for job_id, _ in group.waiting}
    waiting |= {job.job_id for job in shard.here.memory_ledger.line("default", 20_000)}
    assert len(waiting) + len(shard.here.memory_queues["default"].bodies()) == crowd
    latencies = shard.latencies()
    assert len(latencies) > 0.9 * RUN_SECONDS / FREE_EVERY_SECONDS
    return latencies[int(len(latencies) * 0.99)]


def test_the_free_queues_p99_stays_within_twice_its_value_alone() -> None:
    alone = p99_of_the_free_queue(crowd=0)
    assert alone > POLL_SECONDS, "a job that comes right after a read waits for the next"
    assert p99_of_the_free_queue(crowd=CROWD) < 2 * alone


def test_it_would_not_if_each_row_were_written(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without this, the other test would show nothing."""
    alone = p99_of_the_free_queue(crowd=0)
    monkeypatch.setattr(sender, "ALONE_AT_MOST", CROWD)
    assert p99_of_the_free_queue(crowd=CROWD) > 2 * alone
