"""The queue on SQS (standard queues)."""

from __future__ import annotations

import hashlib
import math
import random
import re
from collections.abc import Callable, Sequence
from typing import Any

from ringfence.aws.clients import LONG_POLL_SECONDS
from ringfence.aws.failures import FAILURES, unavailable
from ringfence.aws.sqs_batches import Batches, EntryFailure
from ringfence.aws.visibility import Allowances, whole_seconds
from ringfence.clock import SystemClock
from ringfence.errors import Unavailable
from ringfence.ports import MAX_DELAY_SECONDS, MAX_LEASE_SECONDS, Clock, Depth, Lease, Telemetry
from ringfence.wire import Ticket, encode_ticket

CEILING_MARGIN_SECONDS = 10
"""An extension that would end at the very ceiling is refused as a whole, and calls take time on their way."""

MAX_MESSAGES = 10
"""Per ReceiveMessage."""

_FITS_GROUP_ID = re.compile("[!-~]{1,128}")
"""Letters, digits and punctuation of ASCII.
https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/quotas-messages.html"""


class SqsQueue:
    """One SQS queue. Every call may raise `Unavailable`, except `push`, which returns what was not taken.

    A receipt proves nothing here: SQS may accept a stale one, or answer success and do nothing. The ledger decides.
    """

    max_delay_seconds = MAX_DELAY_SECONDS
    max_lease_seconds = MAX_LEASE_SECONDS

    def __init__(
        self,
        client: Any,
        name: str,
        url: str,
        *,
        polling: Callable[[], Any] | None = None,
        clock: Clock | None = None,
        random_source: random.Random | None = None,
        telemetry: Telemetry | None = None,
    ) -> None:
        """``polling`` makes the client for leases that wait (``clients.client("sqs", long_poll=True)``); without it they wait
        no longer than ``client``'s read timeout allows."""
        self.name = name
        self._client, self._url = client, url
        self._polling = polling or (lambda: client)
        self._clock = clock or SystemClock()
        self._allowances = Allowances(self._clock, MAX_LEASE_SECONDS - CEILING_MARGIN_SECONDS)
        self._batches = Batches(url, name, self._clock, random_source or random.Random(), telemetry)

    def push(self, tickets: Sequence[Ticket], delay_seconds: float | Sequence[float] = 0.0) -> list[Ticket]:
        """See `ringfence.ports.Queue.push`. Once a call fails as a whole, the rest is not tried: it counts as not taken."""
        delays = [delay_seconds] * len(tickets) if isinstance(delay_seconds, int | float) else delay_seconds
        entries = [
            {
                "MessageBody": encode_ticket(ticket),
                "DelaySeconds": whole_seconds(delay, MAX_DELAY_SECONDS),
                "MessageGroupId": group_id(ticket.tenant),
            }
            for ticket, delay in zip(tickets, delays, strict=True)
        ]
        failures = self._batches.send(self._client.send_message_batch, "SendMessageBatch", entries)
        return [tickets[failure.index] for failure in failures]

    def lease(self, max_tickets: int, lease_seconds: float, wait_seconds: float = 0.0) -> list[Lease]:
        """See `ringfence.ports.Queue.lease`. Returns early once SQS has fewer than asked for."""
        leases: list[Lease] = []
        while len(leases) < max_tickets:
            wanted = min(MAX_MESSAGES, max_tickets - len(leases))
            try:
                received = self._receive(wanted, lease_seconds, 0.0 if leases else wait_seconds)
            except FAILURES as failure:
                if leases:
                    break  # these are hidden from everybody else already: better worked on than waited out
                raise unavailable(failure, f"lease from queue {self.name}") from failure
            leases += received
            if len(received) < wanted:
                break
        return leases

    def extend(self, leases: Sequence[Lease], lease_seconds: float) -> list[Lease]:
        """See `ringfence.ports.Queue.extend`. At the 12-hour ceiling nothing is gained, and then the lease is lost.

        Raises `Unavailable` when some lease could not be extended and none is known to be lost.
        """
        lost = [lease for lease in leases if self._allowances.over(lease.receipt)]
        held = [lease for lease in leases if lease not in lost]
        seconds = [self._allowances.clip(lease.receipt, lease_seconds) for lease in held]
        unknown: list[EntryFailure] = []
        for failure in self._change_visibility(held, seconds):
            lease = held[failure.index]
            if failure.stale:
                lost.append(lease)
            elif failure.beyond_ceiling:
                self._allowances.refused(lease.receipt, seconds[failure.index])
            else:
                unknown.append(failure)
        self._allowances.drop(lease.receipt for lease in lost)
        if unknown and not lost:
            raise _unavailable_entries(unknown, f"extend leases of queue {self.name}")
        return lost

    def acknowledge(self, leases: Sequence[Lease]) -> None:
        """See `ringfence.ports.Queue.acknowledge`."""
        entries = [{"ReceiptHandle": lease.receipt} for lease in leases]
        failures = self._batches.send(self._client.delete_message_batch, "DeleteMessageBatch", entries)
        self._allowances.drop(lease.receipt for lease in leases)
        self._raise_unless_stale(failures, "acknowledge")

    def release(self, leases: Sequence[Lease], delay_seconds: float = 0.0) -> None:
        """See `ringfence.ports.Queue.release`."""
        seconds = [self._allowances.clip(lease.receipt, delay_seconds) for lease in leases]
        failures = self._change_visibility(leases, seconds)
        self._allowances.drop(lease.receipt for lease in leases)
        self._raise_unless_stale(failures, "release")

    def depth(self) -> Depth:
        """See `ringfence.ports.Queue.depth`."""
        names = ("", "NotVisible", "Delayed")
        attributes = [f"ApproximateNumberOfMessages{name}" for name in names]
        try:
            reply = self._client.get_queue_attributes(QueueUrl=self._url, AttributeNames=attributes)
        except FAILURES as failure:
            raise unavailable(failure, f"read the depth of queue {self.name}") from failure
        ready, leased, delayed = (int(reply.get("Attributes", {}).get(attribute, 0)) for attribute in attributes)
        return Depth(ready=ready, leased=leased, delayed=delayed)

    def _receive(self, max_messages: int, lease_seconds: float, wait_seconds: float) -> list[Lease]:
        client = self._polling() if wait_seconds > 0 else self._client
        asked_at = self._clock.monotonic()
        reply = client.receive_message(
            QueueUrl=self._url,
            MaxNumberOfMessages=max_messages,
            VisibilityTimeout=whole_seconds(lease_seconds, MAX_LEASE_SECONDS),
            WaitTimeSeconds=whole_seconds(wait_seconds, _longest_wait_seconds(client)),
            MessageSystemAttributeNames=["ApproximateReceiveCount"],
        )
        leases = [
            Lease(
                body=message["Body"],
                receipt=message["ReceiptHandle"],
                deliveries=int(message["Attributes"]["ApproximateReceiveCount"]),
                message_id=message["MessageId"],
                queue=self.name,
            )
            for message in reply.get("Messages", [])
        ]
        for lease in leases:
            self._allowances.start(lease.receipt, asked_at)
        return leases

    def _change_visibility(self, leases: Sequence[Lease], seconds: Sequence[int]) -> list[EntryFailure]:
        entries = [
            {"ReceiptHandle": lease.receipt, "VisibilityTimeout": timeout}
            for lease, timeout in zip(leases, seconds, strict=True)
        ]
        return self._batches.send(self._client.change_message_visibility_batch, "ChangeMessageVisibilityBatch", entries)

    def _raise_unless_stale(self, failures: Sequence[EntryFailure], verb: str) -> None:
        unknown = [failure for failure in failures if not failure.stale and not failure.beyond_ceiling]
        if unknown:
            raise _unavailable_entries(unknown, f"{verb} messages of queue {self.name}")


def group_id(tenant: str) -> str:
    """The tenant as a message group, which makes a standard queue share itself fairly between tenants.

    https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-fair-queues.html
    """
    return tenant if _FITS_GROUP_ID.fullmatch(tenant) else hashlib.sha256(tenant.encode(errors="surrogatepass")).hexdigest()


def _longest_wait_seconds(client: Any) -> int:
    """SQS answers a waiting call just after its time: a client that hangs up at that moment would lose the messages."""
    read_timeout_seconds: float = client.meta.config.read_timeout
    return max(0, min(LONG_POLL_SECONDS, math.floor(read_timeout_seconds) - 2))


def _unavailable_entries(failures: Sequence[EntryFailure], doing: str) -> Unavailable:
    codes = ", ".join(sorted({failure.code for failure in failures}))
    return Unavailable(f"cannot {doing}: {codes} ({len(failures)} of them)")
