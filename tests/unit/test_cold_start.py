"""What a function imports before its first event, and until it can answer it: a cold start pays for every module."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

STARTED = """
import json, sys
sys.path[:0] = sys.argv[2:]
import app
at_import = sorted(sys.modules)
from ringfence import runtime
getattr(runtime.current(), sys.argv[1])
print(json.dumps([at_import, sorted(sys.modules)]))
"""

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "test",
    "AWS_SECRET_ACCESS_KEY": "test",
    "AWS_REGION": "us-east-1",
    "AWS_DEFAULT_REGION": "us-east-1",
    "POWERTOOLS_METRICS_NAMESPACE": "Ringfence",
    "RINGFENCE_APP": "jobs:app",
    "RINGFENCE_LEDGER_TABLE": "ledger",
    "RINGFENCE_QUEUES": '{"default": "https://sqs.us-east-1.amazonaws.com/1/default"}',
    "RINGFENCE_STREAM": "log",
}


@dataclass(frozen=True)
class Started:
    """Names of modules, beyond those of an interpreter that has done nothing."""

    at_import: frozenset[str]
    """Once the handler's module is there: what Lambda's init phase runs."""
    built: frozenset[str]
    """Once the function's part, with its clients, is there too: what the first event waits for."""


@cache
def started(function: str) -> Started:
    paths = [ROOT / "functions" / function, ROOT / "layers/ringfence/python"]
    command = [sys.executable, "-I", "-c", STARTED, function, *map(str, paths)]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    at_import, built = json.loads(done.stdout)
    return Started(frozenset(at_import), frozenset(built))


def within(modules: frozenset[str], package: str) -> set[str]:
    return {module for module in modules if module == package or module.startswith(f"{package}.")}


def third_party(modules: frozenset[str]) -> set[str]:
    """All but the standard library's, of which every Python has others."""
    return {module for module in modules if module.partition(".")[0] not in {*sys.stdlib_module_names, "app"}}


NOBODY = ("aws_xray_sdk", "fastjsonschema", "pydantic", "redis", "aws_lambda_powertools.event_handler", "rich", "click")
"""Slow to import, and of no use to a function. (``redis`` is, to one whose queue is there.)"""

OTHERS = {
    "gateway": ("asyncio", "ringfence.app", "ringfence.context", "ringfence.lease", "ringfence.relay", "ringfence.timers"),
    "relay": ("asyncio", "ringfence.acceptance", "ringfence.app", "ringfence.gateway", "ringfence.http", "ringfence.timers"),
    "timers": ("asyncio", "ringfence.acceptance", "ringfence.app", "ringfence.gateway", "ringfence.http", "ringfence.relay"),
    "worker": ("ringfence.acceptance", "ringfence.gateway", "ringfence.http", "ringfence.timers"),
}
"""What the function leaves to the other three."""


def unwanted() -> Iterator[tuple[str, str]]:
    for function, packages in OTHERS.items():
        yield from ((function, package) for package in (*NOBODY, *packages))
        if function != "worker":
            yield function, "ringfence.worker"


@pytest.mark.parametrize(("function", "package"), list(unwanted()))
def test_a_function_imports_nothing_that_only_others_need(function: str, package: str) -> None:
    assert not within(started(function).built, package)


@pytest.mark.parametrize("function", ["gateway", "relay", "timers"])
def test_the_sdk_is_imported_with_the_first_client(function: str) -> None:
    """The worker's jobs may want it sooner: theirs is the say."""
    assert not within(started(function).at_import, "boto3")
    assert within(started(function).built, "boto3")


@pytest.mark.parametrize(
    ("function", "at_import", "built"),
    [("gateway", 60, 310), ("relay", 50, 310), ("timers", 45, 310), ("worker", 310, 310)],
)
def test_a_cold_start_stays_within_its_budget_of_modules(function: str, at_import: int, built: int) -> None:
    """Recorded in November 2026 (46, 32, 27 and 280 at import), with room for a few of our own: a new dependency of a handler
    shows here first. The worker loads its jobs, and what they need, at once."""
    assert len(third_party(started(function).at_import)) <= at_import
    assert len(third_party(started(function).built)) <= built
