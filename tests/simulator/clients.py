"""What the clients ask for: a function of the seed. Some ask for what another has asked for, in the same words or others."""

from __future__ import annotations

import dataclasses
import random
from collections.abc import Sequence
from dataclasses import dataclass

from ringfence.acceptance import Submission
from ringfence.job import Guarantee

QUEUES = ("free", "paced")
TENANTS = ("acme", "umbrella")

NAMES = ("count", "long", "flaky", "two", "doomed", "stubborn")
"""Of the jobs that have rows; one without is ``plain``."""

TWIN_SHARE = 0.4
"""Clients that ask for what the one before them has asked for."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What one client asks for."""

    client: int
    tenant: str
    submission: Submission
    times: int
    """So often it is to be told that its job was accepted."""


def asked_by(client: int, seed: int, names: Sequence[str] = NAMES) -> Asked:
    """What this client asks for, whoever else there is."""
    rng = random.Random(seed * 1_000 + client)
    if client and rng.random() < TWIN_SHARE:
        return _twin_of(asked_by(client - 1, seed, names), client, rng)
    keyed = rng.random() < 0.6
    carried = not keyed and rng.random() < 0.5
    submission = Submission(
        name="plain" if carried else rng.choice(names),
        payload=_payload(client),
        queue=rng.choice(QUEUES),
        idempotency_key=f"key-{client}" if keyed else None,
        delay_seconds=rng.choice([None, None, None, 5.0, 30.0, 1_000.0]),
        max_attempts=rng.choice([2, 5, 8]),
        guarantee=Guarantee.AT_LEAST_ONCE if carried else Guarantee.ONCE,
    )
    return Asked(client, rng.choice(TENANTS), submission, rng.choice([1, 1, 2]) if keyed else 1)


def _twin_of(other: Asked, client: int, rng: random.Random) -> Asked:
    """The same once more, key and all; or with another payload, in other words, or of another tenant."""
    submission, tenant = other.submission, other.tenant
    match rng.choice(("the same", "in other words", "another payload", "another tenant", "another tenant")):
        case "in other words":
            submission = dataclasses.replace(submission, payload=submission.payload.replace(":", " : "))
        case "another payload":
            submission = dataclasses.replace(submission, payload=_payload(client))
        case "another tenant":
            tenant = next(each for each in TENANTS if each != tenant)
    return Asked(client, tenant, submission, 1)


def _payload(number: int) -> str:
    return f'{{"n":{number}}}'
