"""What the HTTP API is served from: the parts of `runtime.Runtime` that it uses."""

from __future__ import annotations

from typing import Protocol

from ringfence.gateway import Gateway
from ringfence.ports import Clock, Keys, SettingsStore, Telemetry
from ringfence.settings import Settings


class Backend(Protocol):
    """Each part is built when it is first asked for, so that a health check touches nothing."""

    def __hash__(self) -> int: ...

    @property
    def settings(self) -> Settings: ...

    @property
    def clock(self) -> Clock: ...

    @property
    def telemetry(self) -> Telemetry: ...

    @property
    def gateway(self) -> Gateway: ...

    @property
    def queue_settings(self) -> SettingsStore: ...

    @property
    def keys(self) -> Keys: ...
