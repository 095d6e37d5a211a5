"""One thread takes all messages while jobs are short, and never for longer: no message waits behind a job that is not."""

from __future__ import annotations

import threading
import time
from collections import Counter

import pytest

from ringfence import Context

from .test_intake import asked_ahead
from .test_worker_feed import Served

THREADS = 4


@pytest.fixture(autouse=True)
def short_on_any_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringfence.crew.SHORT_SECONDS", 1.0)
    monkeypatch.setattr("ringfence.intake.FETCHED_SECONDS", 20.0)


def test_short_jobs_are_soon_run_by_one_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though they pause, so that the others would have their turns."""
    monkeypatch.setattr("ringfence.crew.STUCK_SECONDS", 20.0)
    threads: list[int] = []

    def code(ctx: Context) -> None:
        threads.append(threading.get_ident())
        time.sleep(0.0001)

    here, _ = asked_ahead(code, threads=THREADS, before=1_200)
    here.wait_done(1_200)
    here.end()
    (_, most), *_ = Counter(threads).most_common()
    assert most > 600, "a third of them, where all take turns"


def test_a_job_that_is_long_for_once_keeps_no_message_waiting() -> None:
    """The long one waits for one that comes after it."""
    started, next_started, in_time = 0, threading.Event(), False

    def code(ctx: Context) -> None:
        nonlocal started, in_time
        started += 1
        if started == 500:
            in_time = next_started.wait(10)
        elif started > 500:
            next_started.set()

    here, _ = asked_ahead(code, threads=THREADS, before=600)
    here.wait_done(600)
    here.end()
    assert in_time


def test_jobs_that_take_long_run_side_by_side_again() -> None:
    started, together = 0, threading.Barrier(THREADS, timeout=10)

    def code(ctx: Context) -> None:
        nonlocal started
        started += 1
        if started > 100:
            together.wait()

    here = Served(code, threads=THREADS, before=100 + 5 * THREADS)
    here.wait_done(100 + 5 * THREADS)
    here.end()
    assert not together.broken


def test_what_is_submitted_after_a_pause_finds_a_thread() -> None:
    here, _ = asked_ahead(lambda ctx: None, threads=THREADS)
    for count in (300, 600, 601, 602):
        here.submit(count - here.done)
        here.wait_done(count)
    here.end()
