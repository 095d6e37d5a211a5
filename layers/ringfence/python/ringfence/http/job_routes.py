"""What the routes under ``/v1/jobs`` do."""

from __future__ import annotations

import re
from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from ringfence.acceptance import Accepted, Refusal
from ringfence.errors import Rejected
from ringfence.gateway import NO_SUCH_JOB
from ringfence.http import documents, entity_tag, submissions, waiting
from ringfence.http.reply import Reply, json_reply, problem_of_refusal, refusal_reply
from ringfence.http.route import Visit
from ringfence.job import Guarantee, Job, State

JOBS_PATH = "/v1/jobs"

ANSWER_MARGIN_SECONDS = 2.0
"""A waiting request is answered this long before its function's timeout."""

_JOB_ID = re.compile(r"[a-z2-7]{26}")

_UNCACHED = {"Cache-Control": "private, no-cache"}
"""A cache must ask again, with the entity tag, before it gives a job's state to anyone."""


class WaitQuery(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """How to look at a job."""

    wait: Annotated[float, Meta(ge=0, description="Answer when the job has ended, or after so many seconds (capped).")] = 0.0


class ListQuery(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """Which jobs to list."""

    queue: submissions.QueueName | UnsetType = UNSET
    state: State | UnsetType = UNSET
    limit: Annotated[int, Meta(ge=1, le=100, description="At most so many jobs; a filter may make it fewer.")] = 50
    cursor: Annotated[str, Meta(max_length=2048, description="From the page before.")] | UnsetType = UNSET


def submit_jobs(visit: Visit) -> Reply:
    """Accept one job or many."""
    request = visit.request
    asked, many = submissions.read(
        request.body(), key_header=request.header("idempotency-key"), traceparent=request.traceparent
    )
    outcomes = visit.backend.gateway.submit(visit.tenant, asked)
    if many:
        entries = [_entry(index, outcome) for index, outcome in enumerate(outcomes)]
        all_accepted = all(isinstance(outcome, Accepted) for outcome in outcomes)
        return json_reply(202 if all_accepted else 207, documents.EntriesDocument(entries))
    [outcome] = outcomes
    if isinstance(outcome, Refusal):
        return refusal_reply(outcome)
    # A job without a row has no page to lead to.
    location = f"{request.prefix}{JOBS_PATH}/{outcome.job.job_id}" if outcome.guarantee is Guarantee.ONCE else None
    return json_reply(202, documents.accepted_document(outcome), {} if location is None else {"Location": location})


def show_job(visit: Visit, job_id: str) -> Reply:
    """Answer with one job, when asked to only after it has ended."""
    _require_job_id(job_id)
    wait = visit.parameters(WaitQuery).wait
    allowed = max(0.0, min(wait, visit.backend.settings.wait_cap_seconds, visit.remaining_seconds - ANSWER_MARGIN_SECONDS))
    gateway = visit.backend.gateway
    job = waiting.until_ended(lambda: gateway.get(visit.tenant, job_id), visit.backend.clock, allowed)
    tag = entity_tag.of(job)
    if entity_tag.matches(visit.request.header("if-none-match"), tag):
        return Reply(304, headers={"ETag": tag, **_UNCACHED})
    return _job(job)


def list_jobs(visit: Visit) -> Reply:
    """Answer with a page of the tenant's jobs."""
    query = visit.parameters(ListQuery)
    page = visit.backend.gateway.list_jobs(
        visit.tenant, queue=query.queue or None, state=query.state or None, cursor=query.cursor or None, limit=query.limit
    )
    return json_reply(200, documents.JobPage([documents.job_document(job) for job in page.jobs], page.cursor), _UNCACHED)


def cancel_job(visit: Visit, job_id: str) -> Reply:
    """Cancel a job, or ask the worker that runs it to stop."""
    _require_job_id(job_id)
    return _job(visit.backend.gateway.cancel(visit.tenant, job_id))


def redrive_job(visit: Visit, job_id: str) -> Reply:
    """Give a dead job its attempts back."""
    _require_job_id(job_id)
    payload = submissions.read_edited(visit.request.body())
    return _job(visit.backend.gateway.redrive(visit.tenant, job_id, payload))


def _job(job: Job) -> Reply:
    return json_reply(200, documents.job_document(job), {"ETag": entity_tag.of(job), **_UNCACHED})


def _entry(index: int, outcome: Accepted | Refusal) -> documents.EntryDocument:
    if isinstance(outcome, Accepted):
        job = outcome.job
        return documents.EntryDocument(
            status=202, job_id=job.job_id, state=job.state, guarantee=outcome.guarantee, repeated=outcome.repeated
        )
    return documents.EntryDocument(
        status=outcome.status,
        problem=problem_of_refusal(outcome, f"/jobs/{index}"),
        retry_after_seconds=outcome.retry_after_seconds,
    )


def _require_job_id(job_id: str) -> None:
    """What cannot be an id is not looked up; the answer is that for an unknown job, or another tenant's."""
    if _JOB_ID.fullmatch(job_id) is None:
        raise Rejected(NO_SUCH_JOB, kind="not-found", status=404)
