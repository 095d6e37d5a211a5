"""What a function says of a batch: which of its records failed.

https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-errorhandling.html
https://docs.aws.amazon.com/lambda/latest/dg/services-kinesis-batchfailurereporting.html
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from ringfence.local.invocation import Outcome


# The names are Lambda's.
class _Failure(msgspec.Struct):
    itemIdentifier: str


class _Response(msgspec.Struct):
    batchItemFailures: list[_Failure] | None = None


_decoder = msgspec.json.Decoder(_Response | None)


def failed_items(outcome: Outcome, items: Collection[str], reports_failures: bool) -> set[str] | None:
    """The ids of ``items`` that failed; None when the batch failed as a whole.

    It failed as a whole when the function did, and when it reports in a way Lambda does not understand: an empty id, another
    spelling of ``itemIdentifier``, or an id that was not in the batch.
    """
    if outcome.error is not None:
        return None
    if not reports_failures or not outcome.payload:
        return set()
    try:
        response = _decoder.decode(outcome.payload)
    except msgspec.DecodeError:
        return None
    if response is None or response.batchItemFailures is None:
        return set()
    failed = {failure.itemIdentifier for failure in response.batchItemFailures}
    return failed if failed <= set(items) else None
