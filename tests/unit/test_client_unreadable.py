"""An answer that cannot be read says nothing of what was accepted: the batch is sent again, by the same keys."""

from __future__ import annotations

import random
from http.client import HTTPMessage

from ringfence.client.batches import BatchSender, Encoded, Submitted
from ringfence.client.transport import Answer
from ringfence.memory.clock import ManualClock


def test_a_batch_that_is_answered_with_null_is_sent_again_as_it_was() -> None:
    bodies: list[bytes] = []

    def send(body: bytes) -> Answer:
        bodies.append(body)
        read = b'{"jobs":[{"status":202,"job_id":"a","state":"queued"}]}'
        return Answer(202, HTTPMessage(), b"null" if len(bodies) == 1 else read, 1)

    sender = BatchSender(send, retry_seconds=30.0, clock=ManualClock(), random_source=random.Random(1))
    (outcome,) = sender.submit([Encoded("key", b'{"name":"job"}')])
    assert isinstance(outcome, Submitted)
    assert (outcome.job_id, outcome.idempotency_key) == ("a", "key")
    assert len(bodies) == 2
    assert bodies[0] == bodies[1]
