"""What campaigns share. They take minutes and want the machine for themselves, so only `make campaign` runs them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import pytest

_FIGURES = pytest.StashKey[dict[str, list[str]]]()
_STARTED = time.monotonic()


def _said(config: pytest.Config) -> dict[str, list[str]]:
    return config.stash.setdefault(_FIGURES, {})


@pytest.fixture
def tell(capsys: pytest.CaptureFixture[str]) -> Callable[[str], None]:
    """Says how far it is, at once, whatever pytest captures."""

    def write(line: str) -> None:
        minutes, seconds = divmod(round(time.monotonic() - _STARTED), 60)
        with capsys.disabled():
            sys.stdout.write(f"\n{minutes:3}:{seconds:02}  {line}")
            sys.stdout.flush()

    return write


@pytest.fixture
def figure(request: pytest.FixtureRequest, tell: Callable[[str], None]) -> Callable[[str], None]:
    """Tells what was measured; once more when all campaigns have ended."""
    lines = _said(request.config).setdefault(request.node.name, [])

    def write(line: str) -> None:
        tell(line)
        lines.append(line)

    return write


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for name, lines in _said(config).items():
        terminalreporter.section(name)
        for line in lines:
            terminalreporter.write_line(line)
