"""The SQS adapter against a scripted client: what SQS may answer and no emulator does."""

import math
import random
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError, ConnectTimeoutError, EndpointConnectionError, ParamValidationError

from ringfence.aws.queue import SqsQueue, group_id
from ringfence.aws.sqs_batches import ENTRY_ATTEMPTS
from ringfence.errors import Unavailable
from ringfence.memory.clock import ManualClock
from ringfence.memory.telemetry import MemoryTelemetry
from ringfence.ports import Lease
from ringfence.wire import Ticket, decode_ticket

URL = "https://sqs.eu-west-1.amazonaws.com/123456789012/default"
STALE_REASON = "Value AQEB for parameter ReceiptHandle is invalid. Reason: The receipt handle has expired."
CEILING_REASON = (
    "Value 43200 for parameter VisibilityTimeout is invalid. Reason: Total VisibilityTimeout for the message is beyond the "
    "limit [43200 seconds]"
)

Reply = dict[str, Any] | Exception | Callable[[list[dict[str, Any]]], dict[str, Any]]


def failed(code: str, message: str = "", *, ours: bool) -> dict[str, Any]:
    return {"Code": code, "Message": message, "SenderFault": ours}


class ScriptedSqs:
    """A client that records its calls and answers from a script; beyond the script every entry succeeds."""

    def __init__(self, *script: Reply, read_timeout: float = 5.0) -> None:
        self.script = list(script)
        self.calls: list[tuple[str, dict[str, Any]]] = []
        self.meta = SimpleNamespace(config=SimpleNamespace(read_timeout=read_timeout))

    def send_message_batch(self, **call: Any) -> dict[str, Any]:
        return self._answer("send", call)

    def change_message_visibility_batch(self, **call: Any) -> dict[str, Any]:
        return self._answer("change", call)

    def delete_message_batch(self, **call: Any) -> dict[str, Any]:
        return self._answer("delete", call)

    def receive_message(self, **call: Any) -> dict[str, Any]:
        return self._answer("receive", call)

    def get_queue_attributes(self, **call: Any) -> dict[str, Any]:
        return self._answer("attributes", call)

    def entries(self, number: int) -> list[dict[str, Any]]:
        entries: list[dict[str, Any]] = self.calls[number][1]["Entries"]
        return entries

    def _answer(self, name: str, call: dict[str, Any]) -> dict[str, Any]:
        self.calls.append((name, call))
        reply = self.script.pop(0) if self.script else {}
        if isinstance(reply, Exception):
            raise reply
        if callable(reply):
            return reply(call["Entries"])
        if reply or "Entries" not in call:
            return reply
        return all_but({})(call["Entries"])


def all_but(failures: dict[int, dict[str, Any]]) -> Callable[[list[dict[str, Any]]], dict[str, Any]]:
    """Every entry succeeds except those at these places of the request."""

    def reply(entries: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "Successful": [{"Id": entry["Id"]} for place, entry in enumerate(entries) if place not in failures],
            "Failed": [{"Id": entries[place]["Id"], **failure} for place, failure in failures.items()],
        }

    return reply


def throttled(status: int = 400) -> ClientError:
    answer = {"Error": {"Code": "RequestThrottled", "Message": "slow down"}, "ResponseMetadata": {"HTTPStatusCode": status}}
    return ClientError(answer, "AnyOperation")


def tickets(count: int, *, size: int = 0) -> list[Ticket]:
    return [
        Ticket(ticket_id=f"t{number}", job_id=f"j{number}", tenant="acme", traceparent="x" * size or None)
        for number in range(count)
    ]


def leases(count: int) -> list[Lease]:
    return [Lease("{}", f"receipt{number}", 1, f"m{number}", "default") for number in range(count)]


def message(number: int, deliveries: int = 1) -> dict[str, Any]:
    return {
        "MessageId": f"m{number}",
        "ReceiptHandle": f"receipt{number}",
        "Body": "{}",
        "Attributes": {"ApproximateReceiveCount": str(deliveries)},
    }


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def telemetry() -> MemoryTelemetry:
    return MemoryTelemetry()


@pytest.fixture
def queue_of(clock: ManualClock, telemetry: MemoryTelemetry) -> Callable[..., SqsQueue]:
    def build(client: Any, **more: Any) -> SqsQueue:
        return SqsQueue(client, "default", URL, clock=clock, random_source=random.Random(1), telemetry=telemetry, **more)

    return build


class TestPush:
    def test_c10a_only_the_entry_that_sqs_failed_is_sent_again(self, queue_of: Any) -> None:
        client = ScriptedSqs({}, all_but({3: failed("InternalError", ours=False)}))
        assert queue_of(client).push(tickets(25)) == []
        sent = [[decode_ticket(entry["MessageBody"]).ticket_id for entry in client.entries(number)] for number in range(4)]
        assert [len(chunk) for chunk in sent] == [10, 10, 1, 5]
        assert sent[2] == ["t13"]

    def test_c10a_an_entry_that_keeps_failing_is_returned_and_no_other(self, queue_of: Any) -> None:
        failure = failed("InternalError", ours=False)
        client = ScriptedSqs(all_but({2: failure}), *[all_but({0: failure})] * (ENTRY_ATTEMPTS - 1))
        pushed = tickets(5)
        assert queue_of(client).push(pushed) == [pushed[2]]
        assert len(client.calls) == ENTRY_ATTEMPTS

    def test_c10a_an_entry_that_is_at_fault_itself_is_not_sent_again(self, queue_of: Any, telemetry: MemoryTelemetry) -> None:
        client = ScriptedSqs(all_but({1: failed("InvalidMessageContents", ours=True)}))
        pushed = tickets(3)
        assert queue_of(client).push(pushed) == [pushed[1]]
        assert len(client.calls) == 1
        (told,) = telemetry.named("aws_call_failed")
        assert told == {
            "operation": "SendMessageBatch",
            "queue": "default",
            "reason": "InvalidMessageContents",
            "count": 1,
        }

    def test_a_throttled_entry_is_sent_again_even_if_sqs_calls_it_our_fault(self, queue_of: Any) -> None:
        client = ScriptedSqs(all_but({0: failed("AWS.SimpleQueueService.RequestThrottled", ours=True)}))
        assert queue_of(client).push(tickets(1)) == []
        assert len(client.calls) == 2

    def test_an_entry_that_the_reply_does_not_mention_was_not_taken(self, queue_of: Any) -> None:
        silent: Reply = lambda entries: {"Successful": [{"Id": entries[0]["Id"]}]}  # noqa: E731
        nothing: Reply = lambda _entries: {"Failed": []}  # noqa: E731
        pushed = tickets(2)
        assert queue_of(ScriptedSqs(silent, nothing, nothing)).push(pushed) == [pushed[1]]

    @pytest.mark.parametrize(("size", "together"), [(100_000, 2), (200 * 1024, 1)])
    def test_c10b_requests_are_split_by_bytes_as_well(self, queue_of: Any, size: int, together: int) -> None:
        client = ScriptedSqs()
        assert queue_of(client).push(tickets(10, size=size)) == []
        assert [len(call["Entries"]) for _, call in client.calls] == [together] * (10 // together)
        for _, call in client.calls:
            assert sum(len(entry["MessageBody"]) for entry in call["Entries"]) <= 262_144

    @pytest.mark.parametrize("failure", [EndpointConnectionError(endpoint_url=URL), throttled(), throttled(503)])
    def test_c10c_what_was_sent_before_a_call_failed_counts_as_taken(self, queue_of: Any, failure: Exception) -> None:
        client = ScriptedSqs({}, {}, failure)
        pushed = tickets(45)
        assert queue_of(client).push(pushed) == pushed[20:]
        assert len(client.calls) == 3

    def test_c10c_a_repetition_that_fails_takes_nothing_back(self, queue_of: Any) -> None:
        client = ScriptedSqs(all_but({4: failed("InternalError", ours=False)}), ConnectTimeoutError(endpoint_url=URL))
        pushed = tickets(12)
        assert queue_of(client).push(pushed) == [pushed[4], *pushed[10:]]

    def test_c10d_entries_of_one_job_have_ids_of_their_own(self, queue_of: Any) -> None:
        client = ScriptedSqs()
        (one,) = tickets(1)
        assert queue_of(client).push([one, one]) == []
        assert len({entry["Id"] for entry in client.entries(0)}) == 2

    @pytest.mark.parametrize(
        ("delay_seconds", "sent"),
        [
            *((0, 0), (0.2, 1), (1, 1), (899, 899), (899.001, 900), (900, 900), (901, 900), (3_600, 900), (46_800, 900)),
            *((-1, 0), (-math.inf, 0), (math.inf, 900), (math.nan, 0), (2.0**40, 900)),
        ],
    )
    def test_c12_a_delay_is_whole_seconds_from_0_to_900(self, queue_of: Any, delay_seconds: float, sent: int) -> None:
        client = ScriptedSqs()
        queue_of(client).push(tickets(1), delay_seconds)
        assert client.entries(0)[0]["DelaySeconds"] == sent
        assert type(client.entries(0)[0]["DelaySeconds"]) is int

    def test_the_pauses_between_attempts_are_the_clocks(self, queue_of: Any, clock: ManualClock) -> None:
        failure = all_but({0: failed("InternalError", ours=False)})
        queue_of(ScriptedSqs(failure, failure, failure)).push(tickets(1))
        assert 0 < clock.monotonic() < 1

    def test_a_fault_of_the_program_is_raised(self, queue_of: Any) -> None:
        with pytest.raises(ParamValidationError):
            queue_of(ScriptedSqs(ParamValidationError(report="wrong type"))).push(tickets(1))


class TestGroupId:
    @pytest.mark.parametrize("tenant", ["acme", "a", "x" * 128, "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"])
    def test_a_tenant_that_fits_is_the_group(self, tenant: str) -> None:
        assert group_id(tenant) == tenant

    @pytest.mark.parametrize("tenant", ["", "a b", "x" * 129, "ünï", "a\n", "\x7f", "\ud800", "🦊"])
    def test_one_that_does_not_is_hashed(self, tenant: str) -> None:
        group = group_id(tenant)
        assert len(group) == 64
        assert group.isalnum()
        assert group.isascii()

    def test_tenants_stay_apart(self) -> None:
        assert len({group_id(tenant) for tenant in ("a b", "a  b", "ü", "u", "", " ")}) == 6

    def test_every_entry_carries_it(self, queue_of: Any) -> None:
        client = ScriptedSqs()
        queue_of(client).push([Ticket(ticket_id="t", job_id="j", tenant="a b")])
        assert client.entries(0)[0]["MessageGroupId"] == group_id("a b")


class TestLease:
    def test_more_than_ten_take_several_calls_and_only_the_first_waits(self, queue_of: Any) -> None:
        client = ScriptedSqs(
            {"Messages": [message(number) for number in range(10)]},
            {"Messages": [message(number) for number in range(10, 13)]},
            read_timeout=30,
        )
        assert [lease.message_id for lease in queue_of(client).lease(25, 30, 20)] == [f"m{number}" for number in range(13)]
        assert [call["MaxNumberOfMessages"] for _, call in client.calls] == [10, 10]
        assert [call["WaitTimeSeconds"] for _, call in client.calls] == [20, 0]

    def test_deliveries_are_what_sqs_counted(self, queue_of: Any) -> None:
        client = ScriptedSqs({"Messages": [message(0, deliveries=7)]})
        (lease,) = queue_of(client).lease(1, 30)
        assert lease == Lease("{}", "receipt0", 7, "m0", "default")
        assert client.calls[0][1]["MessageSystemAttributeNames"] == ["ApproximateReceiveCount"]

    @pytest.mark.parametrize(
        ("seconds", "sent"), [(0, 0), (0.5, 1), (30, 30), (43_200, 43_200), (43_201, 43_200), (1e12, 43_200)]
    )
    def test_c13_a_lease_is_whole_seconds_up_to_twelve_hours(self, queue_of: Any, seconds: float, sent: int) -> None:
        client = ScriptedSqs()
        queue_of(client).lease(1, seconds)
        assert client.calls[0][1]["VisibilityTimeout"] == sent

    def test_messages_already_received_are_not_thrown_away_when_a_later_call_fails(self, queue_of: Any) -> None:
        client = ScriptedSqs({"Messages": [message(number) for number in range(10)]}, throttled())
        assert len(queue_of(client).lease(20, 30)) == 10

    def test_c48_too_many_in_flight_is_told_and_no_empty_queue(self, queue_of: Any) -> None:
        """What SQS says to a short poll; to a long one it says nothing, and the alarm on what is in flight does."""
        error = {"Code": "AWS.SimpleQueueService.OverLimit", "Message": "Too many messages in flight"}
        over_limit = ClientError({"Error": error, "ResponseMetadata": {"HTTPStatusCode": 403}}, "ReceiveMessage")
        with pytest.raises(Unavailable, match="OverLimit"):
            queue_of(ScriptedSqs(over_limit)).lease(1, 30)

    @pytest.mark.parametrize("failure", [throttled(), throttled(500), EndpointConnectionError(endpoint_url=URL)])
    def test_a_service_out_of_reach_is_unavailable(self, queue_of: Any, failure: Exception) -> None:
        with pytest.raises(Unavailable) as raised:
            queue_of(ScriptedSqs(failure)).lease(1, 30)
        assert raised.value.retry_after_seconds > 0
        assert raised.value.__cause__ is failure

    def test_a_wait_never_outlasts_the_clients_patience(self, queue_of: Any) -> None:
        client = ScriptedSqs(read_timeout=5)
        queue_of(client).lease(1, 30, wait_seconds=20)
        assert client.calls[0][1]["WaitTimeSeconds"] == 3

    def test_only_a_lease_that_waits_uses_the_polling_client(self, queue_of: Any) -> None:
        usual, polling = ScriptedSqs(), ScriptedSqs(read_timeout=25)
        queue = queue_of(usual, polling=lambda: polling)
        queue.lease(1, 30)
        queue.lease(1, 30, wait_seconds=60)
        assert [call["WaitTimeSeconds"] for _, call in usual.calls] == [0]
        assert [call["WaitTimeSeconds"] for _, call in polling.calls] == [20]


class TestExtend:
    @pytest.mark.parametrize(
        "failure",
        [
            failed("MessageNotInflight", ours=True),
            failed("AWS.SimpleQueueService.MessageNotInflight", ours=True),
            failed("com.amazonaws.sqs#MessageNotInflight", ours=True),
            failed("ReceiptHandleIsInvalid", ours=True),
            failed("InvalidParameterValue", STALE_REASON, ours=True),
        ],
    )
    def test_c15_a_lease_that_is_over_is_lost(self, queue_of: Any, telemetry: MemoryTelemetry, failure: dict[str, Any]) -> None:
        held = leases(3)
        assert queue_of(ScriptedSqs(all_but({1: failure}))).extend(held, 30) == [held[1]]
        assert telemetry.events == []

    @pytest.mark.parametrize("failure", [throttled(), throttled(503), ConnectTimeoutError(endpoint_url=URL)])
    def test_a_call_that_fails_loses_nothing(self, queue_of: Any, failure: Exception) -> None:
        queue = queue_of(ScriptedSqs(failure))
        with pytest.raises(Unavailable):
            queue.extend(leases(3), 30)
        assert queue.extend(leases(3), 30) == []

    def test_a_throttled_entry_is_not_lost(self, queue_of: Any) -> None:
        throttle = all_but({0: failed("RequestThrottled", ours=True)})
        with pytest.raises(Unavailable, match="RequestThrottled"):
            queue_of(ScriptedSqs(throttle, throttle, throttle)).extend(leases(2), 30)

    def test_what_is_lost_is_told_even_when_another_is_unknown(self, queue_of: Any) -> None:
        held = leases(12)
        client = ScriptedSqs(all_but({4: failed("MessageNotInflight", ours=True)}), throttled())
        assert queue_of(client).extend(held, 30) == [held[4]]

    def test_fractions_are_rounded_up(self, queue_of: Any) -> None:
        client = ScriptedSqs()
        queue_of(client).extend(leases(1), 1.2)
        assert client.entries(0)[0]["VisibilityTimeout"] == 2

    def test_c13_the_full_ceiling_a_moment_after_the_receive_is_clipped(self, queue_of: Any, clock: ManualClock) -> None:
        client = ScriptedSqs({"Messages": [message(0)]})
        queue = queue_of(client)
        held = queue.lease(1, 30)
        clock.advance(1)
        assert queue.extend(held, 43_200) == []
        assert 43_180 <= client.entries(1)[0]["VisibilityTimeout"] < 43_199

    def test_c13_heartbeats_never_reach_beyond_the_ceiling_and_then_the_lease_is_lost(
        self, queue_of: Any, clock: ManualClock
    ) -> None:
        client = ScriptedSqs({"Messages": [message(0)]})
        queue = queue_of(client)
        held = queue.lease(1, 3_600)
        ends_at: list[float] = []
        while not (lost := queue.extend(held, 3_600)):
            ends_at.append(clock.monotonic() + client.entries(-1)[0]["VisibilityTimeout"])
            clock.advance(1_200)
        assert lost == held
        assert max(ends_at) <= 43_200
        assert max(ends_at) >= 43_200 - 60

    def test_c13_the_ceiling_of_a_lease_handed_over_by_lambda_counts_from_when_it_was_first_seen(
        self, queue_of: Any, clock: ManualClock
    ) -> None:
        client = ScriptedSqs()
        queue = queue_of(client)
        assert queue.extend(leases(1), 30) == []
        clock.advance(43_000)
        assert queue.extend(leases(1), 600) == []
        assert client.entries(1)[0]["VisibilityTimeout"] <= 200

    def test_c13_where_sqs_has_counted_further_less_is_asked_for_until_it_agrees(self, queue_of: Any) -> None:
        too_much = all_but({0: failed("InvalidParameterValue", CEILING_REASON, ours=True)})
        client = ScriptedSqs(too_much, too_much, {})
        queue = queue_of(client)
        for _ in range(3):
            assert queue.extend(leases(1), 600) == []
        assert [client.entries(number)[0]["VisibilityTimeout"] for number in range(3)] == [600, 300, 150]

    def test_c13_a_lease_that_cannot_be_extended_at_all_ends_as_lost(self, queue_of: Any) -> None:
        too_much = all_but({0: failed("InvalidParameterValue", CEILING_REASON, ours=True)})
        queue = queue_of(ScriptedSqs(*[too_much] * 20))
        answers = [queue.extend(leases(1), 600) for _ in range(11)]
        assert answers[0] == []
        assert leases(1) in answers


class TestAcknowledgeAndRelease:
    @pytest.mark.parametrize("verb", ["acknowledge", "release"])
    @pytest.mark.parametrize(
        "failure",
        [
            failed("ReceiptHandleIsInvalid", ours=True),
            failed("MessageNotInflight", ours=True),
            failed("InvalidParameterValue", STALE_REASON, ours=True),
        ],
    )
    def test_c15_stale_receipts_are_ignored(self, queue_of: Any, verb: str, failure: dict[str, Any]) -> None:
        client = ScriptedSqs(all_but({0: failure}))
        getattr(queue_of(client), verb)(leases(2))
        assert len(client.calls) == 1

    @pytest.mark.parametrize("verb", ["acknowledge", "release"])
    def test_a_service_out_of_reach_is_unavailable(self, queue_of: Any, verb: str) -> None:
        with pytest.raises(Unavailable):
            getattr(queue_of(ScriptedSqs(ConnectTimeoutError(endpoint_url=URL))), verb)(leases(2))

    @pytest.mark.parametrize("verb", ["acknowledge", "release"])
    def test_an_entry_that_sqs_failed_is_sent_again(self, queue_of: Any, verb: str) -> None:
        client = ScriptedSqs(all_but({1: failed("InternalError", ours=False)}))
        getattr(queue_of(client), verb)(leases(2))
        assert [entry["ReceiptHandle"] for entry in client.entries(1)] == ["receipt1"]

    def test_a_release_is_delayed_by_whole_seconds_rounded_up(self, queue_of: Any) -> None:
        client = ScriptedSqs()
        queue_of(client).release(leases(1), 1.5)
        queue_of(client).release(leases(1))
        queue_of(client).release(leases(1), 1e9)
        sent = [client.entries(number)[0]["VisibilityTimeout"] for number in range(3)]
        assert sent[:2] == [2, 0]
        assert 43_000 < sent[2] < 43_200


class TestDepth:
    def test_it_reads_the_approximate_numbers(self, queue_of: Any) -> None:
        numbers = {
            "ApproximateNumberOfMessages": "5",
            "ApproximateNumberOfMessagesNotVisible": "3",
            "ApproximateNumberOfMessagesDelayed": "2",
        }
        depth = queue_of(ScriptedSqs({"Attributes": numbers})).depth()
        assert (depth.ready, depth.leased, depth.delayed) == (5, 3, 2)

    def test_a_queue_out_of_reach_is_unavailable(self, queue_of: Any) -> None:
        with pytest.raises(Unavailable, match="depth of queue default"):
            queue_of(ScriptedSqs(throttled())).depth()
