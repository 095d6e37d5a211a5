"""Thousands of lives of the real core, every one of them again at will; and bugs that the checkers must not miss."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
import os
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from .bug import Bug
from .checkers import CHECKERS
from .planted import BUGS
from .run import live, main, plan_of, report, run
from .scheduler import Process, Scheduler, TimeStandsStill, taking_turns

ROOT = Path(__file__).parents[2]
SEEDS, AT_ONCE = 2_000, 100
SEEDS_PER_BUG = 150

INTERESTING = {
    "asked ahead", "asked to stop", "carried_jobs_succeeded", "claim_finished", "crashed", "cut off", "frozen",
    "heartbeat_failed", "invoked", "job_cancelled", "job_dead", "job_early", "job_handed_over", "job_held", "job_repeated",
    "job_retried", "job_succeeded", "jobs_parked", "late_write_refused", "lease_lost", "mark_released", "memory lost",
    "paused at a lock", "push_failed", "queue_unreachable", "record_quarantined", "refused", "repair_finished", "stood by",
    "ticket_quarantined", "tickets_renewed", "timers_held",
}  # fmt: skip
"""What a hundred lives must have seen, or they were too calm to prove anything."""


@pytest.fixture(autouse=True)
def _taking_turns() -> Iterator[None]:
    with taking_turns():
        yield


@pytest.mark.parametrize("first", range(0, SEEDS, AT_ONCE))
def test_everything_holds_in_every_life(first: int) -> None:
    told = Counter[str]()
    for seed, told_in_it, held in live(range(first, first + AT_ONCE)):
        if not held:
            pytest.fail(report(plan_of(seed)), pytrace=False)
        told.update(told_in_it)
    assert INTERESTING - told.keys() == set()


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_is_caught_by_each_checker_that_must_see_it(bug: Bug) -> None:
    missing, seen = set(bug.caught_by), set[str]()
    for seed in range(SEEDS_PER_BUG):
        with bug.planted():
            _, found = run(bug.plan(seed), bug.parts())
        seen |= found.keys()
        if caught := found.keys() & missing:
            assert not caught & run(bug.plan(seed))[1].keys(), "without the bug the same life holds"
            missing -= caught
        if not missing:
            return
    pytest.fail(f"{bug.name}: {SEEDS_PER_BUG} lives, not seen by {sorted(missing)}, but by {sorted(seen) or 'nobody'}")


def test_each_checker_has_a_bug_that_it_alone_must_see() -> None:
    alone = {bug.caught_by[0] for bug in BUGS if len(bug.caught_by) == 1}
    assert {checker.__name__ for checker in CHECKERS} - alone == set()


def test_the_readme_links_each_promise_to_its_checkers_and_names_them_all() -> None:
    table = (ROOT / "README.md").read_text().partition("| promised | guarded by |\n")[2].partition("\n\n")[0]
    links = re.findall(r"\[(`[^]]*`)\]\((tests/simulator/\w+\.py)\)", table)
    named = {(name, ROOT / path) for names, path in links for name in re.findall(r"`(\w+)`", names)}
    assert named == {(checker.__name__, Path(inspect.getfile(checker))) for checker in CHECKERS}


def test_pauses_at_locks_show_what_no_other_life_does() -> None:
    bug = next(bug for bug in BUGS if "under the lock twice" in bug.name)
    plans = [bug.plan(seed) for seed in range(SEEDS_PER_BUG)]
    seen_in = next(plan for plan in plans if run(plan, bug.parts())[1])
    assert not run(dataclasses.replace(seen_in, pause_share=0.0), bug.parts())[1]


def lives() -> str:
    """Some histories, as text."""
    return "".join(run(plan_of(seed))[0].history.told(10**6) for seed in (3, 7, 11))


def test_a_seed_is_a_life_in_every_process_whatever_its_hashes() -> None:
    here = hashlib.sha256(lives().encode()).hexdigest()
    program = (
        "from tests.simulator.test_simulator import *\nwith taking_turns(): print(hashlib.sha256(lives().encode()).hexdigest())"
    )
    path = os.pathsep.join([str(ROOT), *(each for each in sys.path if each)])
    for hashes in ("1", "2"):
        there = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hashes, "PYTHONPATH": path},
            capture_output=True,
            text=True,
            timeout=100,
            check=True,
        )
        assert there.stdout.strip() == here


def test_a_failing_life_is_told_as_short_as_it_goes_and_with_the_way_to_it(capsys: pytest.CaptureFixture[str]) -> None:
    bug = next(bug for bug in BUGS if bug.name == "moves the checkpoint past what failed")
    failing = next(seed for seed in range(SEEDS_PER_BUG) if run(plan_of(seed), bug.parts())[1])
    strikes = len(run(plan_of(failing), bug.parts())[0].history.strikes)
    told = report(plan_of(failing), bug.parts())
    assert f"seed {failing} fails" in told
    shown = told.partition("these strikes:")[2].partition("\n ")[2].count("  call ") + 1
    assert shown < max(strikes, 2)
    command = told.rpartition("again: python -m tests.simulator ")[2]
    assert main(command.split(), bug.parts()) == 1, "the command has it again"
    again = capsys.readouterr().out
    assert f"seed {failing} fails" in again
    assert all(checker in again for checker in bug.caught_by)
    assert main(command.split()) == 0, "without the bug the same life holds"
    assert "everything held" in capsys.readouterr().out


def test_what_fails_without_any_strike_is_told_so_and_fails_so_again(capsys: pytest.CaptureFixture[str]) -> None:
    bug = next(bug for bug in BUGS if bug.name == "acknowledges before the commit")
    told = report(plan_of(0), bug.parts())
    command = told.rpartition("again: python -m tests.simulator ")[2]
    assert command.endswith("--strikes none")
    assert main(command.split(), bug.parts()) == 1
    assert "with 1 jobs and these strikes:\n\n" in capsys.readouterr().out


IN_PROCESSES = """
import multiprocessing, os, signal, sys
from tests.simulator import run
from tests.simulator.planted import BUGS

multiprocessing.set_start_method("fork")  # a planted bug is in all of them then
run.FEWEST_TRIES, run.SEEDS_TOGETHER = 0, 2
each_done = run.as_completed

def interrupted(parts):
    os.kill(os.getpid(), signal.SIGINT)
    return each_done(parts)

run.as_completed = interrupted
try:
    run.main(["--seeds", "10_000", "--processes", "2"])
except KeyboardInterrupt:
    print("interrupted", multiprocessing.active_children())
run.as_completed = each_done
print("ended with", run.main(["--seeds", "6", "--processes", "2"]))
with next(bug for bug in BUGS if bug.name == "lets retries be visible at once").planted():
    print("ended with", run.main(["--seeds", "10_000", "--processes", "2"]))
"""


def test_many_lives_in_several_processes_end_with_the_first_that_fails_and_with_an_interrupt() -> None:
    ended = subprocess.run(
        [sys.executable, "-c", IN_PROCESSES],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *(each for each in sys.path if each)])},
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    assert ended.stderr == ""
    interrupted, held, *_, failed = ended.stdout.splitlines()
    assert interrupted == "interrupted []"
    assert held.startswith("6 seeds held, ")
    assert "ended with 0" in ended.stdout
    assert " fails:\n  nothing_starts_early: " in ended.stdout
    assert "again: python -m tests.simulator --seed " in ended.stdout
    assert failed == "ended with 1"


def test_a_life_in_which_time_stands_still_ends() -> None:
    scheduler, process = Scheduler(), Process("restless")

    def waits_for_nothing() -> None:
        while not scheduler.fallen:
            scheduler.sleep(0.0)

    for _ in range(2):
        scheduler.spawn(process, waits_for_nothing)
    scheduler.run(1.0)
    assert [type(raised) for _, raised in scheduler.fallen] == [TimeStandsStill]
    scheduler.end()
