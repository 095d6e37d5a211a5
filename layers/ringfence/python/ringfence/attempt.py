"""One attempt at one message, without the threads around it: taken (claimed, if its job has a row), then its code run.

What the code came to is carried out by `settle`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from ringfence.app import JobSpec
from ringfence.carried import Carried, give_row
from ringfence.claim import Claimant, Claimed, bury_poison, claim
from ringfence.context import Context, encode_text
from ringfence.effects import Effect
from ringfence.errors import Death, Poisoned
from ringfence.outcome import Disposition, Done, Outcome, outcome_of
from ringfence.ownership import Ownership
from ringfence.ports import Lease, Queue, Services
from ringfence.retry import Backoff
from ringfence.wire import Ticket, decode_ticket

NAMES_TOLD = 10
"""As many registered names as an unknown one is answered with."""


def read_ticket(lease: Lease) -> Ticket | Poisoned:
    """What the message says, or what is wrong with it."""
    try:
        return decode_ticket(lease.body)
    except Poisoned as fault:
        return fault


def name_of(ticket: Ticket | Poisoned) -> str | None:
    """The job's registered name, if the message tells it."""
    return ticket.name if isinstance(ticket, Ticket) else None


@dataclass(frozen=True, slots=True)
class Taker:
    """Who takes messages, and what it can run. ``lease_seconds`` is the lease of jobs that have none of their own."""

    worker: str
    jobs: Mapping[str, JobSpec]
    lease_seconds: float
    services: Services

    def lease_seconds_for(self, name: str | None) -> float:
        """The lease of a job by its name; the longest of all when the name is not told."""
        if name is None:
            return max([self.lease_seconds, *(spec.lease_seconds or 0.0 for spec in self.jobs.values())])
        spec = self.jobs.get(name)
        return self.lease_seconds if spec is None or spec.lease_seconds is None else spec.lease_seconds

    @property
    def shortest_lease_seconds(self) -> float:
        """Of all jobs."""
        return min([self.lease_seconds, *(spec.lease_seconds or self.lease_seconds for spec in self.jobs.values())])

    def with_lease_seconds(self, messages: Iterable[tuple[Lease, Ticket | Poisoned]]) -> list[tuple[Lease, float]]:
        """Each message's lease with its length."""
        return [(lease, self.lease_seconds_for(name_of(ticket))) for lease, ticket in messages]

    def timeout_seconds_for(self, name: str | None) -> float:
        """The timeout of a job by its name; the longest of all when the name is not known."""
        spec = self.jobs.get(name) if name is not None else None
        return spec.timeout_seconds if spec else max((spec.timeout_seconds for spec in self.jobs.values()), default=0.0)

    def take(
        self,
        queue: Queue,
        lease: Lease,
        ticket: Ticket | Poisoned,
        be_alone: Callable[[], bool] = lambda: True,
        is_over: Callable[[], bool] = lambda: False,
    ) -> Ownership | Carried | Disposition:
        """The hold on a job that is to run here; or what happens to the message instead.

        ``be_alone`` waits until nothing else runs in this process, before a job is claimed that may kill it; ``is_over`` says
        whether it is too late to claim any.
        """
        if isinstance(ticket, Poisoned):
            return bury_poison(lease, ticket, self.services)
        lease_seconds = self.lease_seconds_for(ticket.name)
        if ticket.payload is not None:
            carried = Carried(ticket, lease, self._spec(ticket.name or ""), lease_seconds, queue, self.services)
            return give_row(carried, self.services) if carried.may_kill_its_worker else carried
        known = None if ticket.name is None else self.jobs.get(ticket.name)
        claimant = Claimant(self.worker, ticket, lease, lease_seconds, None if known is None else known.max_attempts)
        claimed = claim(claimant, self.services, be_alone, is_over)
        if not isinstance(claimed, Claimed):
            return claimed
        spec = self._spec(claimed.job.name)
        return Ownership(claimed.job, lease, spec, lease_seconds, self.services, counted=claimed.counted)

    def _spec(self, name: str) -> JobSpec:
        return self.jobs.get(name) or _unregistered(name, self.jobs)


def run_code(hold: Ownership | Carried) -> tuple[Outcome, Sequence[Effect]]:
    """The job's code under its context. Every exception becomes an outcome."""
    context = Context(hold)
    try:
        result = hold.spec.function(context, **hold.spec.decode(context.payload))
        if result is not None and inspect.iscoroutine(result):
            from ringfence import coroutines  # asyncio takes long to import

            running = coroutines.Running(result, hold.spec.timeout_seconds)
            hold.abandon = running.cancel
            if hold.settled:  # whoever took the outcome may have come before there was a way
                running.cancel()
            result = running.result()
        return Done(encode_text(result, "result")), context.staged
    except Death:
        raise
    except BaseException as raised:  # noqa: BLE001 - whatever the code raises is the end of its attempt, not of the worker
        return outcome_of(raised), ()


def _unregistered(name: str, known: Collection[str]) -> JobSpec:
    """A job this worker does not know: a newer version of the worker may, so it is retried before it is dead."""

    def refuse(context: Context) -> None:
        names = ", ".join(sorted(known)[:NAMES_TOLD]) + (", …" if len(known) > NAMES_TOLD else "")
        raise LookupError(
            f"this worker has no job named {name!r}, only {names or 'none at all'}; is its module imported where the app is "
            "(jobs/__init__.py), and was the worker started anew since?"
        )

    return JobSpec(
        name=name,
        function=refuse,
        lease_seconds=None,
        timeout_seconds=60.0,
        max_attempts=None,
        backoff=Backoff(),
        arguments=None,
    )
