"""The parent of the worker processes: when the machine has no room for another one, and before there is any."""

from __future__ import annotations

import errno
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ringfence.process import supervisor
from ringfence.process.supervisor import StopSignals, Supervisor, fork


def test_a_process_that_cannot_be_started_is_told_and_tried_again_while_the_others_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[tuple[str, int, str]] = []
    starts: list[int | OSError] = [101, OSError(errno.EAGAIN, "no room"), 102]

    def fork(_run: object) -> int:
        start = starts.pop(0)
        if isinstance(start, OSError):
            raise start
        return start

    now = 0.0
    monkeypatch.setattr(supervisor, "fork", fork)
    monkeypatch.setattr(supervisor.time, "monotonic", lambda: now)
    parent = Supervisor(lambda _file: 0, 2, 1.0, lambda *event: told.append(event), StopSignals())
    parent._start_missing()
    parent._start_missing()
    assert told == [("started", 101, ""), ("not_started", os.getpid(), "no room")]
    now = supervisor.PAUSE_SECONDS
    parent._start_missing()
    assert told[2:] == [("started", 102, "")]


@pytest.fixture
def handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("handlers")
def test_a_stop_that_comes_while_the_app_is_tried_ends_in_good_order_and_starts_nothing() -> None:
    """A container's first process has no handler but its own: unheeded, the signal would be lost."""
    told: list[tuple[str, int, str]] = []
    stops = StopSignals()
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGTERM)).start()
    parent = Supervisor(lambda _file: 0, 2, 1.0, lambda *event: told.append(event), stops)
    assert parent.run(lambda: time.sleep(60) or 0) == 0  # type: ignore[func-returns-value]
    assert told == []


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize("ends", ["killed", "refuses"])
def test_an_app_that_cannot_be_tried_is_told(ends: str) -> None:
    told: list[tuple[str, int, str]] = []

    def probe() -> int:
        if ends == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        return 1

    parent = Supervisor(lambda _file: 0, 2, 1.0, lambda *event: told.append(event), StopSignals())
    assert parent.run(probe) == 1
    assert [detail for _, _, detail in told] == (["signal 9, while it tried to load the app"] if ends == "killed" else [])


@pytest.mark.usefixtures("handlers")
@pytest.mark.parametrize(("ends", "code"), [("well", 0), ("before it began", 0), ("badly", 1), ("killed", 1)])
def test_a_stop_ends_well_if_every_process_does(ends: str, code: int) -> None:
    def child(_file: object) -> int:
        if ends == "killed":
            signal.signal(signal.SIGTERM, lambda *_: os.kill(os.getpid(), signal.SIGKILL))
        elif ends != "before it began":
            signal.signal(signal.SIGTERM, lambda *_: os._exit(4 if ends == "badly" else 0))
        os.kill(os.getppid(), signal.SIGTERM)  # its parent's, once it is ready for its own
        time.sleep(60)
        return 0

    told: list[tuple[str, int, str]] = []
    assert Supervisor(child, 1, 20.0, lambda *event: told.append(event), StopSignals()).run(lambda: 0) == code
    assert [event for event, _, _ in told] == ["started", "ended"]


def test_what_a_process_has_printed_into_a_file_is_there_when_it_has_ended_and_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "output"
    with file.open("w") as output:  # in blocks, as Python writes whatever is no terminal
        monkeypatch.setattr(sys, "stdout", output)
        output.write("before; ")
        pid = fork(lambda: 0 if output.write("in the process; ") else 1)
        os.waitpid(pid, 0)
        output.write("after")
    assert file.read_text() == "before; in the process; after"
