"""What ``/v1/queues`` does: depths and live settings, of all tenants, for a queue is everybody's."""

from __future__ import annotations

from dataclasses import replace

from ringfence.errors import Rejected
from ringfence.http import documents, queue_settings
from ringfence.http.reply import Reply, json_reply
from ringfence.http.route import Visit
from ringfence.queue_settings import QueueState

QUEUES_PATH = "/v1/queues"

_UNCACHED = {"Cache-Control": "no-store"}


def show_queues(visit: Visit) -> Reply:
    """Answer with every queue of the deployment."""
    depths = visit.backend.gateway.queue_depths()
    settings = visit.backend.queue_settings
    listed = [documents.queue_document(name, depth, settings.read(name)) for name, depth in sorted(depths.items())]
    return json_reply(200, documents.QueuesDocument(listed), _UNCACHED)


def show_queue(visit: Visit, name: str) -> Reply:
    """Answer with one queue."""
    _require_queue(visit, name)
    return _shown(visit, name, visit.backend.queue_settings.read(name))


def change_queue(visit: Visit, name: str) -> Reply:
    """Change some settings of a queue. In force within five seconds, everywhere.

    Nothing that can fail comes after the change: a 503 is never the answer to one that is in force."""
    changes = queue_settings.read_changes(visit.request.body())
    _require_queue(visit, name)
    before = visit.backend.queue_settings.read(name)
    changed = visit.backend.queue_settings.change(name, changes)
    visit.backend.telemetry.event(
        "queue_changed",
        queue=name,
        tenant=visit.tenant,
        rate_per_second=changed.rate_per_second,
        burst=changed.burst,
        paused=changed.paused,
        high_water_mark=changed.high_water_mark,
    )
    return _shown(visit, name, replace(before, settings=changed))


def _shown(visit: Visit, name: str, state: QueueState) -> Reply:
    (depth,) = visit.backend.gateway.queue_depths([name]).values()
    return json_reply(200, documents.queue_document(name, depth, state), _UNCACHED)


def _require_queue(visit: Visit, name: str) -> None:
    names = visit.backend.gateway.queue_names
    if name not in names:
        raise Rejected(f"there is no such queue; there are: {', '.join(sorted(names))}", kind="unknown-queue", status=404)
