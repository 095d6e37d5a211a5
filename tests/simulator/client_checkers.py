"""What must hold of what clients are told: one checker for each invariant, as in `checkers`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator
from typing import TYPE_CHECKING, Any

from ringfence import jsontext
from ringfence.acceptance import Refusal, Submission
from ringfence.job import Job, State
from ringfence.wire import decode_record

from .history import Landed

if TYPE_CHECKING:
    from .world import World


def one_key_is_one_job(world: World) -> Iterator[str]:
    """However often a request is repeated with its key, it is one job; without a key each is a job of its own."""
    jobs: dict[tuple[str, str], set[str]] = defaultdict(set)
    clients: dict[str, set[int]] = defaultdict(set)
    keyless: set[str] = set()
    for entry in world.history.of("accepted"):
        job_id, tenant, submission, client = entry.args
        clients[job_id].add(client)
        if submission.idempotency_key is None:
            keyless.add(job_id)
        else:
            jobs[tenant, submission.idempotency_key].add(job_id)
    for key, job_ids in jobs.items():
        if len(job_ids) > 1:
            yield f"the key {key} made {sorted(job_ids)}"
    for job_id in sorted(keyless):
        if len(clients[job_id]) > 1:
            yield f"{job_id} is the job of clients {sorted(clients[job_id])}, who had no key in common"


def one_job_is_one_request(world: World) -> Iterator[str]:
    """Whoever is told of a job has asked for what it is."""
    asked: dict[str, set[Hashable]] = defaultdict(set)
    for entry in world.history.of("accepted"):
        asked[entry.args[0]].add(_request(entry.args[2]))
    for job_id, requests in asked.items():
        if len(requests) > 1:
            yield f"{job_id} stands for {len(requests)} requests: {requests}"


def tenants_are_apart(world: World) -> Iterator[str]:
    """Nobody is told of another tenant's job, nor acts on one; two that use the same key have a job each."""
    told: dict[str, set[str]] = defaultdict(set)
    for entry in world.history.of("accepted", "acted"):
        job_id, tenant = entry.args[:2]
        told[job_id].add(tenant)
        row = world.ledger.get(job_id)
        if row is not None and row.tenant != tenant:
            yield f"{job_id} of {row.tenant} was {entry.what} for {tenant}"
    for job_id, tenants in told.items():
        if len(tenants) > 1:
            yield f"{job_id} is a job of {sorted(tenants)}"


def refusals_are_deserved(world: World) -> Iterator[str]:
    """A client is refused for good only if its key was used for another request; and for now, only if a call was struck."""
    asked: dict[tuple[str, str], set[Hashable]] = defaultdict(set)
    for entry in world.history.of("asked", "refused"):
        tenant, submission = entry.args[:2]
        key, request = submission.idempotency_key, _request(submission)
        if entry.what == "asked":
            asked[tenant, key].add(request)
            continue
        refusal: Refusal = entry.args[2]
        if refusal.retry_after_seconds is not None:
            _, _, _, struck = entry.args
            if not struck:
                yield f"{tenant} was refused at {entry.at:.3f}, and no call had failed: {refusal.detail}"
        elif refusal.kind != "idempotency-key-reused" or key is None or asked[tenant, key] == {request}:
            yield f"{tenant} was refused {request} under the key {key}: {refusal.detail}"


def accepted_only_when_appended(world: World) -> Iterator[str]:
    """Before a client is told that its job was accepted, it is in the log, or its row says that it has gone on since, or that
    timers owe it a ticket."""
    safe: set[str] = set()
    for entry in world.history.with_rows():
        if isinstance(entry, Landed):
            if _has_gone_on(entry.after):
                safe.add(entry.after.job_id)
            continue
        if entry.what == "log.append" and entry.raised is None:
            for appended, sequence in zip(entry.args[0], entry.reply, strict=True):
                if sequence is not None:
                    safe.update(job.job_id for job in decode_record(appended.data))
        elif entry.what == "accepted" and entry.args[0] not in safe:
            yield f"{entry.args[0]} was accepted at {entry.at:.3f}, and was not in the log"


def _has_gone_on(job: Job) -> bool:
    return job.due_id is not None or job.token > 0 or job.state is not State.QUEUED


def _request(submission: Submission) -> tuple[Any, ...]:
    """What makes a request another one."""
    return submission.name, submission.queue, jsontext.canonical(submission.payload)


CLIENT_CHECKERS = (
    one_key_is_one_job,
    one_job_is_one_request,
    tenants_are_apart,
    refusals_are_deserved,
    accepted_only_when_appended,
)
