"""Calls to DynamoDB: which failures pass, and batches that are sent again until nothing of them is left."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ringfence.aws.failures import FAILURES, code_of, may_pass, unavailable
from ringfence.aws.rows import Item
from ringfence.errors import Unavailable
from ringfence.ports import Clock
from ringfence.retry import Backoff, Pauses

CONFLICTS = frozenset({"TransactionConflictException", "TransactionInProgressException", "ReplicatedWriteConflictException"})
"""Another write holds the item just now.
https://docs.aws.amazon.com/amazondynamodb/latest/developerguide/transaction-apis.html#transaction-conflict-handling"""

MAX_GET_ITEMS = 100
"""https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_BatchGetItem.html"""

FRUITLESS_ROUNDS = 5
"""How often a batch is sent again without any of it getting through."""

BACKOFF = Backoff(base_seconds=0.05, cap_seconds=1.0)


@contextmanager
def calling(doing: str) -> Iterator[None]:
    """Raise `Unavailable` for what may pass: throttles, conflicts, timeouts, the service's own faults. The rest is raised as it
    is: it is a mistake of ours or of the deployment's, and no repetition mends it."""
    try:
        yield
    except FAILURES as failure:
        if may_pass(failure) or code_of(failure) in CONFLICTS:
            raise unavailable(failure, doing) from failure
        raise


def get_all(client: Any, table: str, keys: Sequence[Item], clock: Clock, *, consistent: bool = False) -> list[Item]:
    """The items there are, in no order; at twice the price, as of now. Raises `Unavailable` when some cannot be had."""
    found: list[Item] = []
    for start in range(0, len(keys), MAX_GET_ITEMS):
        wanted: Sequence[Item] = keys[start : start + MAX_GET_ITEMS]
        pauses = _fruitless_rounds(clock)
        while wanted:
            with calling("read from the ledger"):
                reply = client.batch_get_item(RequestItems={table: {"Keys": list(wanted), "ConsistentRead": consistent}})
            got = reply.get("Responses", {}).get(table, [])
            found += got
            wanted = reply.get("UnprocessedKeys", {}).get(table, {}).get("Keys", [])
            if got:  # a reply holds at most 16 MB: what is left over then is no sign of a throttle
                pauses = _fruitless_rounds(clock)
            if wanted and not pauses.another_try():
                raise Unavailable("cannot read from the ledger: throttled")
    return found


def _fruitless_rounds(clock: Clock) -> Pauses:
    return Pauses(BACKOFF, clock, random.Random(), tries=FRUITLESS_ROUNDS)
