"""Events in memory: looked at, waited for, and refused when they tell too much."""

import threading

import pytest

from ringfence.event_names import NEVER_TOLD
from ringfence.memory.telemetry import MemoryTelemetry


def test_events_are_kept_in_order() -> None:
    telemetry = MemoryTelemetry()
    telemetry.event("job_claimed", job_id="a", token=1)
    telemetry.event("job_succeeded", job_id="a", token=1)
    telemetry.event("job_claimed", job_id="b", token=1)
    assert [name for name, _ in telemetry.events] == ["job_claimed", "job_succeeded", "job_claimed"]
    assert telemetry.named("job_claimed") == [{"job_id": "a", "token": 1}, {"job_id": "b", "token": 1}]


def test_a_test_can_wait_for_an_event() -> None:
    telemetry = MemoryTelemetry()
    worker = threading.Thread(target=lambda: [telemetry.event("job_held", number=number) for number in range(3)])
    worker.start()
    assert len(telemetry.wait_for("job_held", count=3)) == 3
    worker.join()


def test_an_event_that_does_not_come_is_told() -> None:
    telemetry = MemoryTelemetry()
    telemetry.event("job_dead")
    with pytest.raises(TimeoutError, match="job_dead"):
        telemetry.wait_for("job_succeeded", timeout_seconds=0)


@pytest.mark.parametrize("field", sorted(NEVER_TOLD))
def test_payloads_are_refused(field: str) -> None:
    with pytest.raises(AssertionError, match=field):
        MemoryTelemetry().event("job_succeeded", **{field: "secret"})
