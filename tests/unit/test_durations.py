"""Durations as people write them, in code and on the command line."""

from __future__ import annotations

import click
import pytest

from ringfence import App, Context
from ringfence.cli.duration_option import DURATION
from ringfence.durations import seconds_of

READ = [
    ("10", 10), ("1.5", 1.5), ("30s", 30), ("250ms", 0.25), ("1.5m", 90), ("2h", 7_200), ("7d", 604_800), ("1h30m", 5_400),
    ("1d12h", 129_600), (" 5s ", 5), (5, 5), (0.5, 0.5),
]  # fmt: skip
REFUSED = ["", " ", "s", "-1s", "-1", "1w", "1e3", "nan", "inf", "1 2s", "5 s", "3 H", "3H", "0x10", "2m!", "1h30", "½h"]


@pytest.mark.parametrize(("written", "seconds"), READ)
def test_durations_are_read(written: str | float, seconds: float) -> None:
    assert seconds_of(written) == pytest.approx(seconds)
    assert DURATION.convert(written, None, None) == pytest.approx(seconds)


@pytest.mark.parametrize("written", REFUSED)
def test_what_is_no_duration_is_refused(written: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        seconds_of(written)
    with pytest.raises(click.BadParameter, match="not a duration"):
        DURATION.convert(written, None, None)


def test_a_job_says_its_lease_and_timeout_in_the_same_way() -> None:
    app = App()

    @app.job("report", lease="1m30s", timeout="1h")
    def report(ctx: Context) -> None: ...

    assert (app.jobs["report"].lease_seconds, app.jobs["report"].timeout_seconds) == (90, 3_600)
