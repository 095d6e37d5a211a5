"""Faults for real processes: kill or stop oneself before or after a chosen call, once, and tell the test by a marker file.

A plan maps ``port.method`` to a fault:

    {"ledger.write": {"when": "after", "do": "kill", "only_state": "succeeded", "marker": "/tmp/x/killed"}}

``port`` is the name that `ringfence.runtime.Runtime` gives its adapters: ``ledger``, ``log``, ``queue:default``, …; a plan
for ``queue`` means every queue. The process hands `process_faults`' answer to `ringfence.runtime.wrap_with`.

`ringfence.testing.dev_faults` plans faults for the processes of a running `ringfence dev`.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

import msgspec

from ringfence.change import Change
from ringfence.errors import Unavailable
from ringfence.testing.port_faults import Call, Crash, Fault, Faulty

Port = TypeVar("Port")

Do = Literal["kill", "stop", "crash", "unavailable"]

FILE_MARK = "@"
"""``@PATH`` stands for the plan in that file, as it is at the moment of each call: faults for processes that already run."""


class ProcessFault(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One fault of a plan. It strikes once (or ``times`` times) and in one only of the processes that share the marker."""

    marker: str
    """Path of a file that must not exist yet; it holds one line of JSON (`pid`, `fault`, `do`) before the fault happens."""
    do: Do
    """SIGKILL or SIGSTOP to oneself (after SIGCONT the call goes on), `Crash`, or `Unavailable`."""
    when: Literal["before", "after"] = "after"
    call: int = 1
    """Which of the matching calls in one process, from 1."""
    times: int | None = 1
    """How many matching calls in a row it strikes; None: all from ``call`` on."""
    only_job: str | None = None
    """Only calls whose arguments name this job id anywhere."""
    only_state: str | None = None
    """Only calls with a `Change` that leads to this state."""


Plan = Mapping[str, ProcessFault]


def process_faults(plan: str | Mapping[str, Any]) -> Callable[[str, Port], Port]:
    """The ``wrap(name, port)`` that puts the plan (JSON text, its value, or ``@PATH``) in front of a process's ports.

    A plan that cannot be understood raises at once: `msgspec.ValidationError`, or `ValueError` for a method no port has. One
    in a file raises the same from the call before which it is read.
    """
    if isinstance(plan, str) and plan.startswith(FILE_MARK):
        file = Path(plan.removeprefix(FILE_MARK))

        def wrap(name: str, port: Port) -> Port:
            return cast(Port, _Replanned(name, port, file))

    else:
        faults = read_plan(plan)

        def wrap(name: str, port: Port) -> Port:
            return cast(Port, _with_faults(name, port, faults))

    return wrap


def read_plan(plan: str | Mapping[str, Any]) -> Plan:
    """A plan, checked. Raises `msgspec.ValidationError` or `ValueError`."""
    decoded = json.loads(plan) if isinstance(plan, str) else plan
    faults = msgspec.convert(decoded, dict[str, ProcessFault])
    for target in faults:
        if "." not in target:
            raise ValueError(f"a plan names port.method, not {target!r}")
    return faults


class _Replanned:
    """A port with the faults that a file plans at the moment of each call. A changed plan counts its calls anew."""

    def __init__(self, name: str, port: Any, file: Path) -> None:
        self._name, self._port, self._file = name, port, file
        self._lock = threading.Lock()
        self._read = ""
        self._planned: Any = port

    def __getattr__(self, name: str) -> Any:
        attribute = getattr(self._port, name)
        if not callable(attribute):
            return attribute
        return lambda *args, **kwargs: getattr(self._as_planned(), name)(*args, **kwargs)

    def _as_planned(self) -> Any:
        with self._lock:
            text = self._file.read_text()
            if text != self._read:
                self._planned = _with_faults(self._name, self._port, read_plan(text))
                self._read = text
            return self._planned


def _with_faults(name: str, port: Any, plan: Plan) -> Any:
    script = [
        _scripted(target, fault)
        for target, fault in plan.items()
        if target.rpartition(".")[0] in (name, name.partition(":")[0])
    ]
    return Faulty(port, script) if script else port


def _scripted(target: str, fault: ProcessFault) -> Fault:
    counter = itertools.count(1)

    def strikes(*args: Any, **kwargs: Any) -> bool:
        return _matches(fault, (*args, *kwargs.values())) and _is_among(fault, next(counter))

    def act(call: Call) -> None:
        if _is_ours(target, fault):
            _strike(fault, call)

    return Fault(method=target.rpartition(".")[2], act=act, when=fault.when, call=None, where=strikes)


def _matches(fault: ProcessFault, values: tuple[Any, ...]) -> bool:
    # Ids are random: one that appears in what the arguments hold is meant, however deep it lies.
    names_job = fault.only_job is None or fault.only_job in repr(values)
    leads_to = {value.leads_to for value in values if isinstance(value, Change)}
    return names_job and (fault.only_state is None or fault.only_state in leads_to)


def _is_among(fault: ProcessFault, number: int) -> bool:
    """Whether the fault strikes the matching call of this number."""
    return number >= fault.call and (fault.times is None or number < fault.call + fault.times)


def _is_ours(target: str, fault: ProcessFault) -> bool:
    """Make the marker; False when another process has made it, or this one for the only strike there is.

    A reader never sees it half written.
    """
    marker = Path(fault.marker)
    line = json.dumps({"pid": os.getpid(), "fault": f"{fault.when} {target}", "do": fault.do})
    written = marker.with_name(f"{marker.name}.{os.getpid()}")
    written.write_text(line + "\n")
    try:
        os.link(written, marker)
    except FileExistsError:
        return fault.times != 1 and bool(json.loads(marker.read_text())["pid"] == os.getpid())
    finally:
        written.unlink()
    return True


def _strike(fault: ProcessFault, call: Call) -> None:
    match fault.do:
        case "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        case "stop":
            # To this very thread: sent to the process, another thread might take it while this one made its call.
            signal.pthread_kill(threading.get_ident(), signal.SIGSTOP)
        case "crash":
            raise Crash(f"at {call.method}")
        case "unavailable":
            raise Unavailable(f"{call.method}: injected", retry_after_seconds=0.01)
