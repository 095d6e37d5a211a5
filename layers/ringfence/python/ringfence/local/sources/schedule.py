"""Schedules as an event source: ``rate(…)`` and ``cron(…)``, each in a thread of its own.

https://docs.aws.amazon.com/eventbridge/latest/userguide/eb-scheduled-rule-pattern.html
"""

from __future__ import annotations

import json
import logging
import threading
import uuid
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from ringfence.local.event_sources import Schedule
from ringfence.local.invocation import Outcome
from ringfence.local.sources.cron import Cron
from ringfence.local.sources.pulse import Pulse
from ringfence.local.template import BadTemplate

_log = logging.getLogger(__name__)

_UNIT_SECONDS = {"minute": 60, "minutes": 60, "hour": 3600, "hours": 3600, "day": 86400, "days": 86400}


def pause_of(expression: str) -> Callable[[datetime], float]:
    """Seconds from a moment to the schedule's next one. Raises `BadTemplate` for an expression it does not know."""
    kind, _, rest = expression.strip().partition("(")
    inside = rest.removesuffix(")").split()
    if kind == "rate" and len(inside) == 2 and inside[0].isdigit() and inside[1] in _UNIT_SECONDS:
        seconds = float(int(inside[0]) * _UNIT_SECONDS[inside[1]])
        return lambda _: seconds
    if kind == "cron" and len(inside) == 6:
        cron = Cron.parse(expression, inside)
        return lambda now: (cron.after(now) - now).total_seconds()
    raise BadTemplate(f"ringfence dev cannot imitate the schedule {expression!r}")


class ScheduleSource:
    """One schedule. ``every_seconds``, if given, stands in for what the template says: on a laptop a minute is long.

    Unlike EventBridge it does not invoke again while an invocation runs, and a late one is not made up for.
    """

    def __init__(
        self,
        schedule: Schedule,
        account: str,
        region: str,
        every_seconds: float | None,
        invoke: Callable[[bytes], Outcome],
        pulse: Pulse,
    ) -> None:
        self._schedule, self._account, self._region = schedule, account, region
        self._invoke, self._pulse = invoke, pulse
        self._pause = pause_of(schedule.expression) if every_seconds is None else lambda _: every_seconds
        self._failure: str | None = None
        """How the latest invocation failed."""
        self._thread = threading.Thread(target=self._run, name=schedule.name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def join(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        while True:
            self._pulse.pause(self._pause(datetime.now(UTC)))
            if self._pulse.stopped():
                return
            self._tell(self._invoke(json.dumps(self._event()).encode()))

    def _tell(self, outcome: Outcome) -> None:
        """Once for each kind of failure in a row: a schedule of every second would drown everything else."""
        failure = None if outcome.error is None else outcome.told()
        if failure not in (None, self._failure) and not self._pulse.stopped():
            _log.warning("%s failed: %s", self._schedule.name, failure)
        self._failure = failure

    def _event(self) -> Any:
        if self._schedule.input is not None:
            return json.loads(self._schedule.input)
        return {
            "version": "0",
            "id": str(uuid.uuid4()),
            "detail-type": "Scheduled Event",
            "source": "aws.events",
            "account": self._account,
            "time": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
            "region": self._region,
            "resources": [f"arn:aws:events:{self._region}:{self._account}:rule/{self._schedule.name}"],
            "detail": {},
        }
