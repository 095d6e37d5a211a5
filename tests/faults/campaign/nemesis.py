"""Hurts the bed by chance, from a seed: first each act once, in some order, then any of them, some of them at the same time,
rather those whose interesting events have not happened yet; or by a list."""

from __future__ import annotations

import heapq
import itertools
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence

from redis.exceptions import RedisError

from ringfence.errors import RingfenceError

from .acts import Act, Lasting, Stage, acts_for
from .plan import Plan

MOST_LASTING = 3
"""Acts that go on at the same time."""

EAGER = 5.0
"""So many times its weight has an act while something that it leads to has not happened."""

LOOK_SECONDS = 0.1


class Nemesis:
    """For the thread that started the bed: what she starts ends with it. ``missing`` names what has not happened so far."""

    def __init__(self, stage: Stage, plan: Plan, say: Callable[[str], None], missing: Callable[[], Collection[str]]) -> None:
        self._stage, self._plan, self._say, self._missing = stage, plan, say, missing
        self._pauses = threading.Event()
        self._lasting: list[tuple[float, int, Lasting]] = []
        self._numbers = itertools.count()
        self.faults: Counter[str] = Counter()
        """Acts that hurt, by name."""

    def run(self, seconds: float, tick: Callable[[], None]) -> None:
        """Until the time is up; then everything is undone. ``tick`` is called now and then."""
        until = time.monotonic() + seconds
        for act in self._order():
            if not self._wait(until, self._stage.rng.uniform(*self._plan.pause_seconds), tick):
                break
            self._do(act)
        self._wait(until, seconds, tick)
        while self._lasting:
            heapq.heappop(self._lasting)[2].undo()

    def _do(self, act: Act) -> None:
        try:
            said, lasting = act.do(self._stage)
        except (RingfenceError, RedisError) as fault:
            self._say(f"{act.name} was not possible: {fault}")
            return
        if act.hurts:
            self.faults[act.name] += 1
        self._say(said)
        if lasting is not None:
            heapq.heappush(self._lasting, (time.monotonic() + lasting.seconds, next(self._numbers), lasting))

    def _order(self) -> Iterator[Act]:
        if self._plan.each is not None:
            return iter(self._plan.each)
        rng, acts = self._stage.rng, self._plan.only or acts_for(self._stage.bed)
        first = rng.sample(acts, len(acts))
        return itertools.chain(first, (rng.choices(acts, self._weights(acts))[0] for _ in itertools.count()))

    def _weights(self, acts: Sequence[Act]) -> list[float]:
        missing = set(self._missing())
        return [act.weight * (EAGER if missing.intersection(act.leads_to) else 1.0) for act in acts]

    def _wait(self, until: float, pause_seconds: float, tick: Callable[[], None]) -> bool:
        """False when the time is up."""
        next_at = time.monotonic() + pause_seconds
        while True:
            now = time.monotonic()
            while self._lasting and self._lasting[0][0] <= now:
                heapq.heappop(self._lasting)[2].undo()
            if now >= until:
                return False
            if now >= next_at and len(self._lasting) < MOST_LASTING:
                return True
            tick()
            self._pauses.wait(LOOK_SECONDS)
