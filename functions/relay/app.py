"""The relay: a batch of the log in, tickets out."""

from __future__ import annotations

from typing import Any

from ringfence import runtime
from ringfence.aws.events import reads_from_event


def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Relay one Kinesis batch; what is not wholly sent is read again from its sequence number on.

    https://docs.aws.amazon.com/lambda/latest/dg/services-kinesis-batchfailurereporting.html
    """
    reads = reads_from_event(event)
    unsent = runtime.current().relay.handle(reads, lambda: context.get_remaining_time_in_millis() / 1000)
    return {"batchItemFailures": [] if unsent is None else [{"itemIdentifier": unsent}]}
