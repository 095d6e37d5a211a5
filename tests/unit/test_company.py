"""Who waits for whom in a process: a job that may kill its worker runs alone, and keeps nobody out for long."""

from __future__ import annotations

import threading

import pytest

from ringfence.company import LATER_SECONDS, MOST_LOOKS, Company
from ringfence.memory.clock import ManualClock


def go_on() -> bool:
    return False


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringfence.company.LOOK_SECONDS", 0.01)


def test_somebody_alone_keeps_newcomers_out_until_it_leaves() -> None:
    company = Company(ManualClock())
    suspect = company.enter(go_on)
    assert suspect is not None
    assert suspect.be_alone(go_on)
    entered = threading.Event()
    threading.Thread(target=lambda: company.enter(go_on) and entered.set(), daemon=True).start()
    assert not entered.wait(0.05)
    suspect.leave()
    assert entered.wait(5)


def test_where_others_take_long_whoever_would_be_alone_comes_back_later_and_the_next_waits_for_nobody() -> None:
    clock = ManualClock()
    company = Company(clock)
    long_one, suspect, another = (company.enter(go_on) for _ in range(3))
    assert long_one is not None
    assert suspect is not None
    assert another is not None
    another.leave()
    assert not suspect.be_alone(go_on)
    assert company.enter(go_on) is not None, "nobody is kept out any more"

    next_suspect = Company.enter(company, go_on)
    assert next_suspect is not None
    tried = 0

    def given_up() -> bool:
        nonlocal tried
        tried += 1
        return False

    assert not next_suspect.be_alone(given_up)
    assert tried == 0, "it has not waited at all"
    clock.advance(LATER_SECONDS)
    assert not next_suspect.be_alone(given_up)
    assert tried > 0


def test_where_nobody_is_it_may_be_alone_at_once_whatever_was_before() -> None:
    company = Company(ManualClock())
    long_one, suspect = company.enter(go_on), company.enter(go_on)
    assert long_one is not None
    assert suspect is not None
    assert not suspect.be_alone(go_on)
    long_one.leave()
    assert suspect.be_alone(go_on)


def test_those_who_leave_one_after_another_use_up_nobodys_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ringfence.company.LOOK_SECONDS", 30.0)  # nobody looks in vain
    company = Company(ManualClock())
    suspect, *others = (company.enter(go_on) for _ in range(MOST_LOOKS + 6))
    assert suspect is not None
    looked = threading.Semaphore(0)
    entered, alone = threading.Event(), threading.Event()

    def look() -> bool:
        looked.release()
        return False

    def wait_to_enter() -> None:
        if company.enter(look) is not None:
            entered.set()

    def wait_to_be_alone() -> None:
        if suspect.be_alone(look):
            alone.set()

    for wait in (wait_to_be_alone, wait_to_enter):
        threading.Thread(target=wait, daemon=True).start()
        assert looked.acquire(timeout=5)
    *earlier, last = others
    for other in earlier:
        assert other is not None
        other.leave()
        assert looked.acquire(timeout=5)
        assert looked.acquire(timeout=5)
    assert last is not None
    last.leave()
    assert alone.wait(5)
    assert not entered.is_set()
    suspect.leave()
    assert entered.wait(5)
