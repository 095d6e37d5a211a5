"""Put into every process of a campaign before its own code: faults by script in front of boto3, wrong clocks, the next version
of what travels; and a line for what the product has no reason to tell, such as that it knew a write for its own.

Nothing here changes what the product decides.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import random
import sys
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
from orders import ORDERS_VARIABLE, OrdersFile, Refusal
from planted import PLANTED_VARIABLE, PLANTS
from recorder import HISTORY_VARIABLE, NO_ANSWER_STATUS, Recorder

from ringfence import attempt, change, clock, wire
from ringfence.aws import clients
from ringfence.gateway import Gateway
from ringfence.relay import Relay
from ringfence.runtime import Runtime
from ringfence.testing.sdk_faults import Attempt, refused
from ringfence.worker import Worker

REMEMBERED = 1_000
"""Refused requests of which it is told that they were sent again with success."""

_random = random.Random()


def tell(event: str, **fields: str | int | float) -> None:
    """One line, whole, beside those of the product."""
    os.write(1, json.dumps({"event": event, "pid": os.getpid(), **fields}).encode() + b"\n")


def install() -> None:
    """Once, in a process that is to be tried."""
    orders = OrdersFile(Path(os.environ[ORDERS_VARIABLE]))
    if planted := os.environ.get(PLANTED_VARIABLE):
        PLANTS[planted](setattr)
    _record(Recorder(Path(os.environ[HISTORY_VARIABLE])))
    _faults_in_front_of_boto3(orders)
    _tell_of_own_writes()
    _tell_of_next_version()
    if orders.current.writes_version != wire.WRITES_VERSION:
        _write_next_version(orders.current.writes_version)


def make_clock_wrong() -> None:
    """Let this process's wall clock go by the orders: for workers, whose clocks must not matter."""
    orders = OrdersFile(Path(os.environ[ORDERS_VARIABLE]))
    right: Callable[[clock.SystemClock], int] = clock.SystemClock.now
    told: set[float] = set()

    def wrong(self: clock.SystemClock) -> int:
        offsets = orders.current.clock_offsets_seconds
        if not offsets:
            return right(self)
        offset = offsets[os.getpid() % len(offsets)]
        if offset not in told:
            told.add(offset)
            tell("campaign_clock_wrong", offset_seconds=offset)
        return right(self) + round(offset * 1_000)

    clock.SystemClock.now = wrong  # type: ignore[method-assign]


# --- the history ----------------------------------------------------------------------------------------------------


def _record(here: Recorder) -> None:
    """Behind the planted bugs, whose calls are to be seen, and before the faults, which nobody sends."""
    wrapped = Runtime._wrapped
    Runtime._wrapped = lambda self, name, port: here.wrap(name, wrapped(self, name, port))  # type: ignore[method-assign]
    for owner, method, around in (
        (Gateway, "submit", here.accepts),
        (Relay, "handle", here.relays),
        (Worker, "handle", here.works),
    ):
        setattr(owner, method, _around(getattr(owner, method), around))
    _replace(attempt.run_code, here.runs(attempt.run_code))
    _in_front_of_boto3(lambda client, _service: _notice_no_answers(client, here))


def _around(real: Callable[..., Any], around: Callable[[Callable[..., Any]], Callable[..., Any]]) -> Callable[..., Any]:
    return lambda self, *args: around(functools.partial(real, self))(*args)


def _notice_no_answers(client: Any, here: Recorder) -> None:
    endpoint = client._endpoint
    really = endpoint._do_get_response

    def attempt(request: Any, operation_model: Any, context: Any) -> Attempt:
        answer: Attempt = really(request, operation_model, context)
        if answer[0] is None or answer[0][0].status_code >= NO_ANSWER_STATUS:
            here.unanswered()
        return answer

    endpoint._do_get_response = attempt


# --- boto3 -----------------------------------------------------------------------------------------------------------


def _faults_in_front_of_boto3(orders: OrdersFile) -> None:
    def put(client: Any, service: str) -> None:
        _refuse_attempts(client, service, orders)
        _fail_entries(client, service, orders)

    _in_front_of_boto3(put)


def _in_front_of_boto3(put: Callable[[Any, str], None]) -> None:
    """In front of every client that is built from now on, and of what was put there before."""
    build = clients._Clients._build

    @functools.wraps(build)
    def build_and_put(self: Any, service: str, config: Any) -> Any:
        client = build(self, service, config)
        put(client, service)
        return client

    clients._Clients._build = build_and_put  # type: ignore[method-assign]


def _refuse_attempts(client: Any, service: str, orders: OrdersFile) -> None:
    endpoint = client._endpoint  # as in `ringfence.testing.sdk_faults`: the one place every attempt passes
    really = endpoint._do_get_response
    were_refused: OrderedDict[str, str] = OrderedDict()

    def attempt(request: Any, operation_model: Any, context: Any) -> Attempt:
        operation = f"{service}.{operation_model.name}"
        same = hashlib.sha1(operation.encode() + (request.body or b""), usedforsecurity=False).hexdigest()
        refusal = orders.current.refused.get(operation)
        if refusal is not None and _random.random() < refusal.share:
            were_refused[same] = refusal.code
            if len(were_refused) > REMEMBERED:
                were_refused.popitem(last=False)
            tell("campaign_refused", operation=operation, code=refusal.code)
            return _refuse(refusal, request)(lambda: (None, None), request.url)
        answer: Attempt = really(request, operation_model, context)
        if were_refused and answer[1] is None and (code := were_refused.pop(same, None)) is not None:
            tell("campaign_retried", operation=operation, code=code)
        return answer

    endpoint._do_get_response = attempt


def _refuse(refusal: Refusal, request: Any) -> Callable[..., Attempt]:
    if refusal.code != "TransactionCanceledException":
        return refused(refusal.code, status=refusal.status)
    items = len(json.loads(request.body)["TransactItems"])
    reasons = [{"Code": "TransactionConflict", "Message": "injected"}, *[{"Code": "None"}] * (items - 1)]
    return refused(refusal.code, CancellationReasons=reasons)


def _fail_entries(client: Any, service: str, orders: OrdersFile) -> None:
    """Batches of which some entries are not carried out, and the answer says so by entry."""
    for method, fail in _PARTIAL.get(service, {}).items():
        really = getattr(client, method)

        def call(
            *, method: str = method, fail: Callable[..., Any] = fail, really: Callable[..., Any] = really, **asked: Any
        ) -> Any:
            share = orders.current.entries_failed.get(f"{service}.{method}", 0.0)
            return fail(really, asked, share) if share else really(**asked)

        setattr(client, method, call)


def _chosen(entries: list[Any], share: float) -> list[bool]:
    return [_random.random() < share for _ in entries]


def _some_records(really: Callable[..., Any], asked: dict[str, Any], share: float) -> Any:
    chosen = _chosen(asked["Records"], share)
    kept = [record for record, fails in zip(asked["Records"], chosen, strict=True) if not fails]
    answer: dict[str, Any] = {"Records": [], "FailedRecordCount": 0}
    if kept:
        answer = really(**{**asked, "Records": kept})
    told = iter(answer["Records"])
    failed = {"ErrorCode": "ProvisionedThroughputExceededException", "ErrorMessage": "injected"}
    if any(chosen):
        tell("campaign_entries_failed", operation="kinesis.put_records", count=sum(chosen))
    return {
        **answer,
        "Records": [failed if fails else next(told) for fails in chosen],
        "FailedRecordCount": answer["FailedRecordCount"] + sum(chosen),
    }


def _some_messages(really: Callable[..., Any], asked: dict[str, Any], share: float) -> Any:
    chosen = _chosen(asked["Entries"], share)
    kept = [entry for entry, fails in zip(asked["Entries"], chosen, strict=True) if not fails]
    answer = really(**{**asked, "Entries": kept}) if kept else {"Successful": []}
    failed = [
        {"Id": entry["Id"], "SenderFault": False, "Code": "InternalError", "Message": "injected"}
        for entry, fails in zip(asked["Entries"], chosen, strict=True)
        if fails
    ]
    if failed:
        tell("campaign_entries_failed", operation="sqs", count=len(failed))
    return {**answer, "Failed": [*answer.get("Failed", []), *failed]}


_PARTIAL: dict[str, dict[str, Callable[..., Any]]] = {
    "kinesis": {"put_records": _some_records},
    "sqs": {
        "send_message_batch": _some_messages,
        "delete_message_batch": _some_messages,
        "change_message_visibility_batch": _some_messages,
    },
}


# --- what is told, and the next version ------------------------------------------------------------------------------


def _tell_of_own_writes() -> None:
    decide = change.is_own_write

    def decide_and_tell(write: Any, seen: Any) -> bool:
        own = decide(write, seen)
        if own:
            tell("campaign_own_write", job_id=write.job_id)
        return own

    _replace(decide, decide_and_tell)


def _tell_of_next_version() -> None:
    decode_ticket, decode_record = wire.decode_ticket, wire.decode_record

    def ticket(body: str) -> wire.Ticket:
        decoded = decode_ticket(body)
        if decoded.v != 1:
            tell("campaign_next_version_read", what="ticket", job_id=decoded.job_id)
        return decoded

    def record(data: bytes) -> list[wire.JobRecord]:
        jobs = decode_record(data)
        if msgspec.json.decode(data)["v"] != 1:
            tell("campaign_next_version_read", what="record", jobs=len(jobs))
        return jobs

    _replace(decode_ticket, ticket)
    _replace(decode_record, record)


def _write_next_version(version: int) -> None:
    """As the release after this one will: its readers, and ours, know both."""
    encode = wire.encode_ticket
    wire.WRITES_VERSION = version
    # A ticket's version is a field of it, and those of the next release are made with it.
    _replace(encode, lambda ticket: encode(msgspec.structs.replace(ticket, v=version)))


def _replace(there: Any, instead: Any) -> None:
    """In whichever of the library's modules has taken it by name already."""
    for module in [module for name, module in sys.modules.items() if name.split(".")[0] == "ringfence"]:
        for name, value in list(vars(module).items()):
            if value is there:
                setattr(module, name, instead)
