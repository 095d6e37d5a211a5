"""What is run and whom it calls is in the code and its settings, never in what a client or a message says."""

from __future__ import annotations

import ast
import json
import pickle
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

import ringfence
from ringfence.job import State
from ringfence.ports import LogEntry
from ringfence.testing.memory_api import MemoryApi

LIBRARY = Path(ringfence.__file__).parent
ROOT = Path(__file__).parents[2]
ON_A_DEVELOPERS_MACHINE = ("local/", "testing/")

CALL_OUT = {
    "http.client",
    "urllib.request",
    "urllib3",
    "requests",
    "httpx",
    "aiohttp",
    "ftplib",
    "smtplib",
    "socket",
    "telnetlib",
}
MAY_CALL_OUT = {
    "client/transport.py": {"http.client"},  # to the API that its user names
    "runtime.py": {"socket"},  # for this machine's name
}
"""Beside boto3 and redis-py, whose endpoints are settings. Callback URLs are not offered; if they ever are, this fails."""

LOAD_CODE = {"pickle", "marshal", "shelve", "dill", "cloudpickle", "jsonpickle", "yaml", "runpy", "code", "importlib"}
MAY_LOAD_CODE = {
    "__init__.py": {"importlib"},  # the library's own names, on first use
    "app_import.py": {"importlib"},  # RINGFENCE_APP: a setting
    "cli/main.py": {"importlib"},  # the commands, of a table
    "redis/scripts.py": {"importlib"},  # the library's own Lua
}
BUILT_IN = {"eval", "exec", "compile", "__import__"}


@cache
def sources() -> dict[str, ast.AST]:
    """Path in the library, or beside it, → what it says; of all that runs in a deployment."""
    files = {str(path.relative_to(LIBRARY)): path for path in LIBRARY.rglob("*.py")}
    files |= {str(path.relative_to(ROOT)): path for path in ROOT.joinpath("functions").glob("*/app.py")}
    deployed = {name: path for name, path in files.items() if not name.startswith(ON_A_DEVELOPERS_MACHINE)}
    return {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in deployed.items()}


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def named_in(modules: set[str], tree: ast.AST) -> set[str]:
    """Which of these modules are imported, they or what is in them."""
    harmless = ("importlib.metadata",)
    names = [name for name in imported(tree) if not name.startswith(harmless)]
    return {module for module in modules for name in names if name == module or name.startswith(module + ".")}


@pytest.mark.parametrize(("modules", "allowed"), [(CALL_OUT, MAY_CALL_OUT), (LOAD_CODE, MAY_LOAD_CODE)], ids=["call", "load"])
def test_c40_only_these_modules_call_out_or_load_code(modules: set[str], allowed: dict[str, set[str]]) -> None:
    assert len(sources()) > 100
    assert {name: found for name, tree in sources().items() if (found := named_in(modules, tree))} == allowed


def test_c40_nothing_is_evaluated() -> None:
    for name, tree in sources().items():
        called = {node.func.id for node in ast.walk(tree) if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)}
        assert not called & BUILT_IN, name


SAID = "antigravity"
"""A module that nothing imports by itself."""


@pytest.mark.parametrize("name", [SAID, f"{SAID}:fly", "os.system", "builtins.eval", "../jobs", "__import__"])
def test_c40_a_job_of_a_name_that_is_not_registered_is_dead_and_nothing_is_imported(api: MemoryApi, name: str) -> None:
    payload = json.dumps({"py/object": f"{SAID}.fly", "__class__": SAID, "!!python/module": SAID})
    job_id = api.system.submit(name, payload, max_attempts=1).job_id
    api.system.run_relay()
    api.system.run_worker()
    assert api.system.job(job_id).state is State.DEAD
    assert "has no job named" in str(api.system.job(job_id).error)
    assert SAID not in sys.modules


@pytest.mark.parametrize("body", [pickle.dumps(print), b"!!python/object/apply:os.system [true]", b"csubprocess\nrun\n."])
def test_c40_code_in_a_message_is_set_aside_unread(api: MemoryApi, body: bytes) -> None:
    api.system.memory_log.append([LogEntry(body, "p")])
    api.system.memory_queues["default"].put(body.decode("latin-1"))
    api.system.run_relay()
    api.system.run_worker()
    assert [item.data for item in api.system.quarantine.items(10) if item.source.startswith("log")] == [body]
    assert len(api.system.quarantine.items(10)) == 2


def test_the_threat_model_is_ten_lines_whose_tests_are_there() -> None:
    readme = LIBRARY / "README.md"
    lines = [line for line in readme.read_text(encoding="utf-8").splitlines() if line.startswith("| ")][1:]
    assert len(lines) == 10
    for line in lines:
        targets = [part.partition(")")[0] for part in line.split("](")[1:]]
        assert targets
        assert all((LIBRARY / target).exists() for target in targets), line
    assert "layers/ringfence/python/ringfence/README.md" in (ROOT / "README.md").read_text(encoding="utf-8")
