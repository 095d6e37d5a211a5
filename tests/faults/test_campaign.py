"""`make faults` in short: the same code, a few acts, on the system of these tests."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from ringfence.testing.dev_system import GATEWAY, RELAY, TIMERS, WORKER, DevSystem

from .campaign import load
from .campaign.acts import ACTS, Act, kill
from .campaign.bed import Bed
from .campaign.campaign import Campaign
from .campaign.inside.planted import PLANTED_VARIABLE
from .campaign.plan import Plan
from .campaign.reckoning import Reckoned, Summary
from .conftest import LEASE_SECONDS

SEED = 7

HAPPEN = {
    "a duplicate of an ended job collapsed",
    "an unreadable record was quarantined",
    "a foreign message was quarantined",
}
"""What the acts below lead to in every run; the rest depends on who was at what."""


def act(name: str) -> Act:
    return next(each for each in ACTS if each.name == name)


@pytest.mark.timeout(300)
def test_a_campaign_in_short_loses_and_doubles_nothing(system: DevSystem, campaign_folder: Path) -> None:
    each = [
        act("freeze-owner"),
        act("poison"),
        Act("kill", partial(kill, among=[GATEWAY, RELAY, TIMERS])),
        act("duplicate"),
        act("rewind-log"),
    ]
    summary, reckoned = run(system, campaign_folder, Plan(SEED, 3.5, **BRIEF, each=each, quiet_seconds=0.5))
    assert list(reckoned.wrong) == []
    assert summary.accepted > 0
    # Nobody can be frozen with a job where no worker holds one at that moment.
    assert set(summary.faults_by_act) | {"freeze-owner"} == {each.name for each in each}
    assert not HAPPEN & set(summary.never_happened)


def test_a_campaign_in_short_finds_a_bug_that_leaves_no_trace_but_in_the_history(
    system: DevSystem, campaign_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody dies here and no attempt fails, so nothing is lost with a message that was acknowledged too soon."""
    monkeypatch.setattr(load, "BRIEF", {"short": 1.0})
    system.dev.restart(WORKER, {PLANTED_VARIABLE: "acknowledge-first"})
    try:
        summary, reckoned = run(system, campaign_folder, Plan(SEED + 1, 0.5, **BRIEF, each=[], quiet_seconds=0.0))
    finally:
        system.dev.restart(WORKER)
    assert list(reckoned.wrong) == list(reckoned.other)
    assert summary.found_in_history.keys() == {"acknowledged_only_when_decided"}


BRIEF: dict[str, Any] = {"rate": 10.0, "brief": True, "pause_seconds": (0.1, 0.3)}


def run(system: DevSystem, folder: Path, plan: Plan) -> tuple[Summary, Reckoned]:
    bed = Bed(system.dev, folder, lease_seconds=LEASE_SECONDS)
    try:
        return Campaign(bed, plan, print, lambda _told: None).run()
    finally:
        bed.close()
