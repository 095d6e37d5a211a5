"""`make faults` in short: the same code, a few acts, on the system of these tests."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from ringfence.testing.dev_system import GATEWAY, RELAY, TIMERS, DevSystem

from .campaign.acts import ACTS, Act, kill
from .campaign.bed import Bed
from .campaign.campaign import Campaign
from .campaign.plan import Plan
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
        act("poison"),
        Act("kill", partial(kill, among=[GATEWAY, RELAY, TIMERS])),
        act("freeze-owner"),
        act("duplicate"),
        act("rewind-log"),
    ]
    plan = Plan(SEED, 4.0, rate=10.0, each=each, brief=True, quiet_seconds=1.0, pause_seconds=(0.1, 0.3))
    bed = Bed(system.dev, campaign_folder, lease_seconds=LEASE_SECONDS)
    try:
        summary, reckoned = Campaign(bed, plan, print, lambda _told: None).run()
    finally:
        bed.close()
    assert list(reckoned.wrong) == []
    assert summary.accepted > 0
    # Nobody can be frozen with a job where no worker holds one at that moment.
    assert set(summary.faults_by_act) | {"freeze-owner"} == {each.name for each in each}
    assert not HAPPEN & set(summary.never_happened)
