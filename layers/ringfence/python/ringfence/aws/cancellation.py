"""What a cancelled transaction means, decided by the position of its reasons: the row's comes first, then the effects'.

https://docs.aws.amazon.com/amazondynamodb/latest/APIReference/API_TransactWriteItems.html
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from botocore.exceptions import ClientError

from ringfence.aws.failures import THROTTLES
from ringfence.aws.rows import Item
from ringfence.effect_rules import bad_effect, refused
from ringfence.effects import Effect
from ringfence.errors import Unavailable

NO_FAULT = "None"
REFUSED = "ConditionalCheckFailed"

PASSING = THROTTLES | {"TransactionConflict", "ProvisionedThroughputExceeded", "ThrottlingError"}
"""Reasons for which the very same transaction may be sent again."""


def row_that_refused(cancelled: ClientError, effects: Sequence[Effect]) -> Item | None:
    """The job's row, if it was the row's condition that did not hold; None if there is no row.

    Otherwise raises, the first that applies: `EffectRefused` if an effect's condition did not hold, `Rejected` (``bad-effect``)
    if an effect can never be carried out, `Unavailable` if a conflict or throttle was all. A condition that failed is a fact
    and wins over those. What is none of these is raised as it came.
    """
    reasons: list[dict[str, Any]] = cancelled.response.get("CancellationReasons", [])
    codes = [reason.get("Code") or NO_FAULT for reason in reasons]
    if not codes:
        raise cancelled
    if codes[0] == REFUSED:
        return reasons[0].get("Item") or None
    faulty = [(code, effect) for code, effect in zip(codes[1:], effects, strict=True) if code != NO_FAULT]
    for code, effect in faulty:
        if code == REFUSED:
            raise refused(effect) from cancelled
    for code, effect in faulty:
        if code not in PASSING:
            message = reasons[codes.index(code, 1)].get("Message", "")
            raise bad_effect(effect, f"{code}: {message}") from cancelled
    if any(code in PASSING for code in codes):
        raise Unavailable(f"the transaction met {', '.join(sorted(set(codes) - {NO_FAULT}))}") from cancelled
    raise cancelled
