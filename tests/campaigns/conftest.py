"""What campaigns share. They take minutes and want the machine for themselves, so only `make campaign` runs them."""

from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.fixture
def tell(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Prints a figure, whatever pytest captures."""
    reporter = request.config.pluginmanager.get_plugin("terminalreporter")
    assert reporter is not None

    def write(line: str) -> None:
        reporter.ensure_newline()
        reporter.write_line(line)

    return write
