"""lease → claim → run under a heartbeat → commit → acknowledge: the same core in Lambda and in a process.

One message: `attempt` takes it and runs its job, `settle` carries out what that came to. Many: the threads of `crew`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ringfence.app import App
from ringfence.attempt import Taker
from ringfence.company import Company
from ringfence.crew import Crew
from ringfence.intake import Feed
from ringfence.lease import Heartbeat
from ringfence.ports import Lease, Queue, Services


class Worker:
    """Runs the jobs of one `App`, ``threads`` at once in each batch."""

    def __init__(
        self,
        app: App,
        services: Services,
        *,
        name: str,
        threads: int,
        lease_seconds: float,
        heartbeat: type[Heartbeat] = Heartbeat,
        company: Company | None = None,
    ) -> None:
        """``company`` is shared by all the workers of a process."""
        self.app, self.services, self.name, self.threads, self.heartbeat = app, services, name, threads, heartbeat
        self._company = company or Company(services.clock)
        self._taker = Taker(name, app.jobs, lease_seconds, services)

    def handle(
        self, queue: Queue, leases: Sequence[Lease], remaining_seconds: Callable[[], float] = lambda: float("inf")
    ) -> list[Lease]:
        """Decide every message of a batch. Returns those that may be acknowledged; the others were released or are lost.

        ``remaining_seconds`` says how long this invocation may still take.
        """
        crew = Crew(
            self._taker, queue, self.threads, self.heartbeat, self._company, leases=leases, remaining_seconds=remaining_seconds
        )
        return crew.run()

    def serve(self, queue: Queue, feed: Feed) -> None:
        """Take messages from a feed and decide them, until it stops; then let what runs end within its time, hand over what
        does not, and give back what was not started."""
        crew = Crew(
            self._taker, queue, self.threads, self.heartbeat, self._company, remaining_seconds=feed.remaining_seconds, feed=feed
        )
        crew.run()
