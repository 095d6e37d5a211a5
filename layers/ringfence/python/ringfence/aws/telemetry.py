"""Events as JSON lines and CloudWatch metrics, by way of Powertools."""

from __future__ import annotations

import json
import logging
import math
import os
import sys
from contextlib import suppress
from typing import Any

from ringfence.event_names import LEVELS, MEASURED, METRICS, NEVER_TOLD

NAMESPACE = "Ringfence"

MAX_FIELD_CHARACTERS = 2_000
"""An error can be as long as the job that raised it wants; CloudWatch Logs cuts events at 1 MB and charges for every byte."""

Field = str | int | float | bool | None

_TAKEN = frozenset(vars(logging.makeLogRecord({}))) | {
    "asctime", "event", "exception", "exception_name", "level", "location", "message", "sampling_rate", "service", "taskName",
    "timestamp", "xray_trace_id", "_aws",
}  # fmt: skip
"""Keys that log records of Python's or Powertools' have for themselves."""


class PowertoolsTelemetry:
    """One line of JSON per event; a counted event's line is in the embedded metric format as well, so it is paid for once.

    Metrics have the dimensions ``service``, and ``service`` with ``queue`` where the event has one.
    https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html
    """

    def __init__(self, service: str | None = None, *, level: str | int | None = None, pid: int | None = None) -> None:
        """``level`` is the least that is logged. Defaults to ``POWERTOOLS_SERVICE_NAME`` and ``POWERTOOLS_LOG_LEVEL``.

        ``pid`` is told with every event, where several processes write into one log.
        """
        # 124 ms of import that the CLI and most tests do not pay.
        from aws_lambda_powertools import Logger

        self._always = {} if pid is None else {"pid": pid}
        self._service = service or os.environ.get("POWERTOOLS_SERVICE_NAME") or "ringfence"
        Logger(
            service=self._service,
            level=level,
            logger_handler=_StandardOutput(),
            json_serializer=_one_line,
            utc=True,
            use_rfc3339=True,
            location=None,
        )
        self._logger = logging.getLogger(self._service)
        """Powertools has set up the logger of this name."""

    def event(self, name: str, **fields: Field) -> None:
        """Tell an event. Names, numbers and reasons only: a field of `NEVER_TOLD` is withheld."""
        level = LEVELS.get(name, logging.INFO)
        told = {_key(key): _told(key, value) for key, value in fields.items() if value is not None}
        line = {**self._always, **told, "event": name, **self._metric(name, fields)}
        if self._logger.isEnabledFor(level):
            self._logger.log(level, name, extra=line)
        elif name in METRICS or name in MEASURED:
            # A quieter log must not make an alarm deaf.
            with suppress(Exception):  # as for what is logged
                _write_line(_one_line(line))

    def _metric(self, name: str, fields: dict[str, Field]) -> dict[str, Any]:
        """The members that make a line count, none for an event that is not counted."""
        metrics_of = [METRICS[name]] if name in METRICS else MEASURED.get(name, ())
        if not metrics_of:
            return {}
        from aws_lambda_powertools.metrics import EphemeralMetrics, MetricUnit

        metrics = EphemeralMetrics(namespace=NAMESPACE, service=self._service)
        for counted in metrics_of:
            by = fields.get(counted.by_field) if counted.by_field else 1
            metrics.add_metric(
                name=counted.metric, unit=MetricUnit(counted.unit), value=by if isinstance(by, int | float) else 1
            )
        queue = fields.get("queue")
        if isinstance(queue, str) and queue.strip():
            metrics.add_dimensions(service=self._service, queue=queue)
        return dict(metrics.serialize_metric_set())


class _StandardOutput(logging.Handler):
    """Writes to what ``sys.stdout`` is now, not to what it was when the function started."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            _write_line(self.format(record))
        except Exception:  # noqa: BLE001 - a log that cannot be written must not end the work it tells of
            self.handleError(record)


def _write_line(text: str) -> None:
    """In one write, and at once: processes that share their output would tear each other's lines apart, and one that is killed
    would take them along."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def _key(key: str) -> str:
    """A field whose name is taken gets an underscore."""
    return f"{key}_" if key in _TAKEN else key


def _told(key: str, value: Field) -> Field:
    if key in NEVER_TOLD:
        return "[withheld]"
    if isinstance(value, str) and len(value) > MAX_FIELD_CHARACTERS:
        return value[: MAX_FIELD_CHARACTERS - 1] + "…"
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    return value


def _one_line(line: object) -> str:
    """ASCII JSON: whatever a user's text holds (line ends, escape sequences, surrogates), it stays one line of text."""
    return json.dumps(line, default=str, separators=(",", ":"), ensure_ascii=True)
