"""The campaign on trial: with each of its bugs planted in every process it says that something is wrong, and what."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.faults.campaign.inside.planted import PLANTS

ROOT = Path(__file__).parents[2]
WRONG = 1

TRIES = 3
"""Whether an owner is frozen at the right moment is a matter of luck."""


@dataclass(frozen=True, slots=True)
class Trial:
    """A campaign under which a bug shows. ``found_by`` are checkers of the history, or what the last line counts."""

    queues: str
    minutes: float
    acts: tuple[str, ...]
    found_by: frozenset[str]


TRIALS = {
    "complete-by-id": Trial("sqs", 1.5, ("freeze-owner",), frozenset({"ended_attempts_write_nothing"})),
    "two-writes": Trial("redis", 1.0, ("slow", "kill-owner"), frozenset({"doubled", "effects_land_once"})),
    "acknowledge-first": Trial("both", 0.2, ("kill-owner",), frozenset({"stuck", "acknowledged_only_when_decided"})),
    "checkpoint-past-push": Trial(
        "sqs", 0.4, ("fail-entries",), frozenset({"stuck", "the_checkpoint_passes_only_what_was_sent"})
    ),
    "trust-redis": Trial("redis", 0.3, ("empty-redis",), frozenset({"stuck"})),
}


@pytest.mark.timeout(900)
@pytest.mark.parametrize("plant", PLANTS)
def test_a_campaign_finds_what_is_planted(plant: str) -> None:
    trial = TRIALS[plant]
    for _ in range(TRIES):
        found = campaign(plant, trial)
        if trial.found_by <= found:
            return
    pytest.fail(f"{sorted(trial.found_by - found)} found nothing in {TRIES} campaigns; the last one found {sorted(found)}")


def campaign(plant: str, trial: Trial) -> set[str]:
    """The checkers that found something, and what else is counted."""
    acts = [option for act in trial.acts for option in ("--act", act)]
    options = ["--plant", plant, "--queues", trial.queues, "--minutes", str(trial.minutes), *acts]
    path = os.pathsep.join([str(ROOT / "tests"), *(each for each in sys.path if each)])
    run = subprocess.run(
        [sys.executable, "-m", "faults.campaign", *options],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        text=True,
    )
    told = json.loads(run.stdout)
    found = {name for name in ("lost", "doubled", "stuck", "other") if told[name]}
    assert run.returncode == (WRONG if found else 0)
    return {*found, *told["found_in_history"]}
