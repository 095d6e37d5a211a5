"""The worker: a batch of tickets in, jobs run, finished messages left for the mapping to delete."""

from __future__ import annotations

from itertools import groupby
from typing import Any

from ringfence import runtime
from ringfence.aws.events import leases_from_event

# While the function starts, not at its first batch: jobs that cannot be imported fail the start, once and with their line, and
# not every batch after it, whose messages would only come again and again.
# https://docs.aws.amazon.com/lambda/latest/dg/lambda-runtime-environment.html#runtimes-lifecycle-ib
WORKER = runtime.current().worker


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Run one SQS batch. Everything that is not finished is listed, so that the mapping leaves it in the queue.

    https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-errorhandling.html
    """
    here = runtime.current()
    leases = leases_from_event(event, here.settings.queues)
    finished: set[str] = set()
    for queue, batch in groupby(leases, key=lambda lease: lease.queue):
        done = WORKER.handle(here.queues[queue], list(batch), lambda: context.get_remaining_time_in_millis() / 1000)
        finished.update(lease.message_id for lease in done)
    unfinished = [lease.message_id for lease in leases if lease.message_id not in finished]
    return {"batchItemFailures": [{"itemIdentifier": message_id} for message_id in unfinished]}
