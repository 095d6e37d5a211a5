"""Backoff: spread, capped, and never less than what was asked for (C44)."""

from __future__ import annotations

import random
from collections import Counter

from ringfence.retry import Backoff


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


def test_an_asked_minimum_is_honoured_and_still_spread() -> None:
    random_source = random.Random(7)
    delays = {Backoff().delay(1, random_source, at_least_seconds=60.0) for _ in range(100)}
    assert min(delays) >= 60.0
    assert len(delays) == 100


def test_a_negative_minimum_means_none() -> None:
    assert Backoff().delay(1, random.Random(7), at_least_seconds=-5.0) >= 0.0
