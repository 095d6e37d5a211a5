"""Backoff: spread, capped, and never less than what was asked for (C44)."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from ringfence.memory.clock import ManualClock
from ringfence.retry import Backoff, Pauses


def test_c44_a_thousand_failures_spread_over_their_window() -> None:
    random_source = random.Random(7)
    delays = [Backoff(base_seconds=10.0).delay(4, random_source) for _ in range(1_000)]
    assert max(delays) <= 80.0
    assert max(Counter(int(delay) for delay in delays).values()) <= 50


def test_c12_the_delay_is_capped_and_finite_for_every_attempt() -> None:
    random_source = random.Random(7)
    backoff = Backoff(base_seconds=1.0, cap_seconds=900.0)
    assert [backoff.ceiling(attempt) for attempt in (0, 1, 2, 3, 10, 11, 40, 10_000)] == [1, 1, 2, 4, 512, 900, 900, 900]
    assert all(0.0 <= backoff.delay(attempt, random_source) <= 900.0 for attempt in range(1, 200))


@pytest.mark.parametrize("attempt", [1, 4, 20, 60])
@pytest.mark.parametrize("asked_seconds", [0.0, 60.0])
def test_c44_after_any_attempt_a_thousand_come_back_spread_and_not_before_they_were_asked_to(
    attempt: int, asked_seconds: float
) -> None:
    random_source = random.Random(7)
    backoff = Backoff(base_seconds=40.0, cap_seconds=300.0)
    delays = [backoff.delay(attempt, random_source, at_least_seconds=asked_seconds) for _ in range(1_000)]
    assert min(delays) >= asked_seconds
    assert max(delays) <= asked_seconds + 300.0
    assert max(Counter(int(delay) for delay in delays).values()) <= 50


def test_c44_an_asked_minimum_is_honoured_and_still_spread() -> None:
    random_source = random.Random(7)
    delays = {Backoff().delay(1, random_source, at_least_seconds=60.0) for _ in range(100)}
    assert min(delays) >= 60.0
    assert len(delays) == 100


def test_a_negative_minimum_means_none() -> None:
    assert Backoff().delay(1, random.Random(7), at_least_seconds=-5.0) >= 0.0


def test_tries_end_when_they_are_used_up() -> None:
    clock = ManualClock()
    pauses = Pauses(Backoff(base_seconds=1.0), clock, random.Random(7), tries=3)
    assert [pauses.another_try() for _ in range(4)] == [True, True, False, False]
    slept = clock.monotonic()
    assert 0.0 < slept <= 1.0 + 2.0
    assert pauses.failed == 4


def test_tries_end_before_a_pause_that_would_outlast_the_time() -> None:
    clock = ManualClock()
    pauses = Pauses(Backoff(base_seconds=8.0, cap_seconds=8.0), clock, random.Random(7), seconds=30.0)
    while pauses.another_try():
        assert clock.monotonic() <= 30.0
    assert pauses.failed > 4
    assert 22.0 <= clock.monotonic() <= 30.0


def test_a_pause_is_as_long_as_was_asked_for_or_is_not_made() -> None:
    clock = ManualClock()
    pauses = Pauses(Backoff(base_seconds=0.0), clock, random.Random(7), seconds=5.0)
    assert pauses.another_try(at_least_seconds=4.0)
    assert clock.monotonic() == 4.0
    assert not pauses.another_try(at_least_seconds=2.0)
    assert clock.monotonic() == 4.0


def test_the_pauses_that_the_readme_promises() -> None:
    def most(backoff: Backoff, attempts: int) -> float:
        return sum(backoff.ceiling(attempt) for attempt in range(1, attempts))

    assert most(Backoff(), 5) == 15  # seconds
    assert most(Backoff(base_seconds=30), 10) // 60 == 75  # minutes
