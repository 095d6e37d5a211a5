"""The horizon of the pace in `ringfence dev`: a changed rate is felt as soon as its timers allow."""

from __future__ import annotations

import pytest

from ringfence.local.horizon import horizon_variable
from ringfence.settings import Settings

NEEDED = {"RINGFENCE_LEDGER_TABLE": "t", "RINGFENCE_STREAM": "s"}


@pytest.mark.parametrize(("every", "horizon"), [(None, 120), (0.1, 5), (1, 5), (10, 20), (60, 120), (3_600, 900)])
def test_it_is_twice_the_period_of_the_timers_within_what_is_sensible(every: float | None, horizon: float) -> None:
    assert Settings.from_environment({**NEEDED, **horizon_variable(every)}).pace_horizon_seconds == horizon
