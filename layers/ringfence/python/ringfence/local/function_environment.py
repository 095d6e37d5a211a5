"""The variables that a function's process is given: all of them, since it inherits none."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import ringfence
from ringfence.local.deployment import FunctionPlan
from ringfence.local.endpoint import Endpoint

WAIT_CAP_SECONDS = 20
"""The longest ``?wait=``: here a waiting function costs nothing."""

_INHERITED = ("PATH", "HOME", "TMPDIR", "LANG", "LC_ALL", "LD_LIBRARY_PATH")
"""What a Python needs to run. Nothing that could lead it to a real account, or to a proxy."""

_LIBRARY = Path(ringfence.__file__).parent.parent


def settings_of(plan: FunctionPlan, endpoint: Endpoint, auth: str) -> dict[str, str]:
    """What the function's code reads: the template's variables, where the emulator is, and what is different here."""
    return {
        **plan.environment,
        **endpoint.environment(),
        "RINGFENCE_AUTH": auth,
        "RINGFENCE_WAIT_CAP_SECONDS": str(WAIT_CAP_SECONDS),
    }


def python_environment(*folders: Path) -> dict[str, str]:
    """What a Python with the code of these folders and this library needs to run."""
    return {
        **{name: os.environ[name] for name in _INHERITED if name in os.environ},
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": os.pathsep.join(str(folder) for folder in (*folders, _LIBRARY) if folder.is_dir()),
    }


def environment_of(plan: FunctionPlan, endpoint: Endpoint, auth: str, extra: Mapping[str, str]) -> dict[str, str]:
    """All variables of a process of this function.

    https://docs.aws.amazon.com/lambda/latest/dg/configuration-envvars.html#configuration-envvars-runtime
    """
    layers = [layer / "python" for layer in plan.layers]
    return {
        # The layers' code before ours: what would be deployed is what is run.
        **python_environment(plan.folder, *layers),
        **settings_of(plan, endpoint, auth),
        "TZ": ":UTC",
        "_HANDLER": plan.handler,
        "LAMBDA_TASK_ROOT": str(plan.folder),
        "AWS_EXECUTION_ENV": "AWS_Lambda_python",
        "AWS_LAMBDA_FUNCTION_NAME": plan.physical_name,
        "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": str(plan.memory_megabytes),
        "AWS_LAMBDA_INITIALIZATION_TYPE": "on-demand",
        "AWS_LAMBDA_LOG_GROUP_NAME": f"/aws/lambda/{plan.physical_name}",
        "AWS_LAMBDA_LOG_STREAM_NAME": "ringfence-dev",
        **extra,
    }
