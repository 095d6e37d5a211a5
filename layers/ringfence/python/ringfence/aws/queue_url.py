"""What RINGFENCE_QUEUES may say of a queue on SQS: its URL, or only its name."""

from __future__ import annotations

from typing import Any

from botocore.exceptions import ClientError

from ringfence.aws.failures import FAILURES, code_of, unavailable
from ringfence.settings import Misconfigured, is_http_url

_NO_QUEUE = frozenset({"NonExistentQueue", "QueueDoesNotExist"})
"""The first from the query protocol, the second from JSON."""


def queue_url(client: Any, given: str) -> str:
    """The queue's URL; for ``sqs://name`` SQS is asked.

    Raises `Misconfigured` when that is no queue of this account and region, or ``given`` is neither; `Unavailable` when SQS
    does not answer.

    https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_GetQueueUrl.html
    """
    if is_http_url(given):
        return given
    scheme, _, name = given.partition("://")
    if scheme != "sqs" or not name:
        # Not what was given: with a slip in its scheme it may hold the password of a Redis.
        raise Misconfigured("RINGFENCE_QUEUES: a queue is at https://…, sqs://name, redis://… or rediss://…, and nowhere else")
    try:
        url: str = client.get_queue_url(QueueName=name)["QueueUrl"]
    except ClientError as failure:
        if code_of(failure) in _NO_QUEUE:
            raise Misconfigured(f"there is no SQS queue {name!r} in this account and region") from failure
        raise unavailable(failure, f"find the SQS queue {name}") from failure
    except FAILURES as failure:
        raise unavailable(failure, f"find the SQS queue {name}") from failure
    return url
