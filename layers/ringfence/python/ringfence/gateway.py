"""The front of the queue: what a client may submit, ask and do."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from ringfence import jsontext, transitions
from ringfence.acceptance import Acceptance, Accepted, Refusal, Submission
from ringfence.change import Change, Written
from ringfence.depths import Depths
from ringfence.errors import Rejected, Unavailable
from ringfence.job import Job, State
from ringfence.ports import Depth, Log, Page, Queue, Services, SetAside
from ringfence.wire import MAX_PAYLOAD_BYTES

MAX_SET_ASIDE = 100
"""Items of the quarantine in one answer, and of these a tenant's own are picked out: one batch of reads."""

NO_SUCH_JOB = "there is no such job; one submitted at-least-once can be asked for only if it had to wait long or is dead"
"""Of an id that nobody was given, of another tenant's, and of one that may be running: the ledger cannot tell them apart."""

LOOKS = 10
"""How often a cancel or redrive looks again at a row that changed under it."""


class Gateway:
    """The front of the queue, for one deployment and all its tenants."""

    def __init__(self, services: Services, log: Log, queues: Mapping[str, Queue]) -> None:
        self._services, self._queues = services, queues
        self._ledger, self._clock, self._ids = services.ledger, services.clock, services.ids
        self._acceptance = Acceptance(services, log, queues)
        self._depths = Depths(queues)

    def submit(self, tenant: str, submissions: Sequence[Submission]) -> list[Accepted | Refusal]:
        """Accept jobs, each on its own; the answers are in the order of the submissions."""
        return self._acceptance.submit(tenant, submissions)

    # --- asking ------------------------------------------------------------------------------------------------------

    def get(self, tenant: str, job_id: str) -> Job:
        """The job. An unknown one and another tenant's are the same `Rejected` (404)."""
        job = self._ledger.get(job_id)
        if job is None or job.tenant != tenant:
            raise Rejected(NO_SUCH_JOB, kind="not-found", status=404)
        return job

    def list_jobs(
        self, tenant: str, *, queue: str | None = None, state: State | None = None, cursor: str | None = None, limit: int = 50
    ) -> Page:
        """A tenant's jobs, newest first. Raises `Rejected` for a queue that does not exist."""
        if queue is not None and queue not in self._queues:
            known = ", ".join(sorted(self._queues))
            raise Rejected(f"there is no such queue; there are: {known}", kind="unknown-queue", status=422)
        queues = [queue] if queue is not None else sorted(self._queues)
        return self._ledger.list_jobs(tenant, queues, state, cursor, limit)

    @property
    def queue_names(self) -> Collection[str]:
        """The queues of this deployment."""
        return self._queues.keys()

    def queue_depths(self, names: Iterable[str] | None = None) -> dict[str, Depth | Unavailable]:
        """How much waits in these queues, or in all; of a queue that cannot be asked, why. Takes two seconds at most."""
        return self._depths.of(self._queues if names is None else names)

    def set_aside(self, tenant: str | None, limit: int) -> list[SetAside]:
        """What could not be read, the newest first; at most ``limit`` and `MAX_SET_ASIDE`.

        None sees all of it. A tenant sees what names a job of its own, among the newest `MAX_SET_ASIDE`: bytes that nobody
        could read are not known to be anybody's.
        """
        if tenant is None:
            return self._services.quarantine.items(min(limit, MAX_SET_ASIDE))
        items = self._services.quarantine.items(MAX_SET_ASIDE)
        jobs = self._ledger.peek(sorted({item.job_id for item in items if item.job_id is not None}))
        own = {job.job_id for job in jobs if job.tenant == tenant}
        return [item for item in items if item.job_id in own][:limit]

    # --- acting ------------------------------------------------------------------------------------------------------

    def cancel(self, tenant: str, job_id: str) -> Job:
        """Cancel a waiting job at once, ask a running one to stop, leave an ended one alone. Returns the row afterwards."""

        def step(job: Job) -> Change | None:
            if job.state.terminal or (job.state is State.RUNNING and job.cancel_requested):
                return None
            if job.state is State.RUNNING:
                return transitions.request_cancel(job, write_id=self._ids.mark())
            return transitions.cancel_seen(job, write_id=self._ids.mark(), now=self._clock.now(), expires_at=self._expiry(job))

        return self._change_seen(tenant, job_id, step)

    def redrive(self, tenant: str, job_id: str, payload: str | None = None) -> Job:
        """Give a dead job its attempts back, optionally with another payload. Raises `Rejected` (409) if it is not dead."""
        if payload is not None and len(payload.encode()) > MAX_PAYLOAD_BYTES:
            raise Rejected(f"at most {MAX_PAYLOAD_BYTES} bytes are taken", kind="payload-too-large", status=413)

        def step(job: Job) -> Change:
            if job.state is not State.DEAD:
                raise Rejected(f"the job is {job.state}, not dead", kind="not-dead", status=409)
            edited = None
            if payload is not None:
                submitted = jsontext.sha256(jsontext.canonical(job.payload or "null"))
                edited = transitions.Edited(payload, jsontext.sha256(payload), submitted)
            return transitions.redrive(
                job, write_id=self._ids.mark(), now=self._clock.now(), due_id=self._ids.mark(), edited=edited
            )

        return self._change_seen(tenant, job_id, step)

    def _change_seen(self, tenant: str, job_id: str, step: Callable[[Job], Change | None]) -> Job:
        for _ in range(LOOKS):
            job = self.get(tenant, job_id)
            change = step(job)
            if change is None:
                return job
            outcome = self._ledger.write(change)
            if isinstance(outcome, Written):
                return outcome.job
        raise Unavailable("the job keeps changing; try again")

    def _expiry(self, job: Job) -> int:
        return transitions.expiry(job, self._clock.now(), self._services.retention_seconds)
