"""Real processes and sockets, no emulator: what becomes of invocations when a function's processes die, freeze or hang."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from ringfence.local.invocation import Outcome
from ringfence.local.pool import Function, FunctionBroken, Pool, PoolSize, Replaced

HANDLER = """
import os, pathlib, signal, socket, subprocess, sys, time

def handler(event, context):
    here = pathlib.Path(os.environ["HERE"])
    if "touch" in event:
        (here / event["touch"]).write_text(str(os.getpid()))
    match event.get("do"):
        case "wait":
            while not (here / event["until"]).exists():
                time.sleep(0.005)
        case "raise":
            raise KeyError("as asked")
        case "exit":
            sys.exit(4)
        case "unserialisable":
            return object()
        case "large":
            return "x" * (6 * 1024 * 1024)
        case "die answering":
            host, _, port = os.environ["AWS_LAMBDA_RUNTIME_API"].partition(":")
            path = f"/2018-06-01/runtime/invocation/{context.aws_request_id}/response"
            said = f"POST {path} HTTP/1.1\\r\\nHost: api\\r\\nContent-Length: 25\\r\\n\\r\\n" + '{"batchItemFailures": []}'
            with socket.create_connection((host, int(port))) as connection:
                connection.sendall(said[:event["at"]].encode())
                os._exit(9)
        case "spawn":
            return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid
    return {
        "pid": os.getpid(),
        "remaining": context.get_remaining_time_in_millis(),
        "request": context.aws_request_id,
        "arn": context.invoked_function_arn,
        "variable": os.environ.get("VARIABLE"),
        "secret": os.environ.get("SECRET_OF_THE_PARENT"),
    }
"""

ARN = "arn:aws:lambda:us-east-1:000000000000:function:f"

linux_only = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells whether a process is stopped")


class Running:
    """A pool, its folder, and what it has replaced."""

    def __init__(self, folder: Path, size: PoolSize, timeout_seconds: float) -> None:
        self.folder = folder
        self.replaced: SimpleQueue[Replaced] = SimpleQueue()
        self.pool = Pool(function_in(folder, timeout_seconds), size, folder / "logs", self.replaced.put)
        self._threads = ThreadPoolExecutor(16)

    def call(self, **event: Any) -> Outcome:
        return self.pool.invoke(json.dumps(event).encode())

    def calling(self, **event: Any) -> Future[Outcome]:
        """The call, in the background."""
        return self._threads.submit(self.call, **event)

    def pid_that(self, name: str) -> int:
        """The process that has written the file ``name``, once it has."""
        return int(eventually(lambda: (self.folder / name).exists() and (self.folder / name).read_text()))

    def touch(self, name: str) -> None:
        (self.folder / name).touch()

    def close(self) -> None:
        self.pool.stop()
        self._threads.shutdown()


def function_in(folder: Path, timeout_seconds: float, handler: str = HANDLER) -> Function:
    (folder / "logs").mkdir(exist_ok=True)
    (folder / "app.py").write_text(handler)
    library = str(Path(__file__).parents[2] / "layers/ringfence/python")
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": library,
        "HERE": str(folder),
        "_HANDLER": "app.handler",
        "AWS_LAMBDA_FUNCTION_NAME": "f",
        "AWS_LAMBDA_FUNCTION_VERSION": "$LATEST",
        "AWS_LAMBDA_FUNCTION_MEMORY_SIZE": "128",
        "AWS_LAMBDA_LOG_GROUP_NAME": "group",
        "AWS_LAMBDA_LOG_STREAM_NAME": "stream",
    }
    return Function(name="F", arn=ARN, folder=folder, timeout_seconds=timeout_seconds, environment=environment)


def eventually(look: Callable[[], Any], seconds: float = 20.0) -> Any:
    """What ``look`` returns once it is true: processes outside tell of themselves only to those who look."""
    deadline = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < deadline, "it never came to be"
        time.sleep(0.005)
    return found


def freeze(pid: int) -> None:
    """SIGSTOP, and wait until it has had its effect: a signal is only noted when `os.kill` returns."""
    os.kill(pid, signal.SIGSTOP)
    if sys.platform == "linux":
        eventually(lambda: b") T " in Path(f"/proc/{pid}/stat").read_bytes())


def is_alive(pid: int) -> bool:
    """A zombie is not: it only waits for its parent to look."""
    try:
        os.kill(pid, 0)
        return sys.platform != "linux" or b") Z " not in Path(f"/proc/{pid}/stat").read_bytes()
    except (ProcessLookupError, FileNotFoundError):
        return False


@pytest.fixture
def run(tmp_path: Path) -> Iterator[Callable[..., Running]]:
    """Starts a pool: ``run(start, most=start, timeout_seconds=20)``."""
    running: list[Running] = []

    def begin(start: int, most: int | None = None, timeout_seconds: float = 20.0) -> Running:
        started = Running(tmp_path, PoolSize(start, most or start), timeout_seconds)
        running.append(started)
        started.pool.start()
        started.pool.wait_ready(30.0)
        return started

    yield begin
    for each in running:
        each.close()


# --- what a handler is given, and gives -----------------------------------------------------------------------------------


def test_a_handler_is_told_its_time_its_request_and_its_name(
    run: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SECRET_OF_THE_PARENT", "hush")
    running = run(1, timeout_seconds=7.0)
    said = running.call().value()
    assert 6000 < said["remaining"] <= 7000
    assert said["arn"] == ARN
    assert len(said["request"]) == 36
    assert said["secret"] is None
    assert [said["pid"]] == running.pool.pids()


def test_an_error_of_the_handler_is_told_with_its_type_and_stack_and_the_process_goes_on(run: Callable[..., Running]) -> None:
    running = run(1)
    before = running.pool.pids()
    outcome = running.call(do="raise")
    assert outcome.error == "Unhandled"
    assert outcome.value()["errorType"] == "KeyError"
    assert "app.py" in outcome.value()["stackTrace"][-1]
    assert running.call().value()["pid"] == before[0]


@pytest.mark.parametrize(
    ("do", "error"), [("unserialisable", "Runtime.MarshalError"), ("large", "Function.ResponseSizeTooLarge")]
)
def test_an_answer_that_cannot_be_sent_is_an_error_and_the_process_goes_on(
    run: Callable[..., Running], do: str, error: str
) -> None:
    running = run(1)
    assert running.call(do=do).error == error
    assert running.call().error is None


def test_what_a_process_prints_is_in_a_file_with_its_pid(run: Callable[..., Running]) -> None:
    running = run(1)
    (pid,) = running.pool.pids()
    running.call(do="raise")
    assert "KeyError: 'as asked'" in (running.folder / "logs" / f"F-{pid}.log").read_text()


# --- processes that die ---------------------------------------------------------------------------------------------------


def test_a_process_that_is_killed_fails_its_invocation_and_is_replaced(run: Callable[..., Running]) -> None:
    running = run(2)
    waiting = running.calling(do="wait", touch="in", until="never")
    victim = running.pid_that("in")
    os.kill(victim, signal.SIGKILL)
    outcome = waiting.result(20)
    assert outcome.error == "Runtime.ExitError"
    assert "signal 9" in outcome.told()
    replaced = running.replaced.get(timeout=20)
    assert (replaced.function, replaced.old_pid, replaced.reason) == ("F", victim, "signal 9")
    assert eventually(lambda: len(running.pool.pids()) == 2)
    assert replaced.new_pid in running.pool.pids()


def test_a_handler_that_exits_fails_its_invocation_and_is_replaced(run: Callable[..., Running]) -> None:
    running = run(1)
    assert "exit code 4" in running.call(do="exit").told()
    assert running.call().error is None
    assert running.replaced.get(timeout=20).reason == "exit code 4"


@pytest.mark.parametrize("at", [-30, -25, -1], ids=["among the headers", "before the body", "within the body"])
def test_a_process_that_dies_while_it_answers_has_not_answered(run: Callable[..., Running], at: int) -> None:
    outcome = run(1).call(do="die answering", at=at)
    assert (outcome.error, "exit code 9" in outcome.told()) == ("Runtime.ExitError", True)


def test_an_idle_process_that_is_killed_is_replaced(run: Callable[..., Running]) -> None:
    running = run(1)
    (victim,) = running.pool.pids()
    os.kill(victim, signal.SIGKILL)
    assert running.replaced.get(timeout=20).old_pid == victim
    assert running.call().value()["pid"] != victim


def test_an_invocation_that_a_dead_process_never_read_is_run_by_another(run: Callable[..., Running]) -> None:
    running = run(1)
    (victim,) = running.pool.pids()
    freeze(victim)
    waiting = running.calling()
    eventually(lambda: running.pool._processes[0].invocation is not None)
    os.kill(victim, signal.SIGKILL)
    outcome = waiting.result(20)
    assert outcome.error is None, outcome.told()
    assert outcome.value()["pid"] != victim


def test_what_a_process_has_started_dies_with_it(run: Callable[..., Running]) -> None:
    running = run(1)
    grandchild = running.call(do="spawn").value()
    assert is_alive(grandchild)
    os.kill(running.pool.pids()[0], signal.SIGKILL)
    assert eventually(lambda: not is_alive(grandchild))


# --- processes that do not answer -----------------------------------------------------------------------------------------


def test_past_its_time_limit_a_process_is_killed_and_its_invocation_fails(run: Callable[..., Running]) -> None:
    running = run(1, timeout_seconds=0.5)
    (late,) = running.pool.pids()
    outcome = running.call(do="wait", until="never")
    assert outcome.error == "Sandbox.Timedout"
    assert "Task timed out after 0.50 seconds" in outcome.told()
    assert not is_alive(late)
    assert running.replaced.get(timeout=20).reason == "timeout"
    assert running.call().error is None


def test_a_frozen_process_holds_only_its_own_invocation_until_its_time_limit(run: Callable[..., Running]) -> None:
    running = run(2, timeout_seconds=1.5)
    held = running.calling(do="wait", touch="in", until="go")
    frozen = running.pid_that("in")
    freeze(frozen)
    running.touch("go")
    assert {running.call().value()["pid"] for _ in range(20)}.isdisjoint({frozen})
    assert not held.done()
    assert held.result(20).error == "Sandbox.Timedout"
    assert not is_alive(frozen)


def test_a_frozen_process_that_is_thawed_in_time_answers(run: Callable[..., Running]) -> None:
    running = run(1)
    held = running.calling(do="wait", touch="in", until="go")
    frozen = running.pid_that("in")
    freeze(frozen)
    running.touch("go")
    os.kill(frozen, signal.SIGCONT)
    assert held.result(20).value()["pid"] == frozen


@linux_only
def test_a_frozen_idle_process_is_passed_over(run: Callable[..., Running]) -> None:
    running = run(2)
    last_active = running.call().value()["pid"]
    freeze(last_active)
    assert {running.call().value()["pid"] for _ in range(10)} == set(running.pool.pids()) - {last_active}


@linux_only
def test_when_the_only_idle_process_is_frozen_an_invocation_waits_for_the_busy_one(run: Callable[..., Running]) -> None:
    running = run(2)
    busy = running.calling(do="wait", touch="in", until="go")
    busy_pid = running.pid_that("in")
    (frozen,) = set(running.pool.pids()) - {busy_pid}
    freeze(frozen)
    waiting = running.calling()
    running.touch("go")
    assert busy.result(20).error is None
    assert waiting.result(20).value()["pid"] == busy_pid


@linux_only
def test_when_all_processes_are_frozen_the_time_limit_frees_the_invocation(run: Callable[..., Running]) -> None:
    running = run(1, timeout_seconds=0.5)
    (frozen,) = running.pool.pids()
    freeze(frozen)
    assert running.call().error == "Sandbox.Timedout"
    assert running.call().error is None


# --- how many there are ---------------------------------------------------------------------------------------------------


def test_processes_are_added_for_invocations_that_wait_up_to_a_limit(run: Callable[..., Running]) -> None:
    running = run(1, most=2)
    held = [running.calling(do="wait", touch=f"in-{n}", until="go") for n in range(3)]
    eventually(lambda: sum((running.folder / f"in-{n}").exists() for n in range(3)) == 2)
    assert len(running.pool.pids()) == 2
    running.touch("go")
    assert all(call.result(20).error is None for call in held)
    assert len(running.pool.pids()) == 2


def test_an_invocation_that_follows_closely_on_another_waits_for_its_process(run: Callable[..., Running]) -> None:
    running = run(1, most=4)
    pids = {running.call().value()["pid"] for _ in range(100)}
    running.pool.wait_ready(30.0)
    assert pids == set(running.pool.pids())


def test_a_restart_replaces_all_processes_and_adds_variables(run: Callable[..., Running]) -> None:
    running = run(2)
    before = set(running.pool.pids())
    running.pool.restart({"VARIABLE": "new"}, 30.0)
    assert before.isdisjoint(running.pool.pids())
    assert not any(is_alive(pid) for pid in before)
    assert running.call().value()["variable"] == "new"
    running.pool.restart({}, 30.0)
    assert running.call().value()["variable"] is None
    assert running.replaced.empty()


# --- the beginning and the end --------------------------------------------------------------------------------------------


def test_a_handler_that_cannot_be_loaded_says_why(tmp_path: Path) -> None:
    pool = Pool(function_in(tmp_path, 5.0, "import no_such_module"), PoolSize(2, 2), tmp_path / "logs", lambda _: None)
    pool.start()
    try:
        with pytest.raises(FunctionBroken, match=r"F could not load its handler: ModuleNotFoundError: .*no_such_module"):
            pool.wait_ready(30.0)
        assert pool.invoke(b"{}").error in ("Runtime.Unknown", "Runtime.ExitError")
    finally:
        pool.stop()


def test_nothing_is_left_after_a_stop_not_even_a_frozen_process(run: Callable[..., Running]) -> None:
    running = run(3)
    held = running.calling(do="wait", touch="in", until="never")
    busy = running.pid_that("in")
    pids = running.pool.pids()
    idle = next(pid for pid in pids if pid != busy)
    for frozen in (busy, idle):
        freeze(frozen)
    running.pool.stop()
    assert not any(is_alive(pid) for pid in pids)
    assert held.result(20).error is not None
    assert running.call().error == "Sandbox.Stopped"


def test_an_invocation_that_a_dead_process_never_read_ends_with_the_pool(
    run: Callable[..., Running], monkeypatch: pytest.MonkeyPatch
) -> None:
    running = run(1)
    (process,) = running.pool._processes
    close = process._api.close

    def close_while_the_pool_stops() -> None:
        eventually(lambda: running.pool._stopping)
        close()

    monkeypatch.setattr(process._api, "close", close_while_the_pool_stops)
    freeze(process.pid)
    waiting = running.calling()
    eventually(lambda: process.invocation is not None)
    os.kill(process.pid, signal.SIGKILL)
    eventually(lambda: process.exit_code is not None)
    running.pool.stop()
    assert waiting.result(20).error == "Runtime.ExitError"


PARENT = """
import sys, threading
from pathlib import Path
sys.path.insert(0, {tests!r})
from test_local_pool import function_in
from ringfence.local.pool import Pool, PoolSize

folder = Path({folder!r})
pool = Pool(function_in(folder, 60.0), PoolSize(2, 2), folder / "logs", lambda _: None)
pool.start()
pool.wait_ready(30.0)
print(*pool.pids(), flush=True)
threading.Event().wait()
"""


def test_processes_die_with_a_parent_that_is_killed_even_frozen_ones(tmp_path: Path) -> None:
    program = PARENT.format(tests=str(Path(__file__).parent), folder=str(tmp_path))
    with subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        pids = [int(pid) for pid in parent.stdout.readline().split()]
        assert len(pids) == 2
        if sys.platform == "linux":  # elsewhere a frozen process cannot look for its parent
            freeze(pids[0])
        parent.kill()
    eventually(lambda: not any(is_alive(pid) for pid in pids))
