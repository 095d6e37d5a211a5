"""The smaller parts of `ringfence dev`: endpoints, MiniStack's environment, run folders, logs, the lock in front of moto."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest

from ringfence.local import ministack_environment
from ringfence.local.endpoint import Endpoint, NotAnEmulator, deaf_session, other_endpoint
from ringfence.local.log_follower import LogFollower
from ringfence.local.ministack_environment import NotInstalled, ministack_python
from ringfence.local.moto_server import OneAtATime
from ringfence.local.redis_process import RedisProcess
from ringfence.local.run_folder import leave_latest, make_run_folder, others_running, write_environment
from ringfence.local.sources.pulse import Pulse
from ringfence.local.template import read_template

ROOT = Path(__file__).parents[2]

# --- endpoints ------------------------------------------------------------------------------------------------------------


def test_nothing_named_is_no_endpoint() -> None:
    assert other_endpoint(None, {}) is None


@pytest.mark.parametrize(
    ("given", "environment", "url"),
    [
        ("http://127.0.0.1:1/", {"AWS_ENDPOINT_URL": "http://127.0.0.1:2"}, "http://127.0.0.1:1"),
        (None, {"AWS_ENDPOINT_URL": "http://127.0.0.1:2", "LOCALSTACK_HOST": "h:3"}, "http://127.0.0.1:2"),
    ],
)
def test_the_nearest_name_wins(given: str | None, environment: dict[str, str], url: str) -> None:
    found = other_endpoint(given, environment)
    assert found is not None
    assert (found.url, found.kind) == (url, "other")


@pytest.mark.parametrize(("host", "url"), [("somewhere", "http://somewhere:4566"), ("somewhere:4567", "http://somewhere:4567")])
def test_localstacks_own_variable_means_localstacks_defaults(monkeypatch: pytest.MonkeyPatch, host: str, url: str) -> None:
    monkeypatch.delenv("AWS_ENDPOINT_URL", raising=False)
    monkeypatch.setenv("LOCALSTACK_HOST", host)
    found = other_endpoint(None, os.environ)
    assert found is not None
    assert found.url == url


@pytest.mark.parametrize(
    "url",
    [
        "https://sqs.eu-west-1.amazonaws.com",
        "https://dynamodb.cn-north-1.amazonaws.com.cn",
        "127.0.0.1:4566",
        "ftp://x",
        "nonsense",
    ],
)
def test_only_an_emulator_is_taken(url: str) -> None:
    with pytest.raises(NotAnEmulator):
        other_endpoint(url, {})
    with pytest.raises(NotAnEmulator):
        other_endpoint("http://127.0.0.1:1", {"AWS_ENDPOINT_URL_DYNAMODB": url})


def test_a_service_may_answer_elsewhere_and_every_process_is_told() -> None:
    found = other_endpoint("http://127.0.0.1:1", {"AWS_ENDPOINT_URL_DYNAMODB": "http://127.0.0.1:2", "AWS_REGION": "eu-west-1"})
    assert found is not None
    assert found.client("dynamodb").meta.endpoint_url == "http://127.0.0.1:2"
    assert found.client("sqs").meta.endpoint_url == "http://127.0.0.1:1"
    told = found.environment()
    assert (told["AWS_ENDPOINT_URL"], told["AWS_ENDPOINT_URL_DYNAMODB"]) == ("http://127.0.0.1:1", "http://127.0.0.1:2")
    assert told["AWS_DEFAULT_REGION"] == "eu-west-1"


def test_no_credentials_of_the_users_reach_an_emulator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIAREAL")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "real")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "real")
    endpoint = Endpoint("moto", "http://127.0.0.1:1")
    credentials = endpoint.client("sqs")._request_signer._credentials
    assert (credentials.access_key, credentials.secret_key, credentials.token) == ("test", "test", None)
    assert "AKIAREAL" not in endpoint.environment().values()


def test_no_profile_of_the_users_is_asked_by_anything_that_dev_does(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "config").write_text("[profile prod]\nregion = eu-central-1\nuse_fips_endpoint = true\nca_bundle = /nowhere\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_USE_DUALSTACK_ENDPOINT", "true")
    for profile in ("nobody-has-it", "prod"):
        monkeypatch.setenv("AWS_PROFILE", profile)
        deaf_session.cache_clear()
        client = Endpoint("moto", "http://127.0.0.1:1").client("sqs")
        assert client.generate_presigned_url("list_queues").startswith("http://127.0.0.1:1/?")
        assert client.meta.region_name == "us-east-1"
        assert read_template(ROOT / "template.yaml", {}, "us-east-1").resources


# --- MiniStack's environment ----------------------------------------------------------------------------------------------


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> SimpleQueue[list[str]]:
    """Instead of building: makes what a build leaves, and tells of the commands."""
    commands: SimpleQueue[list[str]] = SimpleQueue()

    def run(command: list[str]) -> None:
        commands.put(command)
        if "venv" in command:
            (Path(command[-1]) / "bin").mkdir()
            (Path(command[-1]) / "bin" / "python").touch()

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(ministack_environment, "_run", run)
    return commands


@pytest.mark.parametrize("pip", ["pip", "ringfence.no_pip"], ids=["with the pip that is here", "with one of its own"])
def test_ministack_is_installed_once_from_hashes_even_by_starts_at_once(
    builds: SimpleQueue[list[str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pip: str
) -> None:
    find = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: find(pip if name == "pip" else name))
    said: SimpleQueue[str] = SimpleQueue()
    with ThreadPoolExecutor(4) as pool:
        found = set(pool.map(lambda _: ministack_python(said.put), range(4)))
    assert len(found) == 1
    assert found.pop().is_file()
    assert builds.qsize() == 2
    made, installed = builds.get(), builds.get()
    assert "venv" in made
    assert "--require-hashes" in installed
    assert ("--without-pip" in made) == ("--python" in installed) == (pip == "pip")
    assert said.qsize() == 1
    assert sorted(path.suffix for path in (tmp_path / "ringfence").iterdir()) == ["", ".lock"]


def test_a_failed_installation_leaves_nothing_and_says_what_pip_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    told = subprocess.CompletedProcess([], 1, stdout=b"no matching distribution")
    monkeypatch.setattr(subprocess, "run", lambda *_a, **_k: told)
    with pytest.raises(NotInstalled, match="no matching distribution"):
        ministack_python(lambda _: None)
    assert [path.suffix for path in (tmp_path / "ringfence").iterdir()] == [".lock"]


def test_every_package_of_ministack_is_pinned_by_hash() -> None:
    lock = ministack_environment.LOCK.read_text()
    pinned = [line for line in lock.splitlines() if "==" in line and not line.startswith("#")]
    assert any(line.startswith("ministack==") for line in pinned)
    assert all(line.endswith("\\") for line in pinned)
    assert lock.count("--hash=sha256:") >= len(pinned)


# --- the lock in front of moto --------------------------------------------------------------------------------------------


def test_requests_to_moto_are_answered_one_at_a_time_and_whole() -> None:
    import io

    inside: list[int] = []
    most = 0

    def application(environ: dict[str, Any], _start: Any) -> Any:
        nonlocal most
        assert environ["wsgi.input"].read() == b"body"
        for _ in range(5):
            inside.append(1)
            most = max(most, len(inside))
            threading.Event().wait(0.001)
            yield b"part"
            inside.pop()

    one = OneAtATime(application)
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda _: one({"wsgi.input": io.BytesIO(b"body"), "CONTENT_LENGTH": "4"}, None), range(16)))
    assert most == 1
    assert all(answer == [b"part"] * 5 for answer in answers)


# --- run folders and logs -------------------------------------------------------------------------------------------------


def test_runs_of_the_same_process_have_folders_of_their_own(tmp_path: Path) -> None:
    one, other = make_run_folder(tmp_path), make_run_folder(tmp_path)
    assert one != other
    assert one.name == f"run-{os.getpid()}"
    assert (other / "logs").is_dir()


def test_only_the_last_few_ended_runs_are_kept(tmp_path: Path) -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    runs = tmp_path / ".ringfence"
    for n in range(8):
        (runs / f"run-{ended.pid}-{n}").mkdir(parents=True)
        os.utime(runs / f"run-{ended.pid}-{n}", (n, n))
    running = runs / f"run-{os.getppid()}"
    running.mkdir()
    make_run_folder(tmp_path)
    left = {path.name for path in runs.iterdir()}
    assert left == {running.name, f"run-{os.getpid()}", *(f"run-{ended.pid}-{n}" for n in range(3, 8))}


def test_a_shell_can_read_the_variables_of_the_latest_run(tmp_path: Path) -> None:
    write_environment(make_run_folder(tmp_path), {"A": "old"})
    path = write_environment(make_run_folder(tmp_path), {"A": 'it\'s "$new"', "B": '{"a": 1}'})
    assert path == tmp_path / ".ringfence" / "latest" / "environment"
    shown = subprocess.run(["sh", "-c", f'. "{path}"; echo "$A $B"'], capture_output=True, text=True, check=True)
    assert shown.stdout == 'it\'s "$new" {"a": 1}\n'


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[int], Path]:
    """The folder of a run of that process, in which it has kept its id as a variable."""

    def start(pid: int) -> Path:
        with monkeypatch.context() as there:
            there.setattr(os, "getpid", lambda: pid)
            folder = make_run_folder(tmp_path)
            write_environment(folder, {"A": str(pid)})
            return folder

    return start


def ended_process() -> int:
    process = subprocess.Popen(["true"])
    process.wait()
    return process.pid


def told_by_latest(tmp_path: Path) -> str:
    """What a shell comes to that reads the variables."""
    command = ["sh", "-c", ". .ringfence/latest/environment && echo $A"]
    shown = subprocess.run(command, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    assert (shown.returncode == 0) == shown.stdout.strip().isdigit()
    return shown.stdout.strip()


def test_variables_of_a_run_that_has_ended_are_no_good_and_say_so(tmp_path: Path, started: Callable[[int], Path]) -> None:
    killed = ended_process()
    started(killed)
    assert f"(process {killed}) has ended" in told_by_latest(tmp_path)


def test_of_two_runs_the_later_is_the_latest_and_when_it_ends_the_other(tmp_path: Path, started: Callable[[int], Path]) -> None:
    gone, first, second = started(ended_process()), started(os.getppid()), started(os.getpid())
    assert told_by_latest(tmp_path) == str(os.getpid())
    assert (others_running(second), others_running(gone)) == ([first], [second, first])
    leave_latest(first)
    assert told_by_latest(tmp_path) == str(os.getpid()), "the second goes on"
    leave_latest(second)
    assert told_by_latest(tmp_path) == str(os.getppid())


def test_the_logs_of_the_latest_run_stay_when_it_has_ended(tmp_path: Path, started: Callable[[int], Path]) -> None:
    only = started(ended_process())
    os.utime(only, (0, 0))
    leave_latest(only)
    for number in range(8):
        (only.parent / f"run-{ended_process()}-{number}").mkdir()  # of one that could not start
    make_run_folder(tmp_path)
    assert (tmp_path / ".ringfence" / "latest" / "logs").is_dir()


def test_a_shell_with_the_variables_knows_nothing_of_an_account_of_the_users(tmp_path: Path) -> None:
    path = write_environment(make_run_folder(tmp_path), {"AWS_REGION": "us-east-1", "AWS_ENDPOINT_URL": "http://127.0.0.1:1"})
    users = {
        "AWS_PROFILE": "prod",
        "AWS_SESSION_TOKEN": "real\nAWS_X=1",
        "AWS_ENDPOINT_URL_DYNAMODB": "https://dynamodb.eu-west-1.amazonaws.com",
        "AWS_IGNORE_CONFIGURED_ENDPOINT_URLS": "true",
        "AWS_REGION": "eu-west-1",
    }
    for before in (users, {}):
        command = ["sh", "-euc", f'. "{path}"; env | grep ^AWS_ | sort']
        shown = subprocess.run(command, env={"PATH": os.environ["PATH"], **before}, capture_output=True, text=True, check=True)
        assert shown.stdout == "AWS_ENDPOINT_URL=http://127.0.0.1:1\nAWS_REGION=us-east-1\n"


def test_logs_are_shown_line_by_line_as_they_grow(tmp_path: Path) -> None:
    shown: SimpleQueue[tuple[str, str]] = SimpleQueue()
    (tmp_path / "F-1.log").write_text("first\nunfini")
    follower = LogFollower(tmp_path, lambda name, line: shown.put((name, line)))
    follower.start()
    assert shown.get(timeout=20) == ("F-1", "first")
    with (tmp_path / "F-1.log").open("a") as log:
        log.write("shed\nlast")
    assert shown.get(timeout=20) == ("F-1", "unfinished")
    follower.stop()
    assert shown.get(timeout=20) == ("F-1", "last")


# --- the pulse ------------------------------------------------------------------------------------------------------------


def test_a_redis_that_is_gone_is_not_killed_again_for_its_number_may_be_anothers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = RedisProcess(Path(sys.executable), tmp_path)
    process.launch()
    process.kill()
    killed: list[int] = []
    monkeypatch.setattr(os, "killpg", lambda group, _signal: killed.append(group))
    process.kill()
    process.stop()
    assert killed == []


def test_a_beat_between_looking_and_waiting_is_not_missed() -> None:
    pulse = Pulse()
    since = pulse.beats
    pulse.beat()
    began = time.monotonic()
    pulse.wait(since, idle_rounds=10)
    assert time.monotonic() - began < Pulse.LONGEST_SECONDS / 2


def test_the_end_wakes_a_pause() -> None:
    pulse = Pulse()
    pausing = threading.Thread(target=pulse.pause, args=(3600,))
    pausing.start()
    pulse.stop()
    pausing.join(20)
    assert not pausing.is_alive()
    assert pulse.stopped()
