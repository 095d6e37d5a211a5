"""Bugs that front ends of queues have had: keys, tenants, and answers that promise what is not yet so."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any
from unittest.mock import patch

from ringfence import acceptance
from ringfence.acceptance import Acceptance, Accepted, Refusal, Submission
from ringfence.gateway import Gateway
from ringfence.ids import derived_job_id
from ringfence.job import Guarantee, Job
from ringfence.wire import JobRecord

from .bug import Bug
from .world import Parts


class SharesItsKey(Gateway):
    def submit(self, tenant: str, submissions: Sequence[Submission]) -> Any:
        return super().submit(tenant, [self._keyed(each) for each in submissions])

    def _keyed(self, asked: Submission) -> Submission:
        if asked.guarantee is Guarantee.AT_LEAST_ONCE:  # one that has no row would be refused with a key
            return asked
        return dataclasses.replace(asked, idempotency_key=str(asked.idempotency_key))


class LooksAtNoTenant(Gateway):
    def get(self, tenant: str, job_id: str) -> Job:
        job = self._ledger.get(job_id)
        return super().get(tenant if job is None else job.tenant, job_id)


def another_id_each_time() -> AbstractContextManager[Any]:
    numbers = itertools.count()
    return patch.object(acceptance, "derived_job_id", lambda tenant, key: derived_job_id(tenant, f"{key} {next(numbers)}"))


def the_same(wrong: Callable[[Job, JobRecord], bool]) -> Callable[[], AbstractContextManager[Any]]:
    return lambda: patch.object(acceptance, "_same_request", wrong)


def accepts_first() -> AbstractContextManager[Any]:
    original = Acceptance._append

    def append(self: Acceptance, registered: Mapping[int, Any]) -> dict[int, Accepted | Refusal]:
        original(self, registered)
        return {index: Accepted(entry.job, entry.repeated, entry.record.guarantee) for index, entry in registered.items()}

    return patch.object(Acceptance, "_append", append)


def appends_no_repeat() -> AbstractContextManager[Any]:
    original = Acceptance._register_one

    def register_one(self: Acceptance, submission: Submission, record: JobRecord) -> Any:
        outcome = original(self, submission, record)
        repeated = not isinstance(outcome, Accepted | Refusal) and outcome.repeated
        return Accepted(outcome.job, repeated=True) if repeated else outcome

    return patch.object(Acceptance, "_register_one", register_one)


def sends_repeats_away() -> AbstractContextManager[Any]:
    original = Acceptance._register_one

    def register_one(self: Acceptance, submission: Submission, record: JobRecord) -> Any:
        outcome = original(self, submission, record)
        repeated = isinstance(outcome, Accepted) and outcome.job.token == 1
        return acceptance._unavailable("it is being worked on", 1.0) if repeated else outcome

    return patch.object(Acceptance, "_register_one", register_one)


GATEWAY_BUGS: tuple[Bug, ...] = (
    Bug("shares one key among requests without one", ("one_key_is_one_job",), lambda: Parts(gateway=SharesItsKey)),
    Bug("derives another id for each repeat of a key", ("one_key_is_one_job",), planted=another_id_each_time),
    Bug(
        "takes any request under a key for its first",
        ("one_job_is_one_request",),
        planted=the_same(lambda *_: True),
    ),
    Bug(
        "forgets whose a key is",
        ("tenants_are_apart",),
        planted=lambda: patch.object(acceptance, "derived_job_id", lambda _tenant, key: derived_job_id("", key)),
    ),
    Bug("looks at no tenant of a job that is acted on", ("tenants_are_apart",), lambda: Parts(gateway=LooksAtNoTenant)),
    Bug(
        "compares what was written, not what it says",
        ("refusals_are_deserved",),
        planted=the_same(lambda there, asked: there.payload_sha256 == asked.payload_sha256),
    ),
    Bug("sends a repeat away while its job runs", ("refusals_are_deserved",), planted=sends_repeats_away),
    Bug(
        "answers before it has appended",
        ("accepted_only_when_appended", "every_accepted_job_ends"),
        planted=accepts_first,
        kinds=("lost request",),
        fault_share=0.3,
    ),
    Bug(
        "takes a row for a record in the log",
        ("accepted_only_when_appended",),
        planted=appends_no_repeat,
        kinds=("crash before", "lost request"),
    ),
)
