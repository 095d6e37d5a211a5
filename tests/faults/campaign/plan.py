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
    """Without the kinds of jobs that take a minute."""
