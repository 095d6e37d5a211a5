"""Faults for real processes: kill or stop oneself before or after a chosen call, once, and tell the test by a marker file.

A plan maps ``port.method`` to a fault:

    {"ledger.write": {"when": "after", "do": "kill", "only_state": "succeeded", "marker": "/tmp/x/killed"}}

``port`` is the name that `ringfence.runtime.Runtime` gives its adapters: ``ledger``, ``log``, ``queue:default``, …; a plan
for ``queue`` means every queue. The process hands `process_faults`' answer to `ringfence.runtime.wrap_with`.
"""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

import msgspec

from ringfence.change import Change
from ringfence.errors import Unavailable
from ringfence.testing.port_faults import Call, Crash, Fault, Faulty

Port = TypeVar("Port")


class ProcessFault(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One fault of a plan. It strikes once among all processes that share the marker's path."""

    marker: str
    """Path of a file that must not exist yet; it holds one line of JSON (`pid`, `fault`, `do`) before the fault happens."""
    do: Literal["kill", "stop", "crash", "unavailable"]
    """SIGKILL or SIGSTOP to oneself (after SIGCONT the call goes on), `Crash`, or `Unavailable`."""
    when: Literal["before", "after"] = "after"
    call: int = 1
    """Which of the matching calls in one process, from 1."""
    only_job: str | None = None
    """Only calls whose arguments name this job id anywhere."""
    only_state: str | None = None
    """Only calls with a `Change` that leads to this state."""


def process_faults(plan: str | Mapping[str, Any]) -> Callable[[str, Port], Port]:
    """The ``wrap(name, port)`` that puts the plan (JSON text or its value) in front of a process's ports.

    A plan that cannot be understood raises at once: `msgspec.ValidationError`, or `ValueError` for a method no port has.
    """
    decoded = json.loads(plan) if isinstance(plan, str) else plan
    faults = msgspec.convert(decoded, dict[str, ProcessFault])
    for target in faults:
        if "." not in target:
            raise ValueError(f"a plan names port.method, not {target!r}")

    def wrap(name: str, port: Port) -> Port:
        script = [
            _scripted(target, fault)
            for target, fault in faults.items()
            if target.rpartition(".")[0] in (name, name.partition(":")[0])
        ]
        return cast(Port, Faulty(port, script)) if script else port

    return wrap


def _scripted(target: str, fault: ProcessFault) -> Fault:
    def matches(*args: Any, **kwargs: Any) -> bool:
        values = (*args, *kwargs.values())
        # Ids are random: one that appears in what the arguments hold is meant, however deep it lies.
        names_job = fault.only_job is None or fault.only_job in repr(values)
        leads_to = {value.leads_to for value in values if isinstance(value, Change)}
        return names_job and (fault.only_state is None or fault.only_state in leads_to)

    def act(call: Call) -> None:
        if _is_first(target, fault):
            _strike(fault, call)

    return Fault(method=target.rpartition(".")[2], act=act, when=fault.when, call=fault.call, where=matches)


def _is_first(target: str, fault: ProcessFault) -> bool:
    """Make the marker; False when another process has made it already. A reader never sees it half written."""
    marker = Path(fault.marker)
    line = json.dumps({"pid": os.getpid(), "fault": f"{fault.when} {target}", "do": fault.do})
    written = marker.with_name(f"{marker.name}.{os.getpid()}")
    written.write_text(line + "\n")
    try:
        os.link(written, marker)
    except FileExistsError:
        return False
    finally:
        written.unlink()
    return True


def _strike(fault: ProcessFault, call: Call) -> None:
    match fault.do:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)
        case "crash":
            raise Crash(f"at {call.method}")
        case "unavailable":
            raise Unavailable(f"{call.method}: injected", retry_after_seconds=0.01)
