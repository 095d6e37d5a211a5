"""The core over the memory engines, but with its queue on a Redis that may lose it: whether every accepted job ends once."""

from __future__ import annotations

from collections import Counter

from ringfence.acceptance import Accepted, Submission
from ringfence.app import App
from ringfence.context import Context
from ringfence.job import State
from ringfence.redis.queue import RedisQueue
from ringfence.testing.system import MemorySystem


class RedisSystem(MemorySystem):
    """One queue, whose jobs are counted when they run. Its ledger outlives whatever happens to the Redis."""

    def __init__(self, queue: RedisQueue) -> None:
        """The queue must be called ``default``. The timers have looked at it once."""
        self.runs: Counter[str] = Counter()
        app = App()

        @app.job("count")
        def count(ctx: Context) -> None:
            self.runs[ctx.job_id] += 1

        super().__init__(app, queues=["default"], wrap=lambda name, port: queue if name == "queue:default" else port)
        self.timers.run()

    def accept(self, jobs: int) -> list[str]:
        """Submit so many, and push their tickets."""
        answers = self.gateway.submit("default", [Submission(name="count", payload="{}")] * jobs)
        if self.run_relay() is not None:
            raise AssertionError("Redis does not take the tickets")
        return [answer.job.job_id for answer in answers if isinstance(answer, Accepted)]

    def work(self) -> None:
        """Until nothing is visible."""
        while self.run_worker():
            pass

    def not_ended_once(self) -> dict[str, tuple[State, int, int]]:
        """State, token and runs of each job that was accepted and has not ended once, by its first run."""
        stand = {job.job_id: (job.state, job.token, self.runs[job.job_id]) for job in self.memory_ledger.all_jobs()}
        return {job_id: each for job_id, each in stand.items() if each != (State.SUCCEEDED, 1, 1)}
