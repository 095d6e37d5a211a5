"""Every route of the API. Nothing is served that is not in this table, and nothing in it without the scope it names."""

from __future__ import annotations

import functools
from typing import Annotated

import msgspec
from msgspec import Meta

from ringfence.gateway import MAX_SET_ASIDE
from ringfence.http import documents, job_routes, queue_routes, queue_settings, submissions
from ringfence.http.reply import JSON, Reply, json_reply
from ringfence.http.route import Route, Visit

_ACCEPTED = (documents.AcceptedDocument, documents.EntriesDocument)
_JOB = (documents.JobDocument,)
_QUEUE = (documents.QueueDocument,)


class QuarantineQuery(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """How much of the quarantine to show."""

    limit: Annotated[int, Meta(ge=1, le=MAX_SET_ASIDE, description="At most so many.")] = 50


def show_quarantine(visit: Visit) -> Reply:
    """Answer with what could not be read, and why: of the tenant's own jobs, or all of it."""
    limit = visit.parameters(QuarantineQuery).limit
    items = visit.backend.gateway.set_aside(None if "admin" in visit.scopes else visit.tenant, limit)
    return json_reply(200, documents.QuarantineDocument([documents.set_aside_document(item) for item in items]))


def show_openapi(visit: Visit) -> Reply:
    """Answer with the description of this very table."""
    return Reply(200, _described(), {"Content-Type": JSON})


@functools.cache
def _described() -> bytes:
    from ringfence.http import openapi  # not at every cold start: it is seldom asked for

    return openapi.encoded(ROUTES)


def show_health(visit: Visit) -> Reply:
    """Answer that the function runs, asking nothing behind it."""
    return json_reply(200, documents.Health(), {"Cache-Control": "no-store"})


ROUTES: tuple[Route, ...] = (
    Route(
        method="POST",
        path=job_routes.JOBS_PATH,
        scope="submit",
        answer=job_routes.submit_jobs,
        summary="Submit one job or up to 500",
        headers={
            "Idempotency-Key": "Makes a request for one job safe to repeat: the same key is the same job. Refused with the "
            "guarantee at-least-once.",
            "traceparent": "W3C trace context; travels with the job to its worker.",
        },
        body=(submissions.NewJob, submissions.NewJobs),
        answers={
            202: ("Accepted: each of the jobs will run. For one job, Location leads to it, if it has a page.", _ACCEPTED),
            207: ("Some of many jobs were refused; each entry says what became of it.", (documents.EntriesDocument,)),
        },
        problems=(413, 422, 503),
    ),
    Route(
        method="GET",
        path=job_routes.JOBS_PATH,
        scope="read",
        answer=job_routes.list_jobs,
        summary="List jobs, newest first; dead ones alone by their end",
        query=job_routes.ListQuery,
        answers={200: ("A page of jobs.", (documents.JobPage,))},
        problems=(422, 503),
    ),
    Route(
        method="GET",
        path=job_routes.JOBS_PATH + "/<job_id>",
        scope="read",
        answer=job_routes.show_job,
        summary="Look at a job, or wait for it to end",
        query=job_routes.WaitQuery,
        headers={"If-None-Match": "The ETag of what you have: 304 if it is still so."},
        answers={200: ("The job.", _JOB), 304: ("Nothing has changed.", ())},
        problems=(404, 503),
    ),
    Route(
        method="POST",
        path=job_routes.JOBS_PATH + "/<job_id>/cancel",
        scope="submit",
        answer=job_routes.cancel_job,
        summary="Cancel a waiting job, or ask a running one to stop",
        answers={200: ("The job afterwards. One that has ended is left alone.", _JOB)},
        problems=(404, 503),
    ),
    Route(
        method="POST",
        path=job_routes.JOBS_PATH + "/<job_id>/redrive",
        scope="operate",
        answer=job_routes.redrive_job,
        summary="Give a dead job its attempts back, with another payload if you like",
        body=(submissions.Edited,),
        body_required=False,
        answers={200: ("The job, scheduled again.", _JOB)},
        problems=(404, 409, 413, 422, 503),
    ),
    Route(
        method="GET",
        path=queue_routes.QUEUES_PATH,
        scope="read",
        answer=queue_routes.show_queues,
        summary="How much waits in each queue, of all tenants, and at what pace it goes",
        answers={200: ("The queues.", (documents.QueuesDocument,))},
        problems=(503,),
    ),
    Route(
        method="GET",
        path=queue_routes.QUEUES_PATH + "/<name>",
        scope="read",
        answer=queue_routes.show_queue,
        summary="The same of one queue",
        answers={200: ("The queue.", _QUEUE)},
        problems=(404, 503),
    ),
    Route(
        method="PATCH",
        path=queue_routes.QUEUES_PATH + "/<name>",
        scope="admin",
        answer=queue_routes.change_queue,
        summary="Change the pace of a queue, for all tenants, within five seconds",
        body=(queue_settings.QueueChange,),
        answers={200: ("The queue afterwards.", _QUEUE)},
        problems=(404, 422, 503),
    ),
    Route(
        method="GET",
        path="/v1/quarantine",
        scope="operate",
        answer=show_quarantine,
        summary="What could not be read of your jobs, without its bytes; with the scope admin, all of it",
        query=QuarantineQuery,
        answers={200: ("What was set aside.", (documents.QuarantineDocument,))},
        problems=(503,),
    ),
    Route(
        method="GET",
        path="/v1/openapi.json",
        scope=None,
        answer=show_openapi,
        summary="This description",
        answers={200: ("OpenAPI 3.1.", ())},
    ),
    Route(
        method="GET",
        path="/v1/health",
        scope=None,
        answer=show_health,
        summary="Whether the function runs",
        answers={200: ("It does.", (documents.Health,))},
    ),
)
