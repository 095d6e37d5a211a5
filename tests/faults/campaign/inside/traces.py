"""Where the jobs of a campaign leave their traces, for them and for who reads them afterwards."""

from __future__ import annotations

from pathlib import Path

COUNTERS, LAST = "PackageTotals", "Modules"
"""Tables of the template: a counter for each submission's key, and the token of whoever wrote last."""

COUNTER_KEY = "package"

_SHARED, _PREFIX = 16, "shared-"

RUNS_VARIABLE = "CAMPAIGN_RUNS"
"""The folder where jobs without a row note that they ran."""


def runs_in(folder: Path) -> Path:
    """That folder, in the one of a campaign."""
    return folder / "runs"


def shared_counter(key: str) -> str:
    """The key of a counter to which many jobs of a campaign add, so that their transactions meet. Keys are ``seed-number``."""
    return f"{_PREFIX}{key.rpartition('-')[0]}-{sum(key.encode()) % _SHARED}"


def is_shared(key: str) -> bool:
    """Whether a counter's key is one of those."""
    return key.startswith(_PREFIX)


def is_of(seed: int, key: str) -> bool:
    """Whether a counter's key is of this campaign: others may have counted in the same tables."""
    return key.removeprefix(_PREFIX).startswith(f"{seed}-")
