"""The environment, read once into one typed value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec

from ringfence.errors import RingfenceError


class Misconfigured(RingfenceError):
    """The environment does not say what Ringfence needs to know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Every setting, its variable, and what it defaults to."""

    ledger_table: str
    """``RINGFENCE_LEDGER_TABLE``: the DynamoDB table of jobs, keys and the quarantine."""
    stream: str
    """``RINGFENCE_STREAM``: the Kinesis stream that is the log."""
    queues: Mapping[str, str]
    """``RINGFENCE_QUEUES``: JSON object, queue name → SQS URL."""
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
    service: str = "ringfence"
    """``POWERTOOLS_SERVICE_NAME``: the dimension of the metrics; the stack's name, so that two stacks tell theirs apart."""
    endpoint_url: str | None = None
    """``AWS_ENDPOINT_URL``: an emulator instead of AWS. boto3 reads it by itself; here it is only told."""

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> Settings:
        """Raises `Misconfigured` naming the variable at fault."""

        def required(name: str) -> str:
            value = environment.get(name, "")
            if not value:
                raise Misconfigured(f"{name} is not set")
            return value

        def names(name: str) -> dict[str, str]:
            try:
                return msgspec.json.decode(environment.get(name) or "{}", type=dict[str, str])
            except msgspec.DecodeError as fault:
                raise Misconfigured(f"{name} is not a JSON object of strings: {fault}") from None

        def number(name: str, default: float) -> float:
            try:
                return float(environment.get(name) or default)
            except ValueError:
                raise Misconfigured(f"{name} is not a number: {environment[name]!r}") from None

        auth = environment.get("RINGFENCE_AUTH") or "api-key"
        if auth not in ("api-key", "none"):
            raise Misconfigured(f"RINGFENCE_AUTH is neither api-key nor none: {auth!r}")
        return cls(
            ledger_table=required("RINGFENCE_LEDGER_TABLE"),
            stream=required("RINGFENCE_STREAM"),
            queues=names("RINGFENCE_QUEUES"),
            last_resort_queue=environment.get("RINGFENCE_LAST_RESORT_QUEUE") or None,
            bucket=environment.get("RINGFENCE_BUCKET") or None,
            tables=names("RINGFENCE_TABLES"),
            app=environment.get("RINGFENCE_APP") or None,
            auth=auth,
            wait_cap_seconds=number("RINGFENCE_WAIT_CAP_SECONDS", 0.0),
            worker_threads=int(number("RINGFENCE_WORKER_THREADS", 4)),
            lease_seconds=number("RINGFENCE_LEASE_SECONDS", 30.0),
            retention_days=number("RINGFENCE_RETENTION_DAYS", 7.0),
            service=environment.get("POWERTOOLS_SERVICE_NAME") or "ringfence",
            endpoint_url=environment.get("AWS_ENDPOINT_URL") or None,
        )
