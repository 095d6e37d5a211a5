"""State machines that drive an engine as chance has it, beside a model of what its contract says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.errors import Flaky
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from ringfence import transitions
from ringfence.change import Change, Refused, Written
from ringfence.ids import RandomIds
from ringfence.job import Job, State
from ringfence.memory.clock import ManualClock
from ringfence.ports import Lease, Ledger, Limiter, Queue
from ringfence.rate import Rate
from ringfence.testing.given import Given
from ringfence.testing.limiter_contract import ensure_within_rate
from ringfence.testing.queue_contract import ticket
from ringfence.wire import decode_ticket

Make = Callable[[], RuleBasedStateMachine]


def ensure_holds(make: Make, *, examples: int, steps: int) -> None:
    """Run so many lives of a machine; the shortest that fails is shown."""
    _run(make, settings(max_examples=examples, stateful_step_count=steps))


def finds_out(make: Make) -> bool:
    """Whether any of many lives of a machine fails, always the same ones: how long chance takes to find a fault varies greatly.

    Once is enough, though an engine with an order of its own may do otherwise when Hypothesis looks again.
    """
    lives = settings(max_examples=200, stateful_step_count=40, phases=[Phase.generate], report_multiple_bugs=False)
    try:
        _run(make, settings(lives, derandomize=True))
    except (AssertionError, Flaky):
        return True
    return False


def _run(make: Make, chosen: settings) -> None:
    checks = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
    chosen = settings(chosen, deadline=None, database=None, suppress_health_check=checks)
    run_state_machine_as_test(make, settings=chosen)  # type: ignore[no-untyped-call]


# --- the queue -----------------------------------------------------------------------------------------------------------

ROUNDED_SECONDS = 0.002
"""Engines know milliseconds."""


@dataclass(slots=True)
class Message:
    """What the contract says of a message. Its moments are spans, for a call takes time."""

    visible: tuple[float, float]
    deliveries: int = 0
    current: Lease | None = None


class QueueMachine(RuleBasedStateMachine):
    """One worker after another on one queue; each may come late with any lease that it ever had."""

    def __init__(self, queue: Queue, now: Callable[[], float], pass_time: Callable[[float], None]) -> None:
        super().__init__()
        self._queue, self._now, self._pass_time = queue, now, pass_time
        self._messages: dict[str, Message] = {}
        self._leases: list[tuple[str, Lease]] = []

    def _during(self, call: Callable[[], Any]) -> tuple[Any, float, float]:
        before = self._now()
        answer = call()
        return answer, before, self._now()

    @rule(count=st.integers(1, 4), delay=st.sampled_from([0.0, 7.0]))
    def push(self, count: int, delay: float) -> None:
        tickets = [ticket() for _ in range(count)]
        lost, before, after = self._during(lambda: self._queue.push(tickets, delay))
        assert lost == []
        for each in tickets:
            self._messages[each.ticket_id] = Message((before + delay, after + delay))

    @rule(most=st.integers(1, 5), seconds=st.sampled_from([10.0, 31.0]))
    def lease(self, most: int, seconds: float) -> None:
        leases, before, after = self._during(lambda: self._queue.lease(most, seconds))
        found = [decode_ticket(lease.body).ticket_id for lease in leases]
        surely = {key for key, each in self._messages.items() if each.visible[1] + ROUNDED_SECONDS < before}
        perhaps = {key for key, each in self._messages.items() if each.visible[0] - ROUNDED_SECONDS <= after}
        assert len(found) == len(set(found)) <= most
        assert set(found) <= perhaps, "hidden, or gone"
        assert len(found) == most or surely <= set(found), "visible"
        for key, lease in zip(found, leases, strict=True):
            message = self._messages[key]
            message.deliveries += 1
            assert lease.deliveries == message.deliveries
            message.visible, message.current = (before + seconds, after + seconds), lease
            self._leases.append((key, lease))

    @rule(which=st.integers(0, 99))
    def acknowledge(self, which: int) -> None:
        if (found := self._pick(which)) is None:
            return
        key, lease, message = found
        self._queue.acknowledge([lease])
        if message is not None and message.current is lease:
            del self._messages[key]

    @rule(which=st.integers(0, 99), seconds=st.sampled_from([10.0, 31.0]))
    def extend(self, which: int, seconds: float) -> None:
        if (found := self._pick(which)) is None:
            return
        _, lease, message = found
        lost, before, after = self._during(lambda: self._queue.extend([lease], seconds))
        assert lost in ([], [lease])
        live = self._is_live(lease, message, before, after)
        assert live is None or live == (not lost)
        if not lost and message is not None:
            message.visible = before + seconds, after + seconds

    @rule(which=st.integers(0, 99), delay=st.sampled_from([0.0, 7.0]))
    def release(self, which: int, delay: float) -> None:
        if (found := self._pick(which)) is None:
            return
        _, lease, message = found
        _, before, after = self._during(lambda: self._queue.release([lease], delay))
        live = self._is_live(lease, message, before, after)
        if message is not None and live is not False:
            least, most = (before + delay, after + delay)
            message.visible = (least, most) if live else (min(least, message.visible[0]), max(most, message.visible[1]))

    @rule(seconds=st.sampled_from([1.5, 6.0, 20.0]))
    def pass_time(self, seconds: float) -> None:
        self._pass_time(seconds)

    @invariant()
    def depth_is_as_the_model_has_it(self) -> None:
        depth, before, after = self._during(self._queue.depth)
        surely = sum(each.visible[1] + ROUNDED_SECONDS < before for each in self._messages.values())
        perhaps = sum(each.visible[0] - ROUNDED_SECONDS <= after for each in self._messages.values())
        assert surely <= depth.ready <= perhaps
        assert depth.ready + depth.leased + depth.delayed == len(self._messages)

    def _pick(self, which: int) -> tuple[str, Lease, Message | None] | None:
        if not self._leases:
            return None
        key, lease = self._leases[which % len(self._leases)]
        return key, lease, self._messages.get(key)

    def _is_live(self, lease: Lease, message: Message | None, before: float, after: float) -> bool | None:
        """None: it ended about now."""
        if message is None or message.current is not lease or message.visible[1] + ROUNDED_SECONDS < before:
            return False
        return True if message.visible[0] - ROUNDED_SECONDS > after else None


# --- the ledger ----------------------------------------------------------------------------------------------------------


class LedgersMachine(RuleBasedStateMachine):
    """The same changes to the same rows in two ledgers, from whatever anybody ever saw of them: the answers are the same."""

    def __init__(self, one: Ledger, other: Ledger, clock: ManualClock) -> None:
        super().__init__()
        self._ledgers, self._clock = (one, other), clock
        self._given = Given(one, clock)
        self._seen: list[Job] = []
        self._latest: dict[str, Job] = {}
        self._changes: list[Change] = []

    @initialize()
    def accept(self) -> None:
        for _ in range(2):
            self._register(self._given.row(max_attempts=2))

    @rule(which=st.integers(0, 99))
    def accept_again(self, which: int) -> None:
        """As a repeated request does, perhaps long after the row has ended."""
        seen = self._pick(which)
        self._register(self._given.row(job_id=seen.job_id, max_attempts=2))

    @rule(which=st.integers(0, 99))
    def claim(self, which: int) -> None:
        self._write(self._given.claim(self._pick(which)))

    @rule(which=st.integers(0, 99), how=st.integers(0, 8))
    def write_as_an_owner(self, which: int, how: int) -> None:
        job = self._pick(which)
        if job.state is not State.RUNNING:
            return
        mark, now = self._given.mark(), self._clock.now()
        ends: dict[str, Any] = {"write_id": mark, "now": now, "expires_at": self._given.expiry()}
        changes: list[Callable[[], Change]] = [
            lambda: transitions.heartbeat(job, write_id=mark, lease_until=now + 30_000, progress=None),
            lambda: transitions.checkpoint(job, '{"at":1}', write_id=mark),
            lambda: transitions.succeed(job, '"done"', **ends),
            lambda: transitions.give_up(job, "it broke", **ends),
            lambda: transitions.cancel_mine(job, **ends),
            lambda: transitions.retry_soon(job, "not yet", write_id=mark, now=now, run_at=now + 5_000),
            lambda: transitions.retry_later(job, "not yet", write_id=mark, now=now, run_at=now + 5_000_000, due_id=mark),
            lambda: transitions.hand_over(job, counted=True, write_id=mark, now=now),
            lambda: transitions.let_go(job, counted=True, write_id=mark, now=now, error="too busy"),
        ]
        self._write(changes[how]())

    @rule(which=st.integers(0, 99))
    def cancel(self, which: int) -> None:
        seen = self._pick(which)
        if seen.state is State.RUNNING:
            self._write(transitions.request_cancel(seen, write_id=self._given.mark()))
        elif not seen.state.terminal:
            ends: dict[str, Any] = {"now": self._clock.now(), "expires_at": self._given.expiry()}
            self._write(transitions.cancel_seen(seen, write_id=self._given.mark(), **ends))

    @rule(which=st.integers(0, 99))
    def redrive(self, which: int) -> None:
        seen = self._pick(which)
        if seen.state is State.DEAD:
            mark = self._given.mark()
            self._write(transitions.redrive(seen, write_id=mark, now=self._clock.now(), due_id=mark))

    @rule(which=st.integers(0, 99))
    def clear_mark(self, which: int) -> None:
        seen = self._pick(which)
        if seen.due_id is not None:
            self._write(transitions.clear_mark(seen, write_id=self._given.mark()))

    @rule(which=st.integers(0, 99))
    def send_again(self, which: int) -> None:
        """An earlier request, whose reply may have been lost."""
        if self._changes:
            self._write(self._changes[which % len(self._changes)])

    @rule(seconds=st.sampled_from([1.0, 40.0, 8 * 24 * 3600.0]))
    def pass_time(self, seconds: float) -> None:
        self._clock.advance(seconds)

    @invariant()
    def both_hold_the_same(self) -> None:
        for job_id in list(self._latest):
            one, other = (ledger.get(job_id) for ledger in self._ledgers)
            assert one == other
            self._know(job_id, one)

    def _pick(self, which: int) -> Job:
        return self._seen[which % len(self._seen)]

    def _register(self, job: Job) -> None:
        one, other = (ledger.register(job) for ledger in self._ledgers)
        assert one == other
        if one is None:
            self._latest.pop(job.job_id, None)  # a new life
        self._know(job.job_id, one or job)

    def _write(self, change: Change) -> None:
        self._changes.append(change)
        one, other = (ledger.write(change) for ledger in self._ledgers)
        assert one == other
        self._know(change.job_id, one.job if isinstance(one, Written) else one.seen if isinstance(one, Refused) else None)

    def _know(self, job_id: str, job: Job | None) -> None:
        """Tokens and versions never fall, and what has ended stays so, unless it is redriven."""
        if job is None:
            return
        before = self._latest.get(job_id)
        if before is not None:
            assert job.version >= before.version
            assert job.token >= before.token
            if before.state.terminal and job.version > before.version:
                assert (before.state, job.token) == (State.DEAD, before.token)
        self._latest[job_id] = job
        self._seen.append(job)


# --- the limiter ---------------------------------------------------------------------------------------------------------


class LimiterMachine(RuleBasedStateMachine):
    """Reservations as they come, at one rate: no window ever holds more than it allows, and nothing is given out in vain."""

    def __init__(self, limiter: Limiter, now: Callable[[], float], pass_time: Callable[[float], None], slack_ms: float) -> None:
        super().__init__()
        self._limiter, self._now, self._pass_time, self._slack_ms = limiter, now, pass_time, slack_ms
        self._queue = RandomIds().job()
        self._releases: list[float] = []

    @initialize(per_second=st.sampled_from([0.2, 1.0, 7.7, 300.0]), burst=st.integers(1, 6))
    def choose(self, per_second: float, burst: int) -> None:
        self._per_second, self._burst = per_second, burst

    @rule(count=st.integers(1, 9), within=st.sampled_from([None, 0, 1_000, 30_000]))
    def reserve(self, count: int, within: int | None) -> None:
        waits = self._limiter.reserve(self._queue, count, Rate.of(self._per_second, self._burst), within)
        now = self._now()
        assert waits == sorted(waits)
        assert len(waits) == count or (within is not None and len(waits) < count)
        assert within is None or all(wait <= within for wait in waits)
        self._releases += [now + wait for wait in waits]

    @rule(seconds=st.sampled_from([0.05, 1.0, 20.0]))
    def pass_time(self, seconds: float) -> None:
        self._pass_time(seconds)

    def teardown(self) -> None:
        ensure_within_rate(self._releases, self._per_second, self._burst, 1.0 + self._slack_ms)
