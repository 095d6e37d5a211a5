"""Made-up input for a share of the time that all fuzzing has, with a fresh seed every round.

``RINGFENCE_FUZZ_SECONDS`` is how long all tests marked ``fuzz`` take together, by the clock on the wall (60 by default; xdist's
workers do not multiply it); ``RINGFENCE_FUZZ_SEED`` plays one round again.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import hypothesis
import pytest
from hypothesis import HealthCheck, Phase
from hypothesis.strategies import SearchStrategy

DEFAULT_SECONDS = 60.0
EXAMPLES_PER_ROUND = 25
"""Between two looks at the clock."""


@dataclass(frozen=True)
class Fuzz:
    """Runs one test's rounds. ``seconds``: its share of the time."""

    test: str
    seconds: float
    seed: int | None = None

    @classmethod
    def of(cls, request: pytest.FixtureRequest) -> Fuzz:
        """An even share of the time for each of the marked tests of this session."""
        marked = sum(item.get_closest_marker("fuzz") is not None for item in request.session.items)
        seed = os.environ.get("RINGFENCE_FUZZ_SEED")
        whole = float(os.environ.get("RINGFENCE_FUZZ_SECONDS") or DEFAULT_SECONDS)
        return cls(request.node.nodeid, whole / marked, None if seed is None else int(seed))

    def __call__(self, inputs: SearchStrategy[Any], check: Callable[[Any], None]) -> None:
        """Let ``check`` look at inputs until the time is up; at one round of them at least."""
        ends = time.monotonic() + self.seconds
        while True:
            seed = random.SystemRandom().getrandbits(32) if self.seed is None else self.seed
            # Shown by pytest when the round fails, or does not end.
            print(f"again: RINGFENCE_FUZZ_SEED={seed} python -m pytest '{self.test}'")  # noqa: T201
            self._round(seed, inputs, check)
            if self.seed is not None or time.monotonic() >= ends:
                return

    def _round(self, seed: int, inputs: SearchStrategy[Any], check: Callable[[Any], None]) -> None:
        @hypothesis.seed(seed)
        @hypothesis.settings(
            max_examples=EXAMPLES_PER_ROUND,
            deadline=None,
            database=None,
            derandomize=False,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        )
        @hypothesis.given(inputs)
        def examples(made_up: Any) -> None:
            check(made_up)

        examples()
