"""What the parent of the worker processes does when the machine has no room for another one."""

from __future__ import annotations

import errno
import os

import pytest

from ringfence.process import supervisor
from ringfence.process.supervisor import Supervisor


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
    parent = Supervisor(lambda _file: 0, 2, 1.0, lambda *event: told.append(event))
    parent._start_missing()
    parent._start_missing()
    assert told == [("started", 101, ""), ("not_started", os.getpid(), "no room")]
    now = supervisor.PAUSE_SECONDS
    parent._start_missing()
    assert told[2:] == [("started", 102, "")]
