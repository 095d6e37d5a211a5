"""The limiter's contract, in memory and on DynamoDB; and what only DynamoDB's has to stand."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ringfence.aws.limiter import DynamoLimiter
from ringfence.errors import Unavailable
from ringfence.memory.clock import ManualClock
from ringfence.memory.limiter import MemoryLimiter
from ringfence.rate import Rate
from ringfence.testing.faults import inject, read_timeout, refused
from ringfence.testing.limiter_contract import LimiterContract, ensure_within_rate


class Restless(ManualClock):
    """Its sleepers wake at once, so that only the test moves the time."""

    def sleep(self, seconds: float) -> None:
        pass


@pytest.fixture
def clock() -> ManualClock:
    return Restless()


class ManualTime(LimiterContract):
    """On the clock of the test."""

    @pytest.fixture
    def now(self, clock: ManualClock) -> Callable[[], float]:
        return clock.now

    @pytest.fixture
    def pass_time(self, clock: ManualClock) -> Callable[[float], None]:
        return clock.advance


class TestMemoryLimiter(ManualTime):
    @pytest.fixture
    def limiter(self, clock: ManualClock) -> MemoryLimiter:
        return MemoryLimiter(clock)


class TestDynamoLimiter(ManualTime):
    @pytest.fixture
    def limiter(self, one_at_a_time: Any, clock: ManualClock) -> DynamoLimiter:
        return DynamoLimiter(one_at_a_time, "ledger", clock)


RATE = Rate.of(10.0, 2)


def test_two_processes_add_up_to_one_schedule(store: Any, clock: ManualClock) -> None:
    here, there = (DynamoLimiter(store.client, store.ledger_table, clock) for _ in range(2))
    assert here.reserve("default", 3, RATE) == [0, 0, 100]
    assert there.reserve("default", 2, RATE) == [200, 300]
    assert here.reserve("default", 1, RATE) == [400], "what this one had seen was out of date"


def test_a_reservation_costs_one_write_and_no_read(store: Any, clock: ManualClock) -> None:
    limiter = DynamoLimiter(store.client, store.ledger_table, clock)
    with inject(store.client, "GetItem", []) as reads, inject(store.client, "PutItem", []) as writes:
        for _ in range(5):
            limiter.reserve("default", 1, RATE)
    assert (reads.attempts, writes.attempts) == (0, 5)


def test_nothing_within_the_horizon_costs_nothing(store: Any, clock: ManualClock) -> None:
    limiter = DynamoLimiter(store.client, store.ledger_table, clock)
    limiter.reserve("default", 100, RATE)
    with inject(store.client, "PutItem", []) as writes:
        assert limiter.reserve("default", 5, RATE, within=1_000) == []
    assert writes.attempts == 0


def test_a_reply_that_was_lost_and_sent_again_by_the_sdk_reserves_once(store: Any, clock: ManualClock) -> None:
    """The SDK sends the very same put again, which then meets its own write."""
    limiter = DynamoLimiter(Twice(store.client), store.ledger_table, clock)
    assert limiter.reserve("default", 2, RATE) == [0, 0]
    assert limiter.reserve("default", 1, RATE) == [100]


class Twice:
    """A client that sends every put twice and tells only of the second, as the SDK does when the first reply was lost."""

    def __init__(self, client: Any) -> None:
        self._client = client

    def put_item(self, **request: Any) -> Any:
        self._client.put_item(**request)
        return self._client.put_item(**request)


def test_a_reply_that_stays_lost_is_unavailable_and_what_it_reserved_is_used_up(store: Any, clock: ManualClock) -> None:
    limiter = DynamoLimiter(store.client, store.ledger_table, clock)
    with inject(store.client, "PutItem", [read_timeout()]), pytest.raises(Unavailable):
        limiter.reserve("default", 2, RATE)
    assert limiter.reserve("default", 1, RATE) == [100]


def test_a_throttled_table_is_unavailable(store: Any, clock: ManualClock) -> None:
    limiter = DynamoLimiter(store.client, store.ledger_table, clock)
    with inject(store.client, "PutItem", [refused("ThrottlingException")]), pytest.raises(Unavailable):
        limiter.reserve("default", 2, RATE)


def test_whoever_never_wins_gives_up_in_the_end(store: Any, clock: ManualClock) -> None:
    other = DynamoLimiter(store.client, store.ledger_table, clock)

    class Slower:
        def put_item(self, **request: Any) -> Any:
            other.reserve("default", 1, RATE)
            return store.client.put_item(**request)

    with pytest.raises(Unavailable, match="too many"):
        DynamoLimiter(Slower(), store.ledger_table, clock).reserve("default", 1, RATE)


def test_a_clock_that_lags_ten_minutes_lets_nothing_leave_early(store: Any, clock: ManualClock) -> None:
    right = DynamoLimiter(store.client, store.ledger_table, clock)
    behind = DynamoLimiter(store.client, store.ledger_table, ManualClock(clock.now() - 600_000))
    releases: list[float] = []
    for limiter in (right, behind, right, behind):
        releases += limiter.reserve("default", 10, RATE)
    ensure_within_rate(releases, 10.0, 2)


def test_a_clock_that_runs_ahead_makes_the_others_wait(store: Any, clock: ManualClock) -> None:
    right = DynamoLimiter(store.client, store.ledger_table, clock)
    ahead = DynamoLimiter(store.client, store.ledger_table, ManualClock(clock.now() + 600_000))
    assert ahead.reserve("default", 2, RATE) == [0, 0]
    assert right.reserve("default", 1, RATE) == [600_100]


@settings(deadline=None, max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    steps=st.lists(st.tuples(st.integers(0, 3_000), st.integers(0, 12), st.sampled_from([None, 0, 500, 4_000])), max_size=25),
    rate=st.sampled_from([0.2, 0.7, 1.0, 3.0, 10.0, 333.0]),
    burst=st.integers(1, 9),
)
def test_no_window_ever_holds_more_than_the_rate_allows(
    steps: list[tuple[int, int, int | None]], rate: float, burst: int
) -> None:
    clock = ManualClock()
    limiter = MemoryLimiter(clock)
    releases: list[float] = []
    for pause_ms, count, within in steps:
        clock.advance(pause_ms / 1_000)
        waits = limiter.reserve("default", count, Rate.of(rate, burst), within)
        assert waits == sorted(waits)
        assert all(within is None or wait <= within for wait in waits)
        releases += [clock.now() + wait for wait in waits]
    assert releases == sorted(releases)
    ensure_within_rate(releases, rate, burst)


@settings(deadline=None, max_examples=100)
@given(
    steps=st.lists(
        st.tuples(st.integers(0, 2_000), st.integers(0, 12), st.sampled_from([0.5, 2.0, 9.0, 40.0]), st.integers(1, 6)),
        max_size=20,
    )
)
def test_nor_when_rate_and_burst_are_changed_meanwhile(steps: list[tuple[int, int, float, int]]) -> None:
    clock = ManualClock()
    limiter = MemoryLimiter(clock)
    releases: list[float] = []
    for pause_ms, count, rate, burst in steps:
        clock.advance(pause_ms / 1_000)
        releases += [clock.now() + wait for wait in limiter.reserve("default", count, Rate.of(rate, burst))]
    assert releases == sorted(releases)
    ensure_within_rate(releases, 40.0, 6)
