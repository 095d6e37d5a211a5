"""What holds for the benchmark's own tests."""

import pytest


@pytest.fixture(autouse=True)
def nothing_runs_elsewhere(no_emulator_given: None) -> None:
    """They count on moto in their own process."""
