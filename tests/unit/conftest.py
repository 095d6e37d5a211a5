"""What holds for every unit test."""

import pytest


@pytest.fixture(autouse=True)
def nothing_runs_elsewhere(no_emulator_given: None) -> None:
    """No unit test needs more than its own process and its children."""
