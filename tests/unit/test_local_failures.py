"""A batch that failed is said where somebody looks: it comes again, and nothing else would tell why nothing happens."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import pytest

from ringfence.local.event_sources import Schedule, SqsMapping
from ringfence.local.invocation import Outcome
from ringfence.local.sources.pulse import Pulse
from ringfence.local.sources.schedule import ScheduleSource
from ringfence.local.sources.sqs import SqsSource

BROKEN = Outcome.failed("Unhandled", "no module named jobs")
RETURNED = Outcome(b"{}")


class OneMessage:
    """An SQS that has a single message. Whoever asks for another has done with the first: then all shall stop."""

    def __init__(self, pulse: Pulse) -> None:
        self._pulse = pulse
        self._left = [{"MessageId": "m", "ReceiptHandle": "r", "Body": "{}"}]

    def get_queue_url(self, **_: Any) -> dict[str, Any]:
        return {"QueueUrl": "http://127.0.0.1/0/q"}

    def receive_message(self, **_: Any) -> dict[str, Any]:
        if self._left:
            return {"Messages": [self._left.pop()]}
        self._pulse.stop()
        return {}


def told(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]


@pytest.mark.parametrize("stopping", [False, True])
def test_a_failed_batch_of_a_queue_is_a_warning_unless_all_is_stopping(
    caplog: pytest.LogCaptureFixture, stopping: bool
) -> None:
    pulse = Pulse()

    def invoke(_: bytes) -> Outcome:
        if stopping:
            pulse.stop()
        return BROKEN

    mapping = SqsMapping(name="Jobs", function="Worker", arn="arn:aws:sqs:eu-west-1:000000000000:q")
    source = SqsSource(mapping, OneMessage(pulse), "eu-west-1", 1, invoke, pulse)
    source.start()
    source.join()
    assert told(caplog) == ([] if stopping else ["Jobs: a batch of 1 failed: Unhandled: no module named jobs"])


def schedule_told(outcomes: Sequence[Outcome], caplog: pytest.LogCaptureFixture) -> list[str]:
    """What a schedule says whose invocations end so."""
    pulse, left = Pulse(), list(outcomes)

    def invoke(_: bytes) -> Outcome:
        if left:
            return left.pop(0)
        pulse.stop()
        return RETURNED

    schedule = Schedule(name="EachMinute", function="Timers", expression="rate(1 minute)", input=None)
    source = ScheduleSource(schedule, "000000000000", "eu-west-1", 0.0, invoke, pulse)
    source.start()
    source.join()
    return told(caplog)


def test_a_schedule_tells_a_failure_once_until_something_changes(caplog: pytest.LogCaptureFixture) -> None:
    other = Outcome.failed("Sandbox.Timedout", "too slow")
    said = schedule_told([BROKEN, BROKEN, other, BROKEN, RETURNED, BROKEN], caplog)
    broken, slow = "EachMinute failed: Unhandled: no module named jobs", "EachMinute failed: Sandbox.Timedout: too slow"
    assert said == [broken, slow, broken, broken]
