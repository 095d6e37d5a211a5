"""A campaign on a test bed that is not atomic says so, and nothing about Ringfence. C47"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, cast

import pytest
from click.testing import CliRunner

from ringfence.local.dev import Dev

from . import __main__ as command
from . import bed as module
from .bed import Bed, Unsound

TWO_WINNERS = ["put-if-absent: 2 winners in round 0"]


class Checked(Bed):
    """A bed with nothing in it but what its check asks for."""

    def __init__(self) -> None:
        self.dev = cast("Dev", SimpleNamespace(endpoint=SimpleNamespace(kind="moto")))
        self.dynamodb = self.sqs = None


def test_c47_a_campaign_stops_where_two_writers_win(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[dict[str, int]] = []

    def anomalies(_dynamodb: Any, _sqs: Any, **size: int) -> list[str]:
        asked.append(size)
        return TWO_WINNERS

    monkeypatch.setattr(module, "anomalies", anomalies)
    with pytest.raises(Unsound, match=r"test bed unsound \(moto\): put-if-absent: 2 winners"):
        Checked().check()
    assert asked == [{"rounds": 60, "writers": 12, "messages": 200}]


def test_c47_its_exit_code_blames_the_bed(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextmanager
    def started(*_: Any, **__: Any) -> Iterator[Bed]:
        raise Unsound(f"test bed unsound: {TWO_WINNERS[0]}")
        yield Checked()

    monkeypatch.setattr(command, "started", started)
    monkeypatch.setattr(command.signal, "signal", lambda *_: None)
    result = CliRunner().invoke(command.faults, ["--minutes", "1"])
    assert result.exit_code == command.UNSOUND
    assert "test bed unsound" in result.stderr
    assert json.loads(result.stdout) == {"error": f"test bed unsound: {TWO_WINNERS[0]}", "exit_code": command.UNSOUND}
