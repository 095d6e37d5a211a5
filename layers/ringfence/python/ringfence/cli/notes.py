"""What the core tells while a command runs it."""

from __future__ import annotations

import logging

from ringfence.cli.output import Output


class Notes:
    """Telemetry of a command: what goes wrong, once, to whoever is looking."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._said: set[str] = set()

    def event(self, name: str, **fields: str | int | float | bool | None) -> None:
        from ringfence.event_names import LEVELS

        if LEVELS.get(name, logging.INFO) < logging.WARNING or not fields.get("reason"):
            return
        text = f"{fields.get('queue', name)}: {fields['reason']}"
        if text not in self._said:
            self._said.add(text)
            self._output.note(text)
