"""What a campaign is to do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .acts import Act


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done to the bed: any act by chance, or ``only`` some; or ``each`` of these in turn, once."""

    seed: int
    seconds: float
    rate: float
    """Jobs a second that clients ask for."""
    only: Sequence[Act] | None = None
    each: Sequence[Act] | None = None
    brief: bool = False
    """Only kinds of jobs that end soon."""
    quiet_seconds: float = 3.0
    """Load without faults at the beginning: what does not work by itself is no victim of any."""
    pause_seconds: tuple[float, float] = (0.5, 4.0)
    """The shortest and the longest pause between two acts."""
    stalled_seconds: float = 180.0
    """A drain in which nothing has ended for so long is given up: three times what a message may be hidden."""
