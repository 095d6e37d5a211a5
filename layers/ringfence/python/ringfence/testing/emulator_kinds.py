"""The emulators that everything on a whole system is tested on."""

from __future__ import annotations

import os
from typing import cast

from ringfence.local.emulator import Startable

GIVEN = "given"
"""The emulator that runs already and that the environment names: see `ringfence.local.endpoint.other_endpoint`."""

IS_GIVEN = bool(os.environ.get("AWS_ENDPOINT_URL") or os.environ.get("LOCALSTACK_HOST"))

KINDS = (GIVEN,) if IS_GIVEN else ("ministack", "moto")
"""Those that tests run on: each that can be started here, or with ``AWS_ENDPOINT_URL`` or ``LOCALSTACK_HOST`` set that one."""

USUAL = KINDS[0]
"""The one for tests that need only one."""


def startable(kind: str) -> Startable | None:
    """What to tell `Dev`, which looks for a running emulator when it is told to start none."""
    return None if kind == GIVEN else cast("Startable", kind)
