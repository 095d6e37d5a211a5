"""What every limiter must do. Subclass `LimiterContract` and give it a limiter whose clock a test moves or reads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

import pytest

from ringfence.ids import RandomIds
from ringfence.ports import Limiter
from ringfence.rate import Rate

SLACK_MS = 5
"""A limiter whose time goes on by itself moves so far between a call and the look at its clock."""


def ensure_within_rate(releases: Sequence[float], per_second: float, burst: int, slack_ms: float = 1.0) -> None:
    """Fail unless every window that starts and ends with a release holds at most rate · length + burst of them.

    Releases are whole milliseconds, rounded up, so that one may have moved towards the next by one.
    """
    ordered = sorted(releases)
    for first, start in enumerate(ordered):
        for last in range(first, len(ordered)):
            window_seconds = (ordered[last] - start + slack_ms) / 1_000
            assert last - first + 1 <= per_second * window_seconds + burst + 1e-6, (start, ordered[last])


class LimiterContract:
    """All that `ringfence.ports.Limiter` promises."""

    @pytest.fixture
    def limiter(self) -> Limiter:
        """One limiter; its state may be shared with other tests, for each takes a queue of its own."""
        raise NotImplementedError

    @pytest.fixture
    def now(self) -> Callable[[], float]:
        """The limiter's own time in milliseconds."""
        raise NotImplementedError

    @pytest.fixture
    def pass_time(self) -> Callable[[float], None]:
        """Lets so many seconds pass for the limiter."""
        raise NotImplementedError

    @pytest.fixture
    def queue(self) -> str:
        return RandomIds().job()

    def test_the_first_burst_goes_at_once_and_the_rest_at_the_rate(self, limiter: Limiter, queue: str) -> None:
        waits = limiter.reserve(queue, 6, Rate.of(2.0, 3))
        assert waits == [0, 0, 0, 500, 1_000, 1_500]

    def test_a_rate_below_one_a_second(self, limiter: Limiter, queue: str) -> None:
        assert limiter.reserve(queue, 3, Rate.of(0.2, 1)) == [0, 5_000, 10_000]

    def test_a_rate_whose_interval_is_no_whole_microsecond_is_never_exceeded(self, limiter: Limiter, queue: str) -> None:
        waits = limiter.reserve(queue, 301, Rate.of(300.0, 1))
        assert waits[300] == 1_001  # 3,334 nanoseconds short of 300 intervals would be too early
        ensure_within_rate(waits, 300.0, 1)

    def test_calls_add_up_to_one_schedule(
        self, limiter: Limiter, queue: str, now: Callable[[], float], pass_time: Callable[[float], None]
    ) -> None:
        rate, releases, stalled_ms = Rate.of(50.0, 5), list[float](), 0.0
        for count in (1, 7, 2, 20, 1):
            before = now()
            releases += [before + wait for wait in limiter.reserve(queue, count, rate)]
            stalled_ms = max(stalled_ms, now() - before)
            pass_time(0.05)
        assert len(releases) == 31
        ensure_within_rate(releases, 50.0, 5, slack_ms=2 * SLACK_MS + stalled_ms)

    def test_what_was_not_used_is_kept_up_to_a_burst(
        self, limiter: Limiter, queue: str, now: Callable[[], float], pass_time: Callable[[float], None]
    ) -> None:
        rate = Rate.of(20.0, 2)
        assert limiter.reserve(queue, 2, rate) == [0, 0]
        pass_time(0.2)
        before = now()
        assert limiter.reserve(queue, 3, rate)[:2] == [0, 0]
        assert limiter.reserve(queue, 1, rate)[0] > 50 - (now() - before)

    def test_only_what_falls_within_the_horizon_is_reserved(self, limiter: Limiter, queue: str) -> None:
        rate = Rate.of(1.0, 1)
        assert limiter.reserve(queue, 1_000, rate, within=3_000) == [0, 1_000, 2_000, 3_000]
        assert limiter.reserve(queue, 1_000, rate, within=3_000) == []
        (wait,) = limiter.reserve(queue, 1, rate)
        assert 4_000 - 1_000 < wait <= 4_000

    def test_a_wait_within_a_horizon_of_nothing_is_none(self, limiter: Limiter, queue: str) -> None:
        assert limiter.reserve(queue, 9, Rate.of(1.0, 4), within=0) == [0, 0, 0, 0]

    def test_queues_have_nothing_to_do_with_each_other(self, limiter: Limiter, queue: str) -> None:
        rate = Rate.of(1.0, 1)
        assert limiter.reserve(queue, 1, rate) == [0]
        assert limiter.reserve(queue + "x", 1, rate) == [0]

    def test_nothing_asked_is_nothing_reserved(self, limiter: Limiter, queue: str) -> None:
        assert limiter.reserve(queue, 0, Rate.of(1.0, 1)) == []
        assert limiter.reserve(queue, 1, Rate.of(1.0, 1)) == [0]

    def test_a_raised_rate_holds_at_once_and_for_what_follows_the_releases_given_out(
        self, limiter: Limiter, queue: str, now: Callable[[], float]
    ) -> None:
        before = now()
        slow = limiter.reserve(queue, 4, Rate.of(2.0, 1))
        fast = limiter.reserve(queue, 4, Rate.of(100.0, 1))
        assert slow == [0, 500, 1_000, 1_500]
        assert [wait - fast[0] for wait in fast] == [0, 10, 20, 30]
        stalled_ms = now() - before
        assert 1_500 - SLACK_MS - stalled_ms < fast[0] <= 1_510
        ensure_within_rate([*slow, *fast], 100.0, 1, slack_ms=SLACK_MS + stalled_ms)

    def test_a_raised_rate_shortens_what_a_burst_owes(self, limiter: Limiter, queue: str, now: Callable[[], float]) -> None:
        before = now()
        assert limiter.reserve(queue, 100, Rate.of(0.2, 100)) == [0] * 100
        (wait,) = limiter.reserve(queue, 1, Rate.of(100.0, 10))
        assert 910 - SLACK_MS - (now() - before) < wait <= 910, "not the 500 seconds that the old rate would have taken"

    def test_a_lowered_rate_is_not_outrun_by_what_the_higher_one_left(
        self, limiter: Limiter, queue: str, now: Callable[[], float]
    ) -> None:
        before = now()
        high = limiter.reserve(queue, 20, Rate.of(10.0, 20))
        low = limiter.reserve(queue, 5, Rate.of(1.0, 20))
        assert high == [0] * 20
        assert low[0] > 1_000 - 10 * (SLACK_MS + now() - before), "the burst is used up, at whatever rate"
        assert [wait - low[0] for wait in low] == [0, 1_000, 2_000, 3_000, 4_000]

    def test_relays_at_once_share_one_schedule(self, limiter: Limiter, queue: str, now: Callable[[], float]) -> None:
        rate, releases, stalls_ms = Rate.of(100.0, 10), list[float](), list[float]()

        def relay() -> None:
            for _ in range(10):
                asked_at = now()
                releases.extend(asked_at + wait for wait in limiter.reserve(queue, 3, rate))
                stalls_ms.append(now() - asked_at)

        relays = [threading.Thread(target=relay) for _ in range(4)]
        for thread in relays:
            thread.start()
        for thread in relays:
            thread.join()
        assert len(releases) == 120
        ensure_within_rate(releases, 100.0, 10, slack_ms=4 * SLACK_MS + max(stalls_ms))
