"""The environment, read once into one typed value."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import msgspec

from ringfence.errors import RingfenceError


class Misconfigured(RingfenceError):
    """The environment does not say what Ringfence needs to know."""


MIN_LEASE_SECONDS = 1.0
"""A heartbeat comes every third of a lease; of a shorter one, one slow call would be the end."""

MAX_RETENTION_DAYS = 180.0
"""Large texts lie beside the rows, and are swept up 400 days after their job was due (``aws/texts.py``): a job that is redriven
on its last day and kept as long again must still find its payload."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every setting, its variable, and what it defaults to."""

    ledger_table: str
    """``RINGFENCE_LEDGER_TABLE``: the DynamoDB table of jobs, keys and the quarantine."""
    stream: str
    """``RINGFENCE_STREAM``: the Kinesis stream that is the log."""
    queues: Mapping[str, str] = field(repr=False)
    """``RINGFENCE_QUEUES``: JSON object, queue name → where it is: an SQS URL, ``sqs://name``, or ``redis://host:port/name`` as
    `ringfence.redis.address` reads it. Not shown, for it may hold a password."""
    last_resort_queue: str | None = None
    """``RINGFENCE_LAST_RESORT_QUEUE``: URL of the queue that SQS moves a message to after 1,000 receives."""
    bucket: str | None = None
    """``RINGFENCE_BUCKET``: failed batches of the relay; the example jobs read their files there too."""
    tables: Mapping[str, str] = field(default_factory=dict)
    """``RINGFENCE_TABLES``: JSON object, the table name that jobs use → the physical one. Others are used as they are."""
    app: str | None = None
    """``RINGFENCE_APP``: where the worker finds the user's `App`, as ``module:attribute``."""
    auth: str = "api-key"
    """``RINGFENCE_AUTH``: ``api-key`` or ``none`` (only for loopback)."""
    wait_cap_seconds: float = 0.0
    """``RINGFENCE_WAIT_CAP_SECONDS``: the longest ``?wait=``; 0 turns long-polling off."""
    worker_threads: int = 4
    """``RINGFENCE_WORKER_THREADS``: jobs that run at once in one worker process."""
    lease_seconds: float = 30.0
    """``RINGFENCE_LEASE_SECONDS``: the lease of a job that names none."""
    retention_days: float = 7.0
    """``RINGFENCE_RETENTION_DAYS``: how long a finished job is kept. Later than the log's retention, always."""
    pace_horizon_seconds: float = 120.0
    """``RINGFENCE_PACE_HORIZON_SECONDS``: how far ahead tickets are pushed that a rate holds back; later ones are parked. What
    is pushed is not called back, so the shorter it is, the sooner a changed rate or a pause is felt. At least twice the period
    of the timers, or the pace pauses for them."""
    reconcile_every_hours: float = 24.0
    """``RINGFENCE_RECONCILE_EVERY_HOURS``: how often the timers look through all jobs for some without a ticket."""
    reconcile_after_hours: float = 25.0
    """``RINGFENCE_RECONCILE_AFTER_HOURS``: how long such a job must not have changed. Longer than the log keeps a record: what
    is still in there has no ticket either, and will get one."""
    service: str = "ringfence"
    """``POWERTOOLS_SERVICE_NAME``: the dimension of the metrics; the stack's name, so that two stacks tell theirs apart."""
    endpoint_url: str | None = None
    """``AWS_ENDPOINT_URL``: an emulator instead of AWS. boto3 reads it by itself; here it is only told."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Settings:
        """What is not set, or set to nothing, has its default. Raises `Misconfigured` naming the variable at fault."""
        given = {name: value for name, value in environment.items() if value}
        _check_those_of_others(given)
        for name in ("RINGFENCE_LEDGER_TABLE", "RINGFENCE_STREAM"):
            if name not in given:
                raise Misconfigured(f"{name} is not set")
        read: dict[str, Any] = {"queues": {}}
        read |= {field: given[name] for field, name in _TEXTS.items() if name in given}
        read |= {field: _names(name, given[name]) for field, name in _NAMES.items() if name in given}
        read |= {field: _number(each, given[each.name]) for field, each in _NUMBERS.items() if each.name in given}
        settings = cls(**read)
        if settings.auth not in ("api-key", "none"):
            raise Misconfigured(f"RINGFENCE_AUTH is neither api-key nor none: {settings.auth!r}")
        return settings


@dataclass(frozen=True, slots=True)
class _Number:
    """A variable that is a number, and the values it may have."""

    name: str
    least: float
    most: float
    whole: bool = False


_TEXTS = {
    "ledger_table": "RINGFENCE_LEDGER_TABLE",
    "stream": "RINGFENCE_STREAM",
    "last_resort_queue": "RINGFENCE_LAST_RESORT_QUEUE",
    "bucket": "RINGFENCE_BUCKET",
    "app": "RINGFENCE_APP",
    "auth": "RINGFENCE_AUTH",
    "service": "POWERTOOLS_SERVICE_NAME",
    "endpoint_url": "AWS_ENDPOINT_URL",
}
_NAMES = {"queues": "RINGFENCE_QUEUES", "tables": "RINGFENCE_TABLES"}
_NUMBERS = {
    # Below the gateway's own timeout.
    "wait_cap_seconds": _Number("RINGFENCE_WAIT_CAP_SECONDS", 0, 20),
    # As many as the connections that a process keeps open.
    "worker_threads": _Number("RINGFENCE_WORKER_THREADS", 1, 64, whole=True),
    # A message is hidden for twelve hours at most.
    # https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-visibility-timeout.html
    "lease_seconds": _Number("RINGFENCE_LEASE_SECONDS", MIN_LEASE_SECONDS, 12 * 3600),
    # Longer than any log's retention: a record that is read again must find its job, or it would run anew.
    "retention_days": _Number("RINGFENCE_RETENTION_DAYS", 7, MAX_RETENTION_DAYS),
    # What SQS can delay.
    # https://docs.aws.amazon.com/AWSSimpleQueueService/latest/SQSDeveloperGuide/sqs-delay-queues.html
    "pace_horizon_seconds": _Number("RINGFENCE_PACE_HORIZON_SECONDS", 1, 900),
    # Each reads the whole table. Less often than once in 14 days, and SQS has forgotten tickets of its own.
    "reconcile_every_hours": _Number("RINGFENCE_RECONCILE_EVERY_HOURS", 1, 14 * 24),
    # Longer than anything that hides a ticket in a queue.
    "reconcile_after_hours": _Number("RINGFENCE_RECONCILE_AFTER_HOURS", 1, 14 * 24),
}


_LOCALSTACK_HOST = re.compile(r"[^:/\s]+(:\d{1,5})?")


def is_http_url(text: str) -> bool:
    """Whether this can be the address of a service."""
    try:
        parts = urlsplit(text)
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0 and text.isprintable()
    except ValueError:
        return False


def _check_those_of_others(given: Mapping[str, str]) -> None:
    """Variables that boto3 and Powertools read by themselves, and then fail with whatever they come upon."""
    for name, value in given.items():
        if name.startswith("AWS_ENDPOINT_URL") and not is_http_url(value):
            raise Misconfigured(f"{name} is not a URL such as http://127.0.0.1:4566: {value!r}")
    if not _LOCALSTACK_HOST.fullmatch(given.get("LOCALSTACK_HOST", "localhost")):
        raise Misconfigured(f"LOCALSTACK_HOST is not host or host:port: {given['LOCALSTACK_HOST']!r}")
    levels = logging.getLevelNamesMapping()
    # Powertools looks at the second, its older name, only without the first.
    for name in ("POWERTOOLS_LOG_LEVEL", "LOG_LEVEL"):
        if name in given:
            if given[name].upper() not in levels:
                raise Misconfigured(f"{name} is none of {', '.join(levels)}: {given[name]!r}")
            return


def _names(name: str, value: str) -> dict[str, str]:
    try:
        return msgspec.json.decode(value, type=dict[str, str])
    except msgspec.DecodeError as fault:
        raise Misconfigured(f"{name} is not a JSON object of strings: {fault}") from None


def _number(wanted: _Number, value: str) -> float:
    try:
        number = float(value)
        # Not a number is in no range.
        if wanted.least <= number <= wanted.most and (number.is_integer() or not wanted.whole):
            return int(number) if wanted.whole else number
    except ValueError:
        pass
    kind = "whole number" if wanted.whole else "number"
    raise Misconfigured(f"{wanted.name} is not a {kind} from {wanted.least:g} to {wanted.most:g}: {value!r}")
